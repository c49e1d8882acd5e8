"""Calibrators as Python source that needs no NumPy: one score in, one probability out."""

from typing import Final

LOWEST: Final = -700.0  # in log-odds; exp overflows at 710

_SOURCE: Final = '''\
"""Calibrates scores, needs Python alone: {words}, map {digest}."""

import math
from bisect import bisect_right


def calibrate(score: float) -> float:
    """The calibrated probability of a score between 0 and 1."""
    if not 0.0 <= score <= 1.0:
        raise ValueError("a score lies between 0 and 1; divide percentages by 100")
{body}'''

_PROBABILITY: Final = f"""\
    lowest = {LOWEST}
    if log_odds < lowest:
        return min(math.exp(log_odds), 1.0 / (1.0 + math.exp(-lowest)))
    return 1.0 / (1.0 + math.exp(-log_odds))
"""
_LOG: Final = "(math.log(score) if score > 0.0 else -math.inf)"
_LOG_REST: Final = "(math.log1p(-score) if score < 1.0 else -math.inf)"


def source(words: str, digest: str, body: str) -> str:
    """A whole module around the statements of one form."""
    return _SOURCE.format(words=words, digest=digest, body=body)


def beta(a: float, b: float, c: float) -> str:
    """The statements of a beta map."""
    terms = [repr(c)]
    if a:
        terms.append(f"+ {a!r} * {_LOG}")
    if b:
        terms.append(f"- {b!r} * {_LOG_REST}")
    lines = "\n        ".join(terms)
    return f"    log_odds = (\n        {lines}\n    )\n{_PROBABILITY}"


def log_odds_line(x: tuple[float, ...], y: tuple[float, ...]) -> str:
    """The statements of straight pieces in log-odds."""
    return f"""\
    x = _X
    y = _Y
    log_odds = {_LOG} - {_LOG_REST}
    after = bisect_right(x, log_odds)
    if after == 0:
        log_odds = y[0] + (log_odds - x[0])
    elif after == len(x):
        log_odds = y[-1] + (log_odds - x[-1])
    else:
        share = (log_odds - x[after - 1]) / (x[after] - x[after - 1])
        log_odds = min(y[after - 1] + share * (y[after] - y[after - 1]), y[after])
{_PROBABILITY}

_X = {list(x)!r}
_Y = {list(y)!r}
"""


def steps(edges: tuple[float, ...], values: tuple[float, ...]) -> str:
    """The statements of steps."""
    return f"""\
    return _VALUES[bisect_right(_EDGES, score)]


_EDGES = {list(edges)!r}
_VALUES = {list(values)!r}
"""
