"""The same data under each privacy model: what it costs in error and bytes, and in trust."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedgauge.data.examples import Label, LabelReader, read_batches
from fedgauge.data.files import ScoreTable
from fedgauge.engines.reports import ID_BYTES
from fedgauge.engines.simulation import Clients, evaluate, pairs
from fedgauge.errors import NoSignal
from fedgauge.metrics.curves import PrCurve, RocCurve, area_error, exact_pr_curve, exact_roc_curve
from fedgauge.privacy import AnyPrivacyModel
from fedgauge.results.evaluation import Evaluation


class Compared(NamedTuple):
    """One privacy model on the data; errors are None where noise hides the result."""

    privacy: AnyPrivacyModel
    result: Evaluation
    roc_auc_error: float | None
    roc_area_error: float | None
    pr_area_error: float | None
    bytes_per_client: int
    trust: str


class LocalComparison(NamedTuple):
    """All models on the same data, and the AUC of the pooled rows."""

    exact_auc: float
    models: tuple[Compared, ...]


def compare(
    clients: Clients | ScoreTable,
    models: Sequence[AnyPrivacyModel],
    *,
    examples: int | None = None,
    positive_rate: float | None = None,
    positive: Label | None = None,
    seed: int | None = None,
) -> LocalComparison:
    """Evaluate the same data under each model, next to the exact pooled curves.

    A simulation for whoever holds all the data, to choose a model with: the pooled rows are
    read into memory. Options are those of :func:`fedgauge.evaluate`.

    Examples
    --------
    >>> from fedgauge import LocalDP, SecureAggregation
    >>> clients = {"a": ([0, 1] * 500, [0.2, 0.7] * 500)}
    >>> comparison = compare(clients, [SecureAggregation(), LocalDP(5.0)], seed=1)
    >>> [model.bytes_per_client for model in comparison.models]
    [65536, 24000]
    """
    if not isinstance(clients, ScoreTable):
        clients = list(pairs(clients))
    labels, scores = _pool(clients, positive)
    curves = exact_roc_curve(labels, scores), exact_pr_curve(labels, scores)
    compared = []
    for privacy in models:
        noisy = privacy.adds_noise
        result = evaluate(
            clients,
            privacy=privacy,
            positive=positive,
            seed=seed,
            examples=examples if noisy else None,
            positive_rate=positive_rate if noisy else None,
        )
        compared.append(_judge(privacy, result, curves))
    return LocalComparison(curves[0].path.area(), tuple(compared))


def _judge(
    privacy: AnyPrivacyModel, result: Evaluation, exact: tuple[RocCurve, PrCurve]
) -> Compared:
    size = result.plan.bytes_per_client
    if result.reports is not None:
        size = (size + ID_BYTES) * -(-result.reports // result.clients)
    try:
        roc, pr = result.roc_curve(), result.pr_curve()
        errors = (
            abs(roc.path.area() - exact[0].path.area()),
            area_error(roc, exact[0]),
            area_error(pr, exact[1]),
        )
    except NoSignal:
        return Compared(privacy, result, None, None, None, size, privacy.trust)
    return Compared(privacy, result, *errors, size, privacy.trust)


def _pool(clients: Any, positive: Label | None) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """All rows. What cannot be read here is refused, with its place, by the evaluations."""
    if isinstance(clients, ScoreTable):
        batches = [batch for _, batch in clients.batches()]
        readers = [LabelReader(positive)] * len(batches)
    else:
        each = [(LabelReader(positive), data) for _, data in clients]
        read = [(batch, reader) for reader, data in each for batch in read_batches(data)]
        batches, readers = [batch for batch, _ in read], [reader for _, reader in read]
    labels = [reader(batch.labels) for reader, batch in zip(readers, batches, strict=True)]
    scores = [batch.y_score for batch in batches]
    return np.concatenate(labels).astype(np.int64), np.concatenate(scores)
