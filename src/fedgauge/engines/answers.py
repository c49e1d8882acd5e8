"""Answers of label parties to a result, where each answered alone."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from fedgauge.engines.contribution import release
from fedgauge.errors import ExchangeError, InputError, PlanError
from fedgauge.estimation.distribution import Aligned, Estimator
from fedgauge.estimation.released import Released
from fedgauge.keys import key_to_text
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import DistributedDP
from fedgauge.privacy.flipping import debias
from fedgauge.results.evaluation import Evaluation
from fedgauge.site import Site
from fedgauge.vertical.answer import Answer
from fedgauge.vertical.assigned import Totals
from fedgauge.vertical.auc import LabelAuc
from fedgauge.vertical.kept import RankTotals
from fedgauge.vertical.mechanisms import MECHANISMS
from fedgauge.vertical.pairs import Pair, auc_estimate

_ASK: Final = "Ask that party for the file it wrote for this plan."


def conclude_alone(
    site: Site,
    plan: EvaluationPlan,
    answers: Iterable[Answer],
    *,
    without_missing: bool = False,
    estimator: Estimator = Aligned(),
) -> Evaluation | LabelAuc:
    """The result of what label parties answered alone, each at most once.

    It claims ``"enforced"``: every answer was private before it left its party. No party confirms
    the result, so it is not signed: it rests on the word of whoever scored.

    Parameters
    ----------
    site
        Of whoever scored, who keeps what goes with the bins or ranks.
    plan
        The plan that the parties answered.
    answers
        Of the parties, in any order.
    without_missing
        Go on without parties that did not answer; not for pairs, whose ranks are among all.
    estimator
        How curves are drawn between the edges of bins.
    """
    if not plan.is_alone:
        raise PlanError(
            "under this plan parties do not answer alone: their sum is opened by `fedgauge "
            "exchange advance`."
        )
    kind = Totals if plan.paired is None else RankTotals
    totals: Totals | RankTotals = kind.kept(site, plan)
    given = _by_party(site, plan, answers, totals.parties)
    missing = [_name(site, party) for party in totals.parties if party not in given]
    if isinstance(totals, RankTotals):
        if missing:
            raise ExchangeError(
                f"{', '.join(missing)} did not answer yet, and ranks are among the examples of all "
                "parties. Wait for the file, or assign again without."
            )
        return _auc(plan, totals, [given[party] for party in totals.parties])
    if not given or (missing and not without_missing):
        raise ExchangeError(
            f"{', '.join(missing)} did not answer yet. Wait for the file, or go on without: "
            "--without-missing."
            if given
            else "there is no answer, so there is nothing to evaluate."
        )
    released = _released(site, plan, totals, given)
    statement = plan.statement("enforced", totals.hints)
    return Evaluation(plan, statement, totals.complete(released, given), estimator=estimator)


def _by_party(
    site: Site, plan: EvaluationPlan, answers: Iterable[Answer], parties: Sequence[bytes]
) -> dict[bytes, list[int]]:
    """The numbers of each party; refused where one is not of this plan, or comes twice."""
    given: dict[bytes, list[int]] = {}
    for answer in answers:
        name = _name(site, answer.party)
        if answer.party not in parties:
            raise InputError(
                f"{name} is no party of this plan: it was told no bins. Leave its answer out, or "
                "assign again with its roster."
            )
        if answer.plan != plan.digest:
            raise InputError(f"the answer of {name} is to another plan. {_ASK}")
        if answer.party in given:
            raise InputError(f"{name} answered twice. Keep one of both: each has noise of its own.")
        if len(answer) != plan.numbers:  # before so many are made of some bytes
            raise InputError(f"the answer of {name} has another length than the plan asks for.")
        given[answer.party] = answer.numbers
    return given


def _released(
    site: Site, plan: EvaluationPlan, totals: Totals, given: Mapping[bytes, Sequence[int]]
) -> Released:
    """What the answers add up to: positives by bin."""
    known = dict(totals.by_party)
    for party, numbers in given.items():
        if plan.privacy.flips_labels:
            fits = all(0 <= told <= most for told, most in zip(numbers, known[party], strict=True))
        else:
            fits = all(abs(number) <= plan.most_per_count for number in numbers)
        if not fits:
            raise InputError(
                f"the answer of {_name(site, party)} has counts that no labels have. {_ASK}"
            )
    total = np.sum([np.array(numbers, dtype=np.int64) for numbers in given.values()], axis=0)
    if not plan.privacy.flips_labels:
        return release(plan, total, len(given))
    examples = np.sum([known[party] for party in given], axis=0)
    positives = debias(total, examples, plan.flipped.chance)
    return Released(plan.axis, positives[np.newaxis], len(given))


def _auc(plan: EvaluationPlan, totals: RankTotals, answers: Sequence[Sequence[int]]) -> LabelAuc:
    """The AUC of all parties' pairs."""
    assert plan.paired is not None and isinstance(plan.privacy, DistributedDP)  # noqa: S101, PT018
    name = plan.paired.mechanism
    pairs = [Pair(*numbers) for numbers in answers]
    auc = auc_estimate(pairs, MECHANISMS[name], totals.known, plan.privacy)
    statement = plan.statement("enforced", totals.hints)
    return LabelAuc(auc, statement, name, len(pairs), totals.examples)


def _name(site: Site, party: bytes) -> str:
    return site.peers.get(party, key_to_text(party))
