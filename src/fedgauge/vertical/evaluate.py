"""Scores at one party, labels at others, in one process: nothing is protected on the way."""

import warnings
from collections.abc import Mapping
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import NDArray

from fedgauge.arrays import Floats, Tree
from fedgauge.data.columns import Column
from fedgauge.data.examples import Label
from fedgauge.data.files import ScoreTable
from fedgauge.data.ids import IdTable
from fedgauge.engines.simulation import Summation, run, source_of
from fedgauge.errors import InputError, InputWarning, LabelError, PlanError, located
from fedgauge.estimation.counts import Released
from fedgauge.estimation.distribution import Aligned, Estimator
from fedgauge.histograms.channels import LabelReader
from fedgauge.metrics.estimate import Estimate
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import AnyPrivacyModel, Cohort, DistributedDP, PrivacyStatement
from fedgauge.privacy.keystream import WordSource
from fedgauge.privacy.local import debias, flip
from fedgauge.results.evaluation import Evaluation
from fedgauge.vertical.auc import (
    MECHANISMS,
    LabelAuc,
    PairMechanism,
    PairName,
    PartyRanks,
    Ranks,
    auc_estimate,
    doubled_midranks,
    noisy_pair,
)
from fedgauge.vertical.bins import LABEL_DP, Binned, bin_scores, predicted_deviations
from fedgauge.vertical.files import completed
from fedgauge.vertical.flips import count_by_bin
from fedgauge.vertical.joining import JoinedExamples, join, scored_by_parties

Labels = Mapping[str, Any] | IdTable | ScoreTable | JoinedExamples
Mechanism = Literal["auto", "histogram"] | PairName


@overload
def evaluate_vertical(
    scores: Any,
    labels: Labels,
    *,
    privacy: AnyPrivacyModel = ...,
    mechanism: Mechanism = ...,
    only: None = ...,
    cohort: Cohort | None = ...,
    tree: Tree = ...,
    positive_rate: float | None = ...,
    positive: Label | None = ...,
    estimator: Estimator = ...,
    seed: int | None = ...,
    summation: Summation = ...,
) -> Evaluation: ...


@overload
def evaluate_vertical(
    scores: Any,
    labels: Labels,
    *,
    privacy: AnyPrivacyModel = ...,
    mechanism: Mechanism = ...,
    only: Literal["roc_auc"],
    cohort: Cohort | None = ...,
    tree: Tree = ...,
    positive_rate: float | None = ...,
    positive: Label | None = ...,
    estimator: Estimator = ...,
    seed: int | None = ...,
    summation: Summation = ...,
) -> LabelAuc: ...


def evaluate_vertical(
    scores: Any,
    labels: Labels,
    *,
    privacy: AnyPrivacyModel = LABEL_DP,
    mechanism: Mechanism = "auto",
    only: Literal["roc_auc"] | None = None,
    cohort: Cohort | None = None,
    tree: Tree = "auto",
    positive_rate: float | None = None,
    positive: Label | None = None,
    estimator: Estimator = Aligned(),
    seed: int | None = None,
    summation: Summation = "plain",
) -> Evaluation | LabelAuc:
    """Evaluate scores of one party against labels that others hold, with privacy for labels.

    Parameters
    ----------
    scores
        From ids to scores: a mapping, a pair of columns, or an :class:`IdTable` of a file or data
        frame. None where label parties score their examples themselves.
    labels
        From the names of label parties to their labels by id, each likewise; or an :class:`IdTable`
        with a column of parties. Ids are text or whole numbers and are joined as they are: 7 and
        "7" are one, "007" is another. No id is at two parties. Labels without a score are left out
        with a warning, scores without a label silently. Without `scores`, each party has a pair of
        columns, labels and scores, or a :class:`ScoreFile`: it sends its scores in a shuffled order
        and gets their bins or ranks back, so that the server learns all scores of a party.
    privacy
        What each label is promised. ``LocalDP(epsilon, unit="label")`` flips labels at random, for
        parties that trust no sum.
    mechanism
        ``"histogram"``: positives by bin through a secure sum, from which everything follows. For
        the AUC alone also ``"adaptive"``, ``"orthogonal"``, ``"laplace-global"``,
        ``"laplace-local"`` and, under discrete Gaussian noise, ``"gaussian"`` (Sun et al. 2022):
        each party adds all of the noise and sends two numbers. ``"auto"`` is the histogram, or for
        the AUC alone whichever has the least noise by what is public.
    only
        ``"roc_auc"`` where nothing else is wanted.
    cohort
        Which label parties must take part in a sum; by default all, one of whom may collude. One or
        two parties each add all of the noise, so that neither needs the other.
    tree
        Branchings over the bins; ``"flat"``, 64 bins; or ``"auto"``, those with the least error to
        expect of so many examples, and a bin for each score where few are distinct.
    positive_rate
        About what share is positive: public or a guess, to place bins and choose a mechanism. By
        default 0.2.
    positive
        The label of the positive class, where labels are not bool or 0/1.
    estimator, seed
        As for :func:`fedgauge.evaluate`.

    Returns
    -------
    Evaluation or LabelAuc
        The latter where `only` says so.

    Examples
    --------
    >>> scores = {i: (i % 10) / 10 for i in range(2000)}
    >>> labels = {"a": {i: i % 10 > 4 for i in range(2000)}}
    >>> evaluate_vertical(scores, labels, seed=1).roc_auc > 0.9
    True
    """
    check_wanted(mechanism, only, privacy)
    if isinstance(labels, JoinedExamples):
        joined = labels  # whoever joined them knows what was left out
    else:
        joined = scored_by_parties(labels) if scores is None else join(scores, labels)
        if joined.left_out is not None:
            warnings.warn(joined.left_out, InputWarning, stacklevel=2)
    binned = bin_scores(
        joined.scores,
        len(joined.parties),
        privacy,
        cohort=cohort,
        tree=tree,
        positive_rate=positive_rate,
        positive=positive,
        only=only,
        self_scored=joined.self_scored,
    )
    source = source_of(seed)
    if only is None:
        return _by_bins(joined, binned, source, summation, estimator)
    ranks = doubled_midranks(joined.scores)
    known = PartyRanks.of(ranks, joined.party, len(joined.parties))
    plan = binned.plan
    predicted = predicted_deviations(known, privacy, plan.cohort, plan.tree, binned.rate)
    chosen = next(iter(predicted), "histogram") if mechanism == "auto" else mechanism
    if chosen == "histogram":
        result = _by_bins(joined, binned, source, summation, estimator)
        auc, statement = result.roc_auc, result.privacy
    else:
        assert isinstance(privacy, DistributedDP)  # noqa: S101  (checked, or none is predicted)
        auc = _by_pairs(joined, ranks, known, MECHANISMS[chosen], privacy, positive, source)
        # Noise of a pair is drawn exactly, and needs no other party.
        (epsilon, delta), unit, hints = privacy.budget, privacy.unit, binned.hints
        statement = PrivacyStatement(
            privacy.name, unit, privacy.neighbours, epsilon, delta, None, hints, "simulated"
        )
    parties, examples = len(joined.parties), len(joined.scores)
    return LabelAuc(auc, statement, chosen, parties, examples, predicted)


def check_wanted(mechanism: str, only: str | None, privacy: AnyPrivacyModel) -> None:
    """Refuse what cannot be had together."""
    if only not in (None, "roc_auc"):
        raise PlanError(f"only must be 'roc_auc' or None, got {only!r}.")
    choices = ("auto", "histogram", *MECHANISMS)
    if mechanism not in choices:
        raise PlanError(f"mechanism must be one of {', '.join(choices)}, got {mechanism!r}.")
    if privacy.adds_noise and not privacy.protects_labels:
        raise PlanError(
            "where labels are apart from scores, labels are protected. Say LocalDP(epsilon, "
            "unit='label') or DistributedDP(epsilon, unit='label', neighbours='flip')."
        )
    row = MECHANISMS.get(mechanism)
    if row is None:
        return
    if only is None:
        raise PlanError(
            f"{mechanism} gives the AUC and nothing else. Say only='roc_auc', or use "
            "mechanism='histogram'."
        )
    if not isinstance(privacy, DistributedDP) or privacy.noise != row.noise:
        raise PlanError(
            f"{mechanism} needs DistributedDP with noise={row.noise!r}, unit='label' and "
            "neighbours='flip'."
        )


def _by_bins(
    joined: JoinedExamples,
    binned: Binned,
    source: WordSource,
    summation: Summation,
    estimator: Estimator,
) -> Evaluation:
    plan, axis = binned.plan, binned.axis
    ends = np.cumsum([len(column) for column in joined.labels])
    by_party = np.split(binned.bins.astype(np.float64), ends[:-1])
    clients = dict(zip(joined.parties, zip(joined.labels, by_party, strict=True), strict=True))
    if plan.final.flips_labels:
        released = _run_flipped(clients, plan, binned.totals, source, summation)
    else:
        released, _ = run(clients, plan, source, summation)
    statement = plan.statement("simulated", binned.hints)
    return Evaluation(
        plan, statement, completed(released, axis, binned.totals), estimator=estimator
    )


def _run_flipped(
    clients: Mapping[str, tuple[Column, Floats]],
    plan: EvaluationPlan,
    totals: NDArray[np.int64],
    source: WordSource,
    summation: Summation,
) -> Released:
    """Every party counts its labels as flipped: by a seed alike, whatever their scores."""
    if summation != "plain":
        raise PlanError("flipped labels are not summed securely. Leave summation out.")
    chance = plan.flipped.chance
    sent = np.zeros(plan.axis.bins, dtype=np.int64)
    for name, (labels, bins) in clients.items():
        with located(f"party {name!r}"):
            told = flip(_positives(labels, plan.task.positive), chance, source)
        sent += count_by_bin(told, bins.astype(np.intp), plan.axis.bins)
    positives = debias(sent, totals, chance)
    return Released(plan.axis, positives[np.newaxis], len(clients))


def _by_pairs(
    joined: JoinedExamples,
    ranks: Ranks,
    known: PartyRanks,
    mechanism: PairMechanism,
    privacy: DistributedDP,
    positive: Label | None,
    source: WordSource,
) -> Estimate:
    terms = mechanism.terms(known, privacy)
    sizes = [len(column) for column in joined.labels]
    rows = np.split(ranks, np.cumsum(sizes)[:-1])
    pairs = []
    for name, column, own, each in zip(joined.parties, joined.labels, rows, terms, strict=True):
        with located(f"party {name!r}"):
            pairs.append(noisy_pair(_positives(column, positive), own, each, source))
    return auc_estimate(pairs, mechanism, known, privacy)


def _positives(labels: Column, positive: Label | None) -> NDArray[np.bool_]:
    reader = LabelReader(positive)
    read = reader(labels)
    if reader.missing:
        raise InputError(f"{reader.missing:,} of {len(labels):,} labels are missing.")
    if reader.unusable:
        told = reader.complaint()
        raise LabelError(f"{reader.unusable:,} of {len(labels):,} labels {told}.")
    return read.astype(bool)
