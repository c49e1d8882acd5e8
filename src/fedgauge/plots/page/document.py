"""Results put into one HTML file: words as HTML, numbers as one block of JSON, style and script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

from fedgauge.errors import InputError
from fedgauge.measures.metric import metrics_of
from fedgauge.plots.page import slices, words
from fedgauge.plots.page.filling import plain_json, policy, text_of
from fedgauge.plots.page.parts import part_of
from fedgauge.plots.page.thresholds import named
from fedgauge.results.evaluation import Evaluation
from fedgauge.results.proof import Signature
from fedgauge.storage.whole import write_whole

_MARK: Final = b'<meta name="generator" content="fedgauge">'
_HEAD: Final = 1024  # bytes within which it stands
_MANY: Final = 12  # slices: of more, each is told in brief, so that 120 of them stay below 5 MB


def save_report(
    results: Mapping[str, Evaluation],
    path: str | Path,
    *,
    signatures: Mapping[str, Signature] | None = None,
) -> None:
    """Write a report of results, given with their names, to an HTML file."""
    write_whole(path, report(results, signatures=signatures).encode())


def report(
    results: Mapping[str, Evaluation], *, signatures: Mapping[str, Signature] | None = None
) -> str:
    """The same as text.

    Parameters
    ----------
    results
        By name, such as that of a file; the first is shown when the page opens.
    signatures
        Where they were compared with known keys; else those of the results.

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
    style, script = text_of("page.css"), text_of("figures.js", "page.js")
    return Template(text_of("page.html")).substitute(
        title=escape(", ".join(results)),
        policy=policy(style, script),
        style=style,
        script=script,
        short=_each(results, lambda name, result: words.in_short(result, signed[name])),
        slices=_each(results, lambda _, result: slices.tables_of(result)),
        privacy=_each(results, lambda name, result: words.privacy(result, signed[name])),
        plan=_each(results, lambda _, result: words.plan(result)),
        data=_json(results),
    )


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


def _json(results: Mapping[str, Evaluation]) -> str:
    """The numbers, as text that stays within its element."""
    plain = {
        "at": named(),
        "over": {row.name: [row.title, row.__doc__] for row in metrics_of(Evaluation)},
        "reports": [
            {"name": name, "noisy": result.plan.is_noisy, "parts": _parts(result)}
            for name, result in results.items()
        ],
    }
    return plain_json(plain)


def _parts(result: Evaluation) -> Sequence[dict[str, Any]]:
    brief = len(result.slices) > _MANY
    return [part_of(each, brief=brief) for each in result.slices]
