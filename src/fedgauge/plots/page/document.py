"""Results put into one HTML file: words as HTML, numbers as one block of JSON, style and script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, Final

import msgspec

from fedgauge.errors import InputError
from fedgauge.measures.metric import metrics_of
from fedgauge.plots.page import words
from fedgauge.plots.page.beside import beside
from fedgauge.plots.page.gaps import Told
from fedgauge.plots.page.parts import part_of
from fedgauge.plots.page.slices import told_of
from fedgauge.plots.page.thresholds import named
from fedgauge.results.evaluation import Evaluation
from fedgauge.results.proof import Signature
from fedgauge.storage.whole import write_whole

_MARK: Final = b'<meta name="generator" content="fedgauge">'
_HEAD: Final = 1024  # bytes within which it stands
_MANY: Final = 12  # slices: of more, each is told in brief, so that 120 of them stay below 5 MB
# Names are anybody's text: none may end the block, or begin another element.
_ESCAPED: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}
# Marks that turn the order of letters, and of the digits behind them (Boucher & Anderson 2021).
_TURNING: Final = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SHOWN: Final = {mark: f"[U+{mark:04X}]" for mark in _TURNING}


def save_report(
    results: Mapping[str, Evaluation],
    path: str | Path,
    *,
    signatures: Mapping[str, Signature] | None = None,
    budget: str | None = None,
) -> None:
    """Write a report of results, given with their names, to an HTML file."""
    write_whole(path, report(results, signatures=signatures, budget=budget).encode())


def report(
    results: Mapping[str, Evaluation],
    *,
    signatures: Mapping[str, Signature] | None = None,
    budget: str | None = None,
) -> str:
    """The same as text.

    Parameters
    ----------
    results
        By name, such as that of a file; the first is shown when the page opens.
    signatures
        Where they were compared with known keys; else those of the results.
    budget
        What is left of a site's privacy budget, in words, where its ledger is known.

    Examples
    --------
    >>> import fedgauge as fg
    >>> result = fg.evaluate({"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 1], [0.1, 0.4])})
    >>> report({"week 1": result}).startswith("<!doctype html>")
    True
    """
    if not results:
        raise InputError("a report is of one result or more. Name some.")
    known = signatures or {}
    signed = {name: known.get(name) or result.signature for name, result in results.items()}
    sliced = {name: told_of(result, brief=_is_many(result)) for name, result in results.items()}
    style, script = _file("page.css"), _file("page.js")
    filled = Template(_file("page.html")).substitute(
        title=escape(", ".join(results)),
        policy=_policy(style, script),
        style=style,
        script=script,
        beside=beside(results),
        short=_each(results, lambda name, result: words.in_short(result, signed[name])),
        slices=_each(results, lambda name, _: sliced[name].html),
        privacy=_each(results, lambda name, result: words.privacy(result, signed[name], budget)),
        plan=_each(results, lambda _, result: words.plan(result)),
        data=_json(results, sliced),
    )
    return filled.translate(_SHOWN)


def is_report(path: Path) -> bool:
    """Whether a file is a report that fedgauge wrote."""
    with path.open("rb") as file:
        return _MARK in file.read(_HEAD)


def _each(results: Mapping[str, Evaluation], tell: Any) -> str:
    """What is told of each result, of which the page shows one."""
    return "".join(
        f'<div data-report="{place}"{" hidden" if place else ""}>{tell(name, result)}</div>'
        for place, (name, result) in enumerate(results.items())
    )


def _json(results: Mapping[str, Evaluation], sliced: Mapping[str, Told]) -> str:
    """The numbers, as text that stays within its element."""
    plain = {
        "at": named(),
        "over": {row.name: [row.title, row.__doc__] for row in metrics_of(Evaluation)},
        "reports": [
            {
                "name": name,
                "noisy": result.plan.is_noisy,
                "parts": [part_of(each, brief=_is_many(result)) for each in result.slices],
                "forests": sliced[name].forests,
            }
            for name, result in results.items()
        ],
    }
    return msgspec.json.encode(plain).decode().translate(_ESCAPED)


def _is_many(result: Evaluation) -> bool:
    return len(result.slices) > _MANY


def _policy(style: str, script: str) -> str:
    """What the page may do: nothing but its own style and script, and pictures of its figures."""
    return (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text("utf-8")
