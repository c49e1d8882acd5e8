"""What a series of results says in words: what moved, what would have been seen, what it cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from fedgauge.estimation.distribution import Aligned
from fedgauge.measures.drift import POWER, WINDOW
from fedgauge.measures.intervals import show
from fedgauge.measures.watching import DISTRIBUTION, Watched
from fedgauge.results.alarms import Alarm, title

if TYPE_CHECKING:
    from fedgauge.results.series import Trend

_MANY: Final = 3  # things in a sentence
_NOTHING_YET: Final = "one look that tells something: there is nothing to compare it with yet"
_NONE: Final = "no look tells anything: noise or too few rows hide all of them"


def verdict(trend: Trend) -> str:
    """What moved, in a sentence."""
    if len(trend._told) < 2:
        return _NOTHING_YET if trend._told else _NONE
    looks = f"{len(trend.results):,} looks"
    if not trend.alarms:
        return f"no alarm in {looks}: nothing that is watched moved by more than chance explains"
    first: dict[tuple[str, float | None], Alarm] = {}
    for each in trend.alarms:
        first.setdefault((each.metric, each.threshold), each)
    told = [f"{title(*key)} (first at {each.look})" for key, each in first.items()]
    more = f" and {len(told) - _MANY} more" if len(told) > _MANY else ""
    return (
        f"{len(first)} of {len(trend._runs)} things that are watched moved by more than chance in "
        f"{looks}: {', '.join(told[:_MANY])}{more}"
    )


def of_watched(trend: Trend, watched: Watched) -> str:
    """The alarms of one thing that is watched."""
    raised = [each for each in trend.alarms if each[1:3] == (watched.name, watched.at)]
    if not raised:
        return "No alarm."
    first, last = raised[0], raised[-1]
    looks = f"{len(raised)} looks, {first.look} to {last.look}" if raised[1:] else first.look
    return f"Alarm at {looks}. At {first.look} it moved by {first.by:+.4f}: {first.why}."


def visible(trend: Trend, watched: Watched) -> str:
    """How large a change would have to be, from the last look on."""
    least = trend.least(watched.name, watched.at)
    if least is None:
        return "What could be seen from the last look on is not known: too few rows."
    where = " in a share of scores" if watched.name == DISTRIBUTION else ""
    return (
        f"From now on a lasting change by {least:.4f}{where} would be found within {WINDOW} looks "
        f"with about {POWER:.0%} chance; smaller ones may not be seen."
    )


def budget(trend: Trend) -> str:
    """What all looks cost together."""
    if trend.spent is None:
        return "looks protect different units, so what they cost does not add up"
    epsilon, delta = trend.spent
    if math.isinf(epsilon):
        return "some looks are exact sums, which promise no epsilon"
    return f"epsilon {show(epsilon)}, delta {delta:.2g} for whoever is in every look"


def signatures(trend: Trend) -> str:
    """How many looks are signed, and by how many keys, none of which is compared with a known one.

    Only a signature shows that a look was not edited.
    """
    keys = [each.signature.key for each in trend.results.values()]
    signed = [key for key in keys if key is not None]
    otherwise = sum(each.estimator != Aligned() for each in trend.results.values())
    told = f"{len(signed):,} of {len(keys):,} looks signed"
    if signed:
        number = len(set(signed))
        told += f" by {'one key' if number == 1 else f'{number:,} keys'}, not checked here"
    if len(signed) < len(keys):
        told += "; nothing shows whether others were edited"
    if otherwise:
        told += (
            f"; {otherwise:,} of them read by another estimator than the usual one, which no "
            "signature covers"
        )
    return told


def in_full(trend: Trend) -> str:
    """As a terminal prints it."""
    first, last = trend.looks[0], trend.looks[-1]
    lines = [f"{len(trend.results):,} looks, {first} to {last} ({trend.order})"]
    for watched in trend._runs:
        if watched.name != DISTRIBUTION:
            told = trend.estimate(last, watched.name, watched.at)
            lines.append(f"{title(watched.name, watched.at)}, last: {told or 'undefined'}")
    moved = trend.shifts[last]
    if moved is not None:
        psi = f"PSI {moved.psi:.4f}, {moved.psi_expected:.4f} by chance"
        lines.append(f"scores, last: {psi}; KS {moved.ks:.4f}")
    lines += [f"ALARM {each}" for each in trend.alarms] or [trend.verdict]
    seen = [
        f"{title(each.name, each.at)} {least:.4f}"
        for each in trend._runs
        if (least := trend.least(each.name, each.at)) is not None
    ]
    if seen:
        found = f"found within {WINDOW} looks with about {POWER:.0%} chance"
        lines.append(f"least lasting change from now on that is {found}: {', '.join(seen)}")
    lines += [f"withheld: {name}" for name in trend.withheld]
    lines += [f"false alarms: {trend.promise}", f"budget: {budget(trend)}"]
    return "\n".join([*lines, f"signatures: {signatures(trend)}"])
