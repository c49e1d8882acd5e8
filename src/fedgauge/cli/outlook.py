"""What `vertical plan` prints: errors to expect of each mechanism, and what a wanted one takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

import fedgauge as fg
from fedgauge.cli.terminal import plain_table
from fedgauge.cli.wants import answer, read_want

if TYPE_CHECKING:
    from fedgauge.cli.wants import Want


def summary_table(outlook: fg.LabelOutlook) -> Table:
    """What was planned for, and what to expect of the histogram."""
    table = Table(show_header=False, box=None, pad_edge=False)
    expected, tree = outlook.expected, outlook.tree
    bins = f"{tree[0]} in one level" if len(tree) == 1 else f"tree {' x '.join(map(str, tree))}"
    table.add_row(
        "Planned for",
        f"about {outlook.examples:,} examples, {outlook.positive_rate:.3g} of them positive, at "
        f"{outlook.parties:,} label {'party' if outlook.parties == 1 else 'parties'}",
    )
    table.add_row("Bins", bins)
    table.add_row("ROC Area Error", f"{expected.roc_area_error:.1e} expected")
    table.add_row("PR Area Error", f"{expected.pr_area_error:.1e} expected")
    table.add_row("AUC by chance", f"{outlook.sampling:.1e}, from which examples there are")
    return table


def mechanism_table(outlook: fg.LabelOutlook) -> Table:
    """What each mechanism adds to the error of the AUC."""
    table = plain_table()
    for title in ("mechanism", "gives"):
        table.add_column(title)
    for title in ("scores alike", "scores apart", "whole error"):
        table.add_column(title, justify="right")
    rows = [
        (name, "everything" if name == "histogram" else "AUC alone", alike, outlook.apart[name])
        for name, alike in outlook.alike.items()
    ]
    flips = outlook.flipped
    rows.append(("flipped labels", "everything, repeatedly", flips, flips))
    for name, gives, alike, apart in rows:
        over = outlook.over_sampling(alike)
        table.add_row(name, gives, f"{alike:.1e}", f"{apart:.1e}", f"x {over:.3f}")
    table.caption = (
        "What noise and bins add to the error of the AUC, where the parties' scores are alike and\n"
        "where each has a range of its own; the whole error, alike, over that of chance."
    )
    return table


def best_in_words(outlook: fg.LabelOutlook) -> str:
    """Which mechanism to take."""
    alike, apart = (next(iter(each)) for each in (outlook.alike, outlook.apart))
    alone = alike if alike == apart else f"{alike} where scores are alike, {apart} where apart"
    return f"Best for everything: histogram. Best for the AUC alone: {alone}."


def need_in_words(outlook: fg.LabelOutlook, text: str, *, alone: bool) -> str:
    """Whether there is enough for what is wanted, and what would be."""
    want = _read(text)
    mechanism = next(iter(outlook.alike)) if alone and want.metric == "roc_auc" else "histogram"
    needed = outlook.needs(want.within, metric=want.metric, mechanism=mechanism)
    return answer(want, needed, noisy=True)


def _read(text: str) -> Want:
    written = f"--want is written like roc_auc=0.01 or roc=0.001, got {text!r}."
    try:
        want = read_want(text)
    except fg.PlanError:
        raise fg.PlanError(written) from None
    if want.at is not None or want.metric not in ("roc_auc", "roc_area_error"):
        raise fg.PlanError(written)
    return want
