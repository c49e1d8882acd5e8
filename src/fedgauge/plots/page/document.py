"""Results put into one HTML file: words as HTML, numbers as one block of JSON, style and script."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

from fedgauge.errors import InputError
from fedgauge.escaping import in_one_line, printable
from fedgauge.measures.metric import metrics_of
from fedgauge.plots.page import words
from fedgauge.plots.page.beside import beside
from fedgauge.plots.page.filling import plain_json, policy, text_of
from fedgauge.plots.page.gaps import Told
from fedgauge.plots.page.parts import part_of
from fedgauge.plots.page.slices import told_of
from fedgauge.plots.page.thresholds import named
from fedgauge.results.evaluation import Evaluation
from fedgauge.results.proof import Signature
from fedgauge.storage.whole import open_regular, write_whole

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
    """The same as text.

    Parameters
    ----------
    results
        By name, such as that of a file; the first is shown when the page opens.
    signatures
        Where they were compared with known keys; else those of the results.
    budget
        What is left of a site's privacy budget, in words, where its ledger is known.
    client_average
        The average of the clients' own ROC AUCs, of one result, where somebody knows it.

    Examples
    --------
    >>> import fedgauge as fg
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
        short=_each(results, lambda name, result: words.in_short(result, signed[name])),
        slices=_each(results, lambda name, _: sliced[name].html),
        average=_each(results, lambda _, result: words.client_average(result, client_average)),
        privacy=_each(results, lambda name, result: words.privacy(result, signed[name], budget)),
        plan=_each(results, lambda _, result: words.plan(result)),
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
    return plain_json(plain)


def _is_many(result: Evaluation) -> bool:
    return len(result.slices) > _MANY
