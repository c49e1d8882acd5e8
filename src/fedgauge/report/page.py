"""The report: its words, and results put into one HTML file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

from fedgauge.errors import InputError, UndefinedMetric
from fedgauge.escaping import in_one_line, printable
from fedgauge.metrics.estimate import Estimate, metrics_of, show
from fedgauge.plan.explain import LEARNT, paragraphs
from fedgauge.report.figures import named, part_of, read
from fedgauge.report.html import facts, folded, paragraph, plain_json, policy, text_of
from fedgauge.report.slices import SliceFigures, beside, told_of
from fedgauge.results.evaluation import Evaluation
from fedgauge.results.signature import Signature
from fedgauge.results.summary import by_round, verdict
from fedgauge.storage import open_regular, write_whole

_CHANCE: Final = 0.5
_FEW: Final = 4  # models that are told of first
_CLAIMS: Final = {
    "enforced": "enforced: a protocol between the sites protected the data",
    "simulated": "simulated: one process saw all the data, so nothing was protected",
}
_BY_ITS_WORD: Final = ", as this file says: no signature proves it"
_WAS_SIMULATED: Final = (
    "Here the person who ran the process could see every row. Between sites that keep their own "
    "rows, the worst case would have been:"
)
_ANOTHER: Final = (
    "The average never compares a positive of one client with a negative of another. Pooled data "
    "do. So the two numbers can differ widely."
)
_NO_AVERAGE: Final = (
    "The average of the clients' own ROC AUCs is not on this page: these numbers never leave the "
    "clients, and a sum does not contain them. The average also differs from the ROC AUC of "
    "pooled data, since it never compares a positive of one client with a negative of another."
)
_UNSIGNED: Final = "not in this file: only a signature says who was invited"
_NO_LEDGER: Final = (
    "not in this file: each site keeps its own ledger, shown by fedgauge ledger show"
)
_TITLES: Final = 19  # characters before the words of a line in a verdict


def in_short(result: Evaluation, signature: Signature) -> str:
    """The verdict: sentences first, then the lines that a terminal prints."""
    told = []
    if signature.state == "broken":
        told.append(paragraph(f"Do not use these numbers: {signature.reason}.", "caution"))
    if result.caution is not None:
        told.append(paragraph(f"Caution: {result.caution}", "caution"))
    told += [paragraph(sentence, "lead") for sentence in _sentences(result)]
    first, *lines = verdict(result, slices=False).splitlines()
    rows = [("who took part", first)]
    rows += [(line[:_TITLES].strip(), line[_TITLES:]) for line in lines]
    return "".join([*told, facts([*rows, ("signature", signature.in_words)])])


def _sentences(result: Evaluation) -> list[str]:
    """What the ROC AUC says, and how far it is from that of pooled data."""
    if result.is_several:
        return _of_several(result)
    try:
        auc = result.roc_auc
    except UndefinedMetric as error:
        return [f"There is no verdict: {error}"]
    low, high = auc.interval or auc.bounds
    span = f"{low:.1%} to {high:.1%} at {result.level * 100:g}%"
    ranks = (
        f"The model scores a random positive higher than a random negative in {auc.value:.1%} of "
        f"cases ({span}; ties count half)."
    )
    return [ranks + _against_chance(low, high), how_far(result), *_reservations(auc)]


def _against_chance(low: float, high: float) -> str:
    """What is to be added where a model is not surely better than chance."""
    if high < _CHANCE:
        return " This is worse than chance: the scores may be reversed."
    if low <= _CHANCE:
        return " This may be no better than chance."
    return ""


def _reservations(auc: Estimate) -> list[str]:
    """Why the interval is rough, and whether noise makes it wide."""
    told = [f"The interval is rough: {auc.caution}."] if auc.caution else []
    if auc.parts.get("noise", 0.0) > auc.parts.get("sampling", math.inf):
        told.append(
            "Most of the uncertainty comes from noise added for privacy: more examples or a "
            "larger epsilon would narrow the interval."
        )
    return told


def how_far(result: Evaluation) -> str:
    """Where the number lies that pooled data would give."""
    low, high = map(show, result.roc_auc.bounds)
    sure = f"with {result.level * 100:g}% confidence" if result.pooled.noisy else "for certain"
    where = f"be {low} to four decimals" if low == high else f"lie between {low} and {high}"
    return f"With all rows pooled, the ROC AUC would {where}, {sure}."


def _of_several(result: Evaluation) -> list[str]:
    """Of classes the average and the extremes; of models each, and whether one is better."""
    whole = [each for each in result.slices if each.slice.group == result.slice.group]
    choose = f"This result has {len(whole)} scores for each row: choose one below."
    if not result.has_average:
        return [*_models(result, whole), choose]
    try:
        told = f"The macro average of the ROC AUC is {result.macro('roc_auc')}."
    except UndefinedMetric as error:
        return [f"There is no average: {error}", choose]
    known = [(auc.value, str(each.slice)) for each in whole if (auc := read(each, "roc_auc"))]
    low, high = (f"{show(value)} ({name})" for value, name in (min(known), max(known)))
    return [f"{told} By class it lies between {low} and {high}.", choose]


def _models(result: Evaluation, whole: list[Evaluation]) -> list[str]:
    aucs = [(each.slice, read(each, "roc_auc")) for each in whole[:_FEW]]
    told = [f"{name}: ROC AUC {'undefined' if auc is None else auc}." for name, auc in aucs]
    names = [each.slice.model for each in whole]
    if len(names) == 2 and None not in names and result.mapped_by is None:
        with suppress(UndefinedMetric):
            told.append(f"By these counts {result.compare(*map(str, names)).verdict}")
    return told


def average_of_clients(result: Evaluation, average: float | None) -> str:
    """The average of the clients' own ROC AUCs against that of pooled data, where it is known."""
    if average is None:
        return paragraph(_NO_AVERAGE)
    auc = read(result, "roc_auc")
    if auc is None:
        return paragraph(f"The average of the clients' own ROC AUCs is {show(average)}. {_ANOTHER}")
    rows = [
        ("average of clients", show(average)),
        ("pooled", f"{auc}"),
        ("apart", show(abs(average - auc.value))),
    ]
    return f"<h3>The average of the clients' own ROC AUCs</h3>{facts(rows)}{paragraph(_ANOTHER)}"


def privacy(result: Evaluation, signature: Signature, budget: str | None) -> str:
    """What is promised, to whom, whether it was kept up by a protocol, and what that means."""
    rows = [*_promised(result, signature), *_took_part(result, signature)]
    rows.append(("budget left", budget or _NO_LEDGER))
    if result.privacy.public_inputs:
        rows.append(("public", ", ".join(result.privacy.public_inputs)))
    told = [(title, text) for title, text in paragraphs(result.plan) if title != LEARNT]
    words = "".join(
        f"<h3>{escape(title)}</h3>{''.join(paragraph(line.strip()) for line in text.splitlines())}"
        for title, text in told
    )
    return facts(rows) + _learnt(result) + folded("The plan in words, and an example", words)


def _promised(result: Evaluation, signature: Signature) -> Iterator[tuple[str, str]]:
    stated = result.privacy
    shown = stated.claim == "simulated" or signature.state in ("verified", "unknown key")
    yield "claim", _CLAIMS[stated.claim] + ("" if shown else _BY_ITS_WORD)
    yield "model", result.plan.privacy.title
    if stated.epsilon is None:
        yield "epsilon", "none: the sum is exact, without differential privacy"
        return
    yield "epsilon", f"{stated.epsilon:g}"
    yield "delta", f"{stated.delta or 0:.3g}"
    yield "protects", f"one {stated.unit}"
    yield "neighbours", stated.neighbours or ""
    shared = by_round(result)
    if shared is not None:
        yield "shares", shared


def _took_part(result: Evaluation, signature: Signature) -> Iterator[tuple[str, str]]:
    cohort = result.privacy.cohort
    if cohort is not None:
        yield "sites needed", f"{cohort.min_survivors:,} or more in the sum"
        most = _sites(cohort.max_colluding)
        yield (
            "collusion",
            f"a reader of the result and up to {most} may pool what they know",
        )
    if result.reports is not None:
        yield "reports", f"{result.reports:,}"
    yield "clients counted", f"{result.clients:,}"
    invited = signature.invited
    if invited:
        dropped = invited - result.clients
        yield "dropouts", f"{dropped or 'none'} of {_sites(invited)} that were invited"
    elif cohort is not None:
        simulated = result.privacy.claim == "simulated"
        yield "dropouts", "none: all were in one process" if simulated else _UNSIGNED
    yield "signature", signature.in_words


def _sites(number: int) -> str:
    return "1 site" if number == 1 else f"{number:,} sites"


def _learnt(result: Evaluation) -> str:
    """What each party could have learnt, in the worst case."""
    plan = result.plan
    simulated = result.privacy.claim == "simulated"
    first = paragraph(_WAS_SIMULATED) if simulated else ""
    rows = plan.privacy.learned(plan.cohort, plan.min_cell)
    return f"<h3>What each party could have learnt, in the worst case</h3>{first}{facts(rows)}"


def plan(result: Evaluation) -> str:
    """The plan and its digest."""
    axis = result.released.axis
    sender = "client" if result.reports is None else "report"
    rows = [
        ("digest", result.plan.digest),
        (
            "score axis",
            f"{axis.bins:,} bins from {axis.low:g} to {axis.high:g} ({_origin(result)})",
        ),
        ("sent", f"{result.plan.bytes_per_client:,} bytes per {sender}"),
        ("curves between edges", repr(result.estimator)),
        ("intervals", f"{result.level * 100:g}% confidence"),
    ]
    title, toml = "The plan as a file", escape(result.plan.to_toml())
    text = f'<pre tabindex="0" role="region" aria-label="{title}">{toml}</pre>'
    return facts(rows) + folded(title, text)


def _origin(result: Evaluation) -> str:
    """What kind of bins these are, and what they were found over."""
    found = result.plan.found
    if found is None:
        return result.released.axis.kind
    return f"found in a first round over {found.two.coarse.bins:,} bins, {found.two.coarse.kind}"


_MARK: Final = b'<meta name="generator" content="fedgauge">'
_HEAD: Final = 1024  # bytes within which it stands
_MANY: Final = 12  # slices: of more, each is told in brief, so that 120 of them stay below 5 MB


def save_report(
    results: Mapping[str, Evaluation],
    path: str | Path,
    *,
    signatures: Mapping[str, Signature] | None = None,
    budget: str | None = None,
    client_average: float | None = None,
) -> None:
    """Write a report of results, given with their names, to an HTML file."""
    page = report(results, signatures=signatures, budget=budget, client_average=client_average)
    write_whole(path, page.encode())


def report(
    results: Mapping[str, Evaluation],
    *,
    signatures: Mapping[str, Signature] | None = None,
    budget: str | None = None,
    client_average: float | None = None,
) -> str:
    """Results, by names such as those of files, as the text of one HTML file.

    `signatures` are given where they were compared with known keys. `budget` is what is left of a
    site's privacy budget, in words. `client_average` is the average of the clients' own ROC AUCs.

    >>> result = fg.evaluate({"a": ([0, 1, 1], [0.2, 0.7, 0.9]), "b": ([0, 1], [0.1, 0.4])})
    >>> report({"week 1": result}).startswith("<!doctype html>")
    True
    """
    if not results:
        raise InputError("a report is of one result or more. Name some.")
    if client_average is not None and (len(results) > 1 or not 0 <= client_average <= 1):
        raise InputError(
            "client_average is the average of ROC AUCs, from 0 to 1, of the one result of a report."
        )
    known = {in_one_line(name): each for name, each in (signatures or {}).items()}
    given, results = results, {in_one_line(name): each for name, each in results.items()}
    if len(results) < len(given):
        raise InputError("two of the results have one name, as a report shows it. Rename one.")
    signed = {name: known.get(name) or result.signature for name, result in results.items()}
    sliced = {name: told_of(result, brief=_is_many(result)) for name, result in results.items()}
    style, script = text_of("page.css"), text_of("figures.js", "page.js")
    filled = Template(text_of("page.html")).substitute(
        title=escape(", ".join(results)),
        policy=policy(style, script),
        style=style,
        script=script,
        beside=beside(results, signed),
        short=_each(results, lambda name, result: in_short(result, signed[name])),
        slices=_each(results, lambda name, _: sliced[name].html),
        average=_each(results, lambda _, result: average_of_clients(result, client_average)),
        privacy=_each(results, lambda name, result: privacy(result, signed[name], budget)),
        plan=_each(results, lambda _, result: plan(result)),
        data=_json(results, sliced),
    )
    return printable(filled)


def is_report(path: Path) -> bool:
    """Whether a file is a report that fedgauge wrote."""
    with open_regular(path) as file:
        return _MARK in file.read(_HEAD)


def _each(results: Mapping[str, Evaluation], tell: Any) -> str:
    """What is told of each result, of which the page shows one."""
    return "".join(
        f'<div data-report="{place}"{" hidden" if place else ""}>{tell(name, result)}</div>'
        for place, (name, result) in enumerate(results.items())
    )


def _json(results: Mapping[str, Evaluation], sliced: Mapping[str, SliceFigures]) -> str:
    plain = {
        "at": named(),
        "over": {row.name: [row.title, row.meaning] for row in metrics_of(Evaluation)},
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
    return plain_json(plain)


def _is_many(result: Evaluation) -> bool:
    return len(result.slices) > _MANY
