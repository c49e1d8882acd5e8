"""A result as a few lines of words and numbers, and as a data frame."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from fedgauge.errors import InputError, NoSignal, UndefinedMetric
from fedgauge.metrics.estimate import metrics_of
from fedgauge.plan.task import Slice, Task

if TYPE_CHECKING:
    from fedgauge.metrics.estimate import Estimate
    from fedgauge.metrics.thresholds import AtThreshold
    from fedgauge.results.evaluation import Evaluation

_AXIS_WORDS: Final = {
    "uniform": "bins of equal width",
    "probabilities": "bins, narrower near 0 and 1",
    "logit": "bins of equal width in log-odds",
    "asinh": "bins that grow with the score",
    "edges": "bins between given edges",
    "values": "known score values",
}
_LIKELY: Final = "smoothed to reduce noise (docs/shrinkage.md)"
_MOST_SLICES: Final = 12  # that are told one by one
_MAIN: Final = 5  # metrics of a threshold that are printed
_WIDEST: Final = 40  # characters of a slice's name


def verdict(result: Evaluation, *, slices: bool = True) -> str:
    """Who took part, what was measured, what protects it; without `slices` of the whole alone."""
    lines = [
        ("" if result.slice == Slice() else f"{result.slice}: ") + who(result),
        *([] if result.is_several else _one(result)),
        *(_slices(result) if slices else ()),
        _protection(result),
        _measurement(result),
    ]
    if result.is_shrunk and result.withheld is None:
        lines.append(f"values             {_LIKELY}")
    named = _told(result) if slices else [e for e in result.plan.task.told if e[0] == "groups"]
    lines += [f"{title:<19}{words}" for title, words in named]
    joined = result.released.joined
    if joined:
        # Beside a small group a large one may be hidden, or its size would tell the small one's.
        few = f"at least one of them has fewer than {result.plan.min_cell} examples of a class"
        lines.append(f"not shown          {', '.join(joined)}: {few}; counted with others")
    through = mapping(result)
    if through is not None:
        lines.append(f"mapped by          {through}")
    if result.caution is not None:
        lines.append(f"caution            {result.caution}")
    return "\n".join(lines)


def _told(result: Evaluation) -> list[tuple[str, str]]:
    """What the plan tells apart, but for names that have lines of their own; groups always."""
    listed = 1 < len(result.slices) <= _MOST_SLICES and result.is_several
    return [each for each in result.plan.task.told if each[0] == "groups" or not listed]


def counted(result: Evaluation) -> str:
    """How many clients, or reports, the result is of."""
    if result.reports == result.clients > 1:  # an intake does not know who sent how many
        return f"{result.clients:,} reports"
    return "1 client" if result.clients == 1 else f"{result.clients:,} clients"


def _reported(result: Evaluation) -> str:
    """How many reports there are, which is public, and of how many clients if that is known."""
    told = counted(result)
    if result.reports != result.clients or result.clients == 1:
        told += f", {result.reports:,} {'report' if result.reports == 1 else 'reports'}"
    return told


def who(result: Evaluation) -> str:
    """Who took part, with how many examples of which class."""
    if result.slice.group in result.released.joined:
        return f"{counted(result)}; too few examples to be shown"
    if result.is_several:
        if result.reports is not None and result.slice.group is None:
            return _reported(result)
        about = "about " if result.plan.is_noisy else ""
        return f"{counted(result)}, {about}{result.examples:,} examples"
    hidden = result.pooled.hidden
    if result.reports is not None:  # how many there are is public, of which class is not
        told = _reported(result)
        if hidden is not None:
            return f"{told}; noise hides the number of {hidden}"
        if result.slice.group is not None:
            part = result.positives / max(result.examples, 1)
            return f"{told}, about {result.examples:,} examples, {part:.1%} positive"
        return f"{told}, about {result.positives / result.reports:.1%} positive"
    examples = result.examples
    about = "about " if result.pooled.noisy else ""
    share = f"{result.positives / examples:.1%}" if examples else "unknown share"
    if result.plan.task.of_labels:
        holders = _holders(result.plan.task, result.clients)
        told = f"{holders}; {examples:,} examples"  # as many as have scores
        if hidden is not None:
            return f"{told}, noise hides the number of {hidden}"
        return f"{told}, {about}{share} positive"
    if hidden is not None:
        return f"{counted(result)}; noise hides the number of examples"
    return f"{counted(result)}, {about}{examples:,} examples, {share} positive"


def _holders(task: Task, parties: int) -> str:
    """Who held what, where labels were apart from scores."""
    if task.self_scored:
        return f"scores and labels at {'1 party' if parties == 1 else f'{parties:,} parties'}"
    others = "1 other" if parties == 1 else f"{parties:,} others"
    return f"scores at one party, labels at {others}"


def mapping(result: Evaluation) -> str | None:
    """The map that scores are read through, and whether it is judged on what it was fitted on."""
    calibrator = result.mapped_by
    if calibrator is None:
        return None
    told, fitted = calibrator.in_words(), calibrator.fitted
    if result.proof is not None:
        told += ", which no signature covers"
    if result.in_sample:
        return (
            f"{told}; in-sample: it was fitted on these same counts, so it looks better than it is"
        )
    if fitted is None:
        return told
    about = "" if fitted.epsilon is None else "about "
    return f"{told}, fitted on {about}{fitted.examples:,} examples"


def promise(result: Evaluation) -> str | None:
    """What differential privacy promises, if it does."""
    stated = result.privacy
    if stated.epsilon is None:
        return None
    delta = f", delta {stated.delta:.0e}" if stated.delta else ""
    if stated.unit == "label":
        return f"label-DP, one label flipped: epsilon {stated.epsilon:g}{delta}"
    return f"epsilon {stated.epsilon:g}{delta} for one {stated.unit}"


def by_round(result: Evaluation) -> str | None:
    """How two rounds share the budget, or the reports; None where there is one."""
    if not result.privacy.shares:
        return None
    first, second = result.privacy.shares
    what = "epsilon" if result.reports is None else "the reports"
    return f"{first:.0%} and {second:.0%} of {what} in two rounds"


def _slices(result: Evaluation) -> list[str]:
    others = [each for each in result.slices if each.slice != result.slice]
    names = [str(each.slice) for each in others[:_MOST_SLICES]]
    names = [name if len(name) <= _WIDEST else f"{name[: _WIDEST - 3]}..." for name in names]
    width = max([17, *map(len, names)])
    lines = [
        f"{name:<{width}}  {_in_brief(each)}"
        for name, each in zip(names, others[:_MOST_SLICES], strict=True)
    ]
    if len(others) > _MOST_SLICES:
        lines.append(f"{'...':<{width}}  {len(others) - _MOST_SLICES} more: result.slices")
    if result.has_average:
        lines.append(f"{'macro average':<{width}}  {_average(result)}")
    return lines


def _average(result: Evaluation) -> str:
    try:
        return f"ROC AUC {result.macro('roc_auc')}"
    except NoSignal:
        return "withheld"
    except UndefinedMetric:
        return "ROC AUC undefined"


def _one(result: Evaluation) -> list[str]:
    try:
        return [
            f"ROC AUC            {result.roc_auc}",
            f"average precision  {result.average_precision}",
        ]
    except UndefinedMetric as error:
        return ["ROC AUC            undefined", f"average precision  undefined: {error}"]


def _in_brief(result: Evaluation) -> str:
    try:
        return f"ROC AUC {result.roc_auc}, average precision {result.average_precision.value:.4f}"
    except NoSignal:
        return "withheld"
    except UndefinedMetric:
        return "ROC AUC undefined" if result.pooled.counts.any() else "no examples"


def _protection(result: Evaluation) -> str:
    stated = result.privacy
    claim = {
        "simulated": "simulated: one process saw all the data",
        "enforced": "enforced between the sites",
    }[stated.claim]
    if result.reports is not None and stated.claim == "enforced":
        claim = "each report was randomised before it was sent"
    if result.plan.is_alone and stated.claim == "enforced":
        claim = "each answer was private before it was sent"
    promised = promise(result)
    if promised is None:
        return f"privacy            exact sum, no differential privacy; {claim}"
    if stated.unit != "label":
        promised += f" ({stated.neighbours})"
    shared = by_round(result)
    if shared is not None:
        promised += f", {shared}"
    return f"privacy            {promised}; {claim}"


def _measurement(result: Evaluation) -> str:
    axis, size = result.released.axis, result.plan.bytes_per_client
    whose = "client" if result.reports is None else "report"
    amount = f"{size / 1024:,.0f} KiB" if size >= 1024 else f"{size} byte{'s' * (size != 1)}"
    bins = f"{axis.bins:,} {_AXIS_WORDS[axis.kind]}"
    if result.plan.found is not None:
        bins = f"{_bins(result.plan.axis.bins)} found in a first round"
    if result.plan.task.of_labels:
        bins = f"positives in {_bins(axis.bins)} that the scorer chose"
    elif axis != result.plan.axis:
        found = "" if result.plan.found is None else " found in a first round"
        least = f"no count below {result.plan.min_cell}"
        bins = f"{_bins(axis.bins)}, merged from {result.plan.axis.bins:,}{found}, {least}"
    if result.plan.calibrator is not None:
        bins += f" of scores through a map ({result.plan.calibrator.method})"
    return f"measured           {bins}, {amount} per {whose}, plan {result.plan.digest[:8]}"


def _bins(number: int) -> str:
    return "1 bin" if number == 1 else f"{number:,} bins"


Backend = Literal["pandas", "polars", "pyarrow"]
_BACKENDS: Final = ("pandas", "polars", "pyarrow")
# Columns of text; the others hold numbers.
_TEXT: Final = (*Slice.__struct_fields__, "against", "metric", "caution", "look", "when", "alarm")


class _MetricRow(NamedTuple):
    """One number; None where there is none."""

    metric: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    pooled_low: float | None = None
    pooled_high: float | None = None
    level: float | None = None
    caution: str | None = None

    @classmethod
    def of(cls, name: str, estimate: Estimate | None) -> _MetricRow:
        if estimate is None:
            return cls(name)
        e = estimate
        lowest, highest = (None, None) if math.inf in e.bounds else e.bounds
        return cls(name, e.value, e.low, e.high, lowest, highest, e.level, e.caution)


def metrics_frame(result: Evaluation, backend: Backend) -> Any:
    """Every metric over all thresholds; those that the counts do not define have no value."""
    return _over_slices(result, _metrics, ("metric",), backend)


def thresholds_frame(result: Evaluation, thresholds: Iterable[float], backend: Backend) -> Any:
    """Every metric and outcome at each threshold, one row for each."""
    chosen = list(thresholds)

    def rows_of(part: Evaluation) -> Iterator[tuple[Any, ...]]:
        for at in part.threshold_table(chosen):
            named = {**at.as_dict(), **at.confusion_matrix._asdict()}
            yield from ((at.threshold, *_MetricRow.of(*each)) for each in named.items())

    return _over_slices(result, rows_of, ("threshold", "metric"), backend)


def _metrics(result: Evaluation) -> Iterator[tuple[Any, ...]]:
    _ = result._signal  # refused where there is nothing to tell
    for each in metrics_of(type(result)):
        try:
            yield _MetricRow.of(each.name, getattr(result, each.name))
        except NoSignal:
            raise
        except UndefinedMetric:
            yield _MetricRow(each.name)


def _over_slices(
    result: Evaluation,
    rows_of: Callable[[Evaluation], Iterable[tuple[Any, ...]]],
    keys: tuple[str, ...],
    backend: Backend,
) -> Any:
    """The rows of each slice, with its names in front; a withheld or empty one has one row why."""
    parts = result.slices
    told = [name for name in Slice.__struct_fields__ if any(_named(part, name) for part in parts)]
    rows: list[tuple[Any, ...]] = []
    for part in parts:
        of = tuple(_named(part, name) for name in told)
        try:
            rows += [(*of, *row) for row in rows_of(part)]
        except UndefinedMetric as error:
            if len(parts) == 1:
                raise
            told_as = "withheld" if isinstance(error, NoSignal) else "undefined"
            row = _MetricRow(told_as, caution=str(error))
            rows.append((*of, *(None,) * (len(keys) - 1), *row))
    return frame_of((*told, *keys, *_MetricRow._fields[1:]), rows, backend)


def _named(part: Evaluation, name: str) -> str | None:
    named: str | None = getattr(part.slice, name)
    return named


class ThresholdTable(list["AtThreshold"]):
    """Metrics at several thresholds: a list, which prints as a table and makes a data frame."""

    def to_frame(self, *, backend: Backend = "pandas") -> Any:
        """The values, one row for each threshold; :meth:`Evaluation.to_frame` has intervals too."""
        names, rows = self._values()
        return frame_of(names, rows, backend)

    def __repr__(self) -> str:
        names, rows = self._values()
        shown = names[: _MAIN + 1]
        lines = ["  ".join(shown)]
        for row in rows:
            cells = ("undefined" if value is None else f"{value:.4g}" for value in row)
            lines.append(
                "  ".join(f"{each:>{len(name)}}" for name, each in zip(shown, cells, strict=False))
            )
        return "\n".join(lines)

    def _values(self) -> tuple[list[str], list[list[float | None]]]:
        """Names of columns, and rows."""
        parts = [{**at.as_dict(), **at.confusion_matrix._asdict()} for at in self]
        rows = [
            [at.threshold, *(None if each is None else each.value for each in part.values())]
            for at, part in zip(self, parts, strict=True)
        ]
        return ["threshold", *(parts[0] if parts else ())], rows


def frame_of(names: Sequence[str], rows: Sequence[Sequence[Any]], backend: Backend) -> Any:
    """Rows as a data frame."""
    import pyarrow as pa  # here, for results do without

    if backend not in _BACKENDS:
        raise InputError(f"backend must be one of {', '.join(_BACKENDS)}, got {backend!r}.")
    columns = {
        name: pa.array([row[place] for row in rows], pa.string() if name in _TEXT else pa.float64())
        for place, name in enumerate(names)
    }
    table = pa.table(columns)
    if backend == "pyarrow":
        return table
    try:
        module = import_module(backend)
    except ImportError:
        raise InputError(
            f"{backend} is not installed. Install it (pip install {backend}), or take another: "
            'to_frame(backend="pyarrow") always works.'
        ) from None
    return table.to_pandas() if backend == "pandas" else module.from_arrow(table)
