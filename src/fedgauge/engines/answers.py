"""Answers of label parties to a result, where each answered alone."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from fedgauge.engines.contribution import release
from fedgauge.errors import ExchangeError, InputError, NoSignal, PlanError
from fedgauge.estimation.distribution import Aligned, Estimator
from fedgauge.estimation.impossible import chance_of_each, doubt, is_possible
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
from fedgauge.vertical.pairs import Pair, auc_estimate, is_pair_possible

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
        return _auc(site, plan, totals, [Pair(*given[party]) for party in totals.parties])
    if not given or (missing and not without_missing):
        raise ExchangeError(
            f"{', '.join(missing)} did not answer yet. Wait for the file, or go on without: "
            "--without-missing."
            if given
            else "there is no answer, so there is nothing to evaluate."
        )
    released = replace(
        _released(site, plan, totals, given), doubted=_doubted(site, plan, totals, given)
    )
    statement = plan.statement("enforced", totals.hints)
    return Evaluation(plan, statement, released, estimator=estimator)


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
    """What the answers add up to."""
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
    return _completed(plan, totals, given)


def _completed(
    plan: EvaluationPlan, totals: Totals, given: Mapping[bytes, Sequence[int]]
) -> Released:
    """Negatives and positives by bin, over these parties."""
    total = np.sum([np.array(numbers, dtype=np.int64) for numbers in given.values()], axis=0)
    if not plan.privacy.flips_labels:
        return totals.complete(release(plan, total, len(given)), given)
    known = dict(totals.by_party)
    examples = np.sum([known[party] for party in given], axis=0)
    positives = debias(total, examples, plan.flipped.chance)
    return totals.complete(Released(plan.axis, positives[np.newaxis], len(given)), given)


def _doubted(
    site: Site, plan: EvaluationPlan, totals: Totals, given: Mapping[bytes, Sequence[int]]
) -> tuple[str, ...]:
    """Names of parties whose counts labels of their examples do not give."""
    chance, ends = chance_of_each(len(given)), np.cumsum(plan.final.nodes)[:-1].tolist()
    return tuple(
        _name(site, party)
        for party, numbers in given.items()
        if not is_possible(
            plan,
            _completed(plan, totals, {party: numbers}),
            chance,
            np.split(np.array(numbers, dtype=np.int64), ends),
        )
    )


def _auc(site: Site, plan: EvaluationPlan, totals: RankTotals, pairs: Sequence[Pair]) -> LabelAuc:
    """The AUC of all parties' pairs."""
    assert plan.paired is not None and isinstance(plan.privacy, DistributedDP)  # noqa: S101, PT018
    name, known = plan.paired.mechanism, totals.known
    mechanism, chance = MECHANISMS[name], chance_of_each(len(pairs))
    terms = mechanism.terms(known, plan.privacy)
    doubted = tuple(
        _name(site, party)
        for party, pair, ranks, each in zip(totals.parties, pairs, totals.ranks, terms, strict=True)
        if not is_pair_possible(pair, ranks, each, chance)
    )
    try:
        auc = auc_estimate(pairs, mechanism, known, plan.privacy)
    except NoSignal as error:
        if not doubted:
            raise
        raise NoSignal(f"{doubt(doubted)} As it is there is no result: {error}") from None
    statement = plan.statement("enforced", totals.hints)
    return LabelAuc(auc, statement, name, len(pairs), totals.examples, doubted=doubted)


def _name(site: Site, party: bytes) -> str:
    return site.peers.get(party, key_to_text(party))
