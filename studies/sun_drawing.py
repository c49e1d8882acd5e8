"""Pictures of the figures of Sun et al. 2022: what they say of each, beside what was found."""

import math
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from runner import Found

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Points = Sequence[Found[Any]]

ALPHA = r"$\alpha$, share of $\varepsilon$ for the rank sum"
BETA = r"share of $\varepsilon$: $\alpha$ for rank sums (naive), $\beta$ for positives (orthogonal)"
DEVIATION = "standard deviation of the AUC"
SPLITS = {"iid": "dealt evenly (IID)", "apart": "by score (non-IID)"}
COLOURS = ("#1b6ca8", "#c8553d", "#3a7d44", "#7b5ea7")
CAPTIONS = {
    "1a": "Labels flipped at random. Lines: measured; crosses: printed (Tables 5 and 6, epoch 3). "
    r"Theirs: 10 times the data, deviation over $\sqrt{10}$. It holds.",
    "1b": r"1,000 parties, scores alike. Theirs: least for $\alpha$ of 0.5 to 0.6. It "
    "holds: 0.58 is best.",
    "1c": r"458 parties, 1,000 examples each, by score; $\varepsilon$ = 1. Theirs: adaptive is "
    r"lowest. It holds in tenths, among theirs; one $\beta$ of 0.98 for all is 5% lower.",
    "4": "1,000 parties, each with a range of scores of its own. Theirs: as in Figure 1 b. It "
    "holds in tenths: 0.49 is best.",
    "5": r"1,000 parties, $\varepsilon$ = 4. Theirs: the same pattern in both. It holds.",
    "6": r"458 parties, 1,000 examples each, scores alike; $\varepsilon$ = 1. Theirs: as in Figure "
    r"1 c. It does not hold: one $\beta$ of 0.3 for all has 0.81 of adaptive's noise.",
    "7": "Binormal scores with the AUC of epoch 1, as calibrated probabilities, stand for "
    "Criteo's, whose shape is not known. Theirs: positives score higher in places. It holds.",
    "8": "458 parties with 1,000 examples each. Theirs: no figure in the text. Dealt evenly, all "
    "shares are near 0.5; by score, nearly all of the budget is for the number of positives.",
}


def draw(found: Points, folder: Path) -> None:
    """A picture of each figure of which there are points."""
    from matplotlib.figure import Figure

    for name in ("1", "4", "5", "6", "7", "8"):
        panels = {
            part: [each for each in found if each.cell.figure == part]
            for part in ("1a", "1b", "1c", name)
            if part.rstrip("abc") == name and part in CAPTIONS
        }
        panels = {part: points for part, points in panels.items() if points}
        if not panels:
            continue
        wide = len(panels) * (2 if name == "8" else 1)
        picture = Figure(figsize=(0.4 + 5.2 * max(wide, 1.2), 4.9), layout="constrained")
        parts = picture.subfigures(1, len(panels), squeeze=False)[0]
        for part, (panel, points) in zip(parts, panels.items(), strict=True):
            axes = part.subplots(1, 2 if name == "8" else 1, squeeze=False)[0]
            _DRAWN[panel](list(axes), points)
            width = 110 if name == "8" else 66 if len(panels) > 1 else 80
            part.suptitle(f"Sun et al. 2022, Figure {panel}", fontsize="medium")
            part.supxlabel(textwrap.fill(CAPTIONS[panel], width), fontsize="small", color="0.3")
        path = folder / f"sun-figure-{name}.png"
        picture.savefig(path, dpi=120)
        print(f"drawn: {path}")


def _sizes(axes: list["Axes"], points: Points) -> None:
    (ax,) = axes
    for colour, (series, size) in zip(
        COLOURS, (("small", "458,407"), ("large", "4,584,062")), strict=False
    ):
        own = [each for each in points if each.cell.series == series]
        epsilons = [each.cell.epsilon for each in own]
        ax.plot(epsilons, _of(own, "measured"), "o-", ms=3, color=colour, label=f"{size} examples")
        ax.plot(epsilons, [each.cell.paper for each in own], "x", color=colour, label="printed")
    ax.set(xscale="log", yscale="log", xlabel=r"$\varepsilon$", ylabel=DEVIATION)
    ax.set_xticks([0.1, 0.25, 0.5, 1, 2, 5, 10], ["0.1", "0.25", "0.5", "1", "2", "5", "10"])
    ax.minorticks_off()
    ax.legend(fontsize="small")


def _alphas(axes: list["Axes"], points: Points) -> None:
    (ax,) = axes
    many = len({each.cell.epsilon for each in points}) > 1
    kinds = dict.fromkeys((each.cell.epsilon, each.cell.split) for each in points)
    for colour, (epsilon, split) in zip(COLOURS, kinds, strict=False):
        own = [e for e in points if (e.cell.epsilon, e.cell.split) == (epsilon, split)]
        _curve(ax, own, colour, rf"$\varepsilon$ = {epsilon:g}" if many else SPLITS[split])
    ax.axvspan(0.5, 0.6, color="0.92", zorder=0, label="0.5 to 0.6")
    ax.set(yscale="log", xlabel=ALPHA, ylabel=DEVIATION, xlim=(0.05, 0.95))
    _plain(ax)
    ax.legend(fontsize="small", ncols=2 if many else 1, loc="upper center")


def _allocations(axes: list["Axes"], points: Points) -> None:
    (ax,) = axes
    for colour, series in zip(COLOURS, ("naive", "orthogonal"), strict=False):
        own = [each for each in points if each.cell.series == series]
        if own:
            _curve(ax, own, colour, series)
    for each in points:
        if each.cell.series == "adaptive":
            ax.axhline(each["predicted"], color=COLOURS[2], label="adaptive")
            ax.axhline(each.cell.paper, color=COLOURS[2], ls=":", label="adaptive, printed")
        if each.cell.series == "fedgauge":
            ax.axhline(each["measured"], color=COLOURS[3], label="fedgauge's histogram (error)")
    ax.set(yscale="log", xlabel=BETA, ylabel=DEVIATION, xlim=(0.05, 1.0))
    ax.xaxis.label.set_fontsize("small")
    ax.locator_params(axis="x", nbins=10)
    ax.set_ylim(top=4 * ax.get_ylim()[1])  # the legend is above all lines
    _plain(ax)
    ax.legend(fontsize="small", ncols=2, loc="upper center")


def _curve(ax: "Axes", points: Points, colour: str, label: str) -> None:
    """What is predicted as a line, what was measured as dots."""
    own = sorted(points, key=lambda each: each.cell.share)
    shares = [each.cell.share for each in own]
    ax.plot(shares, _of(own, "predicted"), color=colour, label=label)
    ax.plot(shares, _of(own, "measured"), "o", ms=4, color=colour)


def _plain(ax: "Axes") -> None:
    """Few labels on a logarithmic axis that spans little: at 1, 2 and 5."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:.0e}"))
    ax.yaxis.set_minor_formatter(NullFormatter())


def _densities(axes: list["Axes"], points: Points) -> None:
    (ax,) = axes
    for colour, each in zip(COLOURS[1::-1], points, strict=False):
        middles = np.array([float(at) for at in each.values])
        densities = np.array(list(each.values.values()))
        ax.fill_between(middles, densities, step="mid", alpha=0.3, color=colour)
        ax.step(middles, densities, where="mid", color=colour, label=each.cell.series)
    ax.set(xlabel="score", ylabel="density within the class", xlim=(0, 1), ylim=(0, None))
    ax.legend(fontsize="small")


def _betas(axes: list["Axes"], points: Points) -> None:
    for ax, each, colour in zip(axes, points, COLOURS, strict=False):
        middles = np.array([float(at) for at in each.values])
        width = middles[1] - middles[0] if len(middles) > 1 else 1.0
        counts = np.array(list(each.values.values())) * width * each.cell.parties
        ax.bar(middles, counts, width, color=colour)
        ax.set(
            xlabel=r"$\beta$, share of $\varepsilon$ for the number of positives", ylabel="parties"
        )
        ax.set_title(SPLITS[each.cell.split], fontsize="medium")
        ax.ticklabel_format(axis="x", useOffset=False)
        ax.locator_params(axis="x", nbins=5)


def _of(points: Points, number: str) -> list[float]:
    return [each.values.get(number, math.nan) for each in points]


_DRAWN: dict[str, Callable[[list["Axes"], Points], None]] = {
    "1a": _sizes,
    "1b": _alphas,
    "1c": _allocations,
    "4": _alphas,
    "5": _alphas,
    "6": _allocations,
    "7": _densities,
    "8": _betas,
}
