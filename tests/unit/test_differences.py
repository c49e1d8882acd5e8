"""Gaps between groups: their values by brute force, their intervals, their words."""

import itertools
import math
from typing import get_args

import msgspec
import numpy as np
import pytest
from plans import plan_for
from refusals import refused
from sklearn.metrics import brier_score_loss, roc_auc_score

import fedgauge as fg
from fedgauge import Axis, ScoreHistogram
from fedgauge.errors import FedgaugeError, PlanError, PrivacyWarning
from fedgauge.metrics.differences import gap, level_of_each
from fedgauge.metrics.estimate import Estimate
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.task import LabelTask
from fedgauge.privacy import (
    AnyPrivacyModel,
    Cohort,
    DistributedDP,
    LocalDP,
    PrivacyModel,
    SecureAggregation,
)

RNG = np.random.default_rng(4)
N = 4000
Y = RNG.random(N) < 0.4
SEX = RNG.choice(["women", "men", "unknown"], N, p=[0.5, 0.4, 0.1])
AGE = RNG.choice(["young", "old"], N)
S = np.round(np.clip(RNG.normal(0.4 + 0.2 * Y + 0.05 * (SEX == "men"), 0.15), 0, 1), 2)


def evaluate(groups=("women", "men"), group=SEX, **options):
    clients = {f"site-{i}": fg.Examples(Y[i::3], S[i::3], group=_part(group, i)) for i in range(3)}
    return fg.evaluate(clients, groups=groups, **({"axis": fg.Axis.uniform(2000)} | options))


def _part(group, i):
    if isinstance(group, dict):
        return {name: column[i::3] for name, column in group.items()}
    return group[i::3]


RESULT = evaluate()


def estimate(value, low, high, bounds=None, **parts):
    return Estimate(value, bounds or (value, value), low, high, 0.95, parts)


def test_a_gap_of_estimates_is_newcombes_and_adds_what_binning_allows_in_full():
    """Newcombe 1998, table II, example (a): 56/70 against 48/80 by method 10: 0.0524 to 0.3339."""
    first = fg.evaluate({"a": ([1] * 70 + [0], [0.9] * 56 + [0.1] * 15)}).at_threshold(0.5).recall
    second = fg.evaluate({"a": ([1] * 80 + [0], [0.9] * 48 + [0.1] * 33)}).at_threshold(0.5).recall
    found = gap(first, second)
    assert found.value == pytest.approx(0.2)
    assert found.interval == pytest.approx((0.0524, 0.3339), abs=5e-5)
    wide = estimate(0.5, 0.3, 0.7, (0.4, 0.6), binning=0.1, sampling=0.05)
    found = gap(wide, wide)
    assert found.bounds == pytest.approx((-0.2, 0.2))
    assert found.high == pytest.approx(math.hypot(0.1, 0.1) + 0.2)
    assert found.parts["binning"] == pytest.approx(0.2)
    assert found.parts["sampling"] == pytest.approx(math.hypot(0.05, 0.05))


def test_distances_add_in_squares_under_noise_and_both_ends_are_kept():
    noisy = estimate(0.5, 0.3, 0.7, (0.4, 0.6), noise=0.05, sampling=0.05)
    beyond = estimate(0.5, 0.3, 0.7, (0.1, 0.9), binning=0.4, sampling=0.05)
    for each in (noisy, beyond):
        assert gap(each, each).high == pytest.approx(math.hypot(0.2, 0.2))
    unbounded = estimate(1.0, 0.5, 2.0, (0.5, math.inf))
    assert gap(unbounded, unbounded).bounds == (-math.inf, math.inf)
    assert level_of_each(0.95, 1) == 0.95  # levels of several add up
    assert 45 * (1 - level_of_each(0.95, 45)) == pytest.approx(0.05)
    exact = estimate(0.5, 0.3, 0.7, (0.4, 0.6), binning=0.1, sampling=0.05)
    noisy = estimate(0.5, 0.2, 0.8, (0.3, 0.7), noise=0.1, sampling=0.1)
    one, other = gap(exact, noisy), gap(noisy, exact)
    assert one.low == pytest.approx(-other.high)
    assert one.low == pytest.approx(-0.1 - math.hypot(0.1, 0.3))


def brute_xauc(positives, negatives):
    pairs = positives[:, None] - negatives[None]
    return np.mean((pairs > 0) + 0.5 * (pairs == 0))


def test_gaps_are_differences_of_what_rows_give():
    for metric, at, of in (
        ("recall", 0.5, lambda y, s: np.mean(s[y] >= 0.5)),
        ("fpr", 0.5, lambda y, s: np.mean(s[~y] >= 0.5)),
        ("precision", 0.5, lambda y, s: np.mean(y[s >= 0.5])),
        ("selection_rate", 0.5, lambda _, s: np.mean(s >= 0.5)),
        ("accuracy", 0.3, lambda y, s: np.mean((s >= 0.3) == y)),
        ("roc_auc", None, roc_auc_score),
        ("brier_score", None, brier_score_loss),
        ("calibration_in_the_large", None, lambda y, s: np.mean(y) - np.mean(s)),
    ):
        true = {name: of(Y[mask], S[mask]) for name, mask in masks().items()}
        gaps = RESULT.gaps(metric, at=at)
        for name in ("women", "men", "other"):
            assert gaps.groups[name].value == pytest.approx(true[name], abs=1e-3)
        (pair,) = gaps.pairs
        assert (pair.group, pair.against) == ("women", "men")
        assert pair.difference.value == pytest.approx(true["women"] - true["men"], abs=1e-3)
        low, high = pair.difference.bounds
        assert low <= true["women"] - true["men"] <= high
        rest = {each.group: each for each in RESULT.gaps(metric, at=at, against="rest").pairs}
        others = SEX != "men"
        expected = true["men"] - of(Y[others], S[others])
        assert rest["men"].difference.value == pytest.approx(expected, abs=1e-3)


def masks():
    return {"women": SEX == "women", "men": SEX == "men", "other": SEX == "unknown"}


def test_xauc_ranks_positives_of_one_group_among_negatives_of_another():
    (pair,) = RESULT.gaps("xauc").pairs
    women, men = SEX == "women", SEX == "men"
    first, second = (
        brute_xauc(S[mine & Y], S[theirs & ~Y]) for mine, theirs in ((women, men), (men, women))
    )
    assert pair.first.value == pytest.approx(first, abs=1e-3)
    assert pair.second.value == pytest.approx(second, abs=1e-3)
    assert pair.difference.value == pytest.approx(first - second, abs=1e-3)
    alone = RESULT.gaps("xauc").groups["other"].value
    rest = SEX != "unknown"
    assert alone == pytest.approx(brute_xauc(S[~rest & Y], S[rest & ~Y]), abs=1e-3)


def test_groups_are_those_of_the_selected_model_and_map():
    rows = {"a": fg.Examples(Y, {"new": S, "old": 1 - S}, group=SEX)}
    result = fg.evaluate(
        rows, task=fg.BinaryTask(groups={"sex": ["women", "men"]}, models=("new", "old"))
    )
    new, old = (result.select(model=m).gaps("roc_auc").pairs[0] for m in ("new", "old"))
    assert new.difference.value == pytest.approx(-old.difference.value, abs=1e-3)
    calibrator = RESULT.calibrator("beta")
    mapped = RESULT.with_calibrator(calibrator)
    of = mapped.gaps("calibration_in_the_large").groups["women"]
    assert of == mapped.select(group="women").calibration_in_the_large


def pairs(gaps):
    return [(each.group, each.against) for each in gaps.pairs]


def test_listed_groups_of_one_grouping_are_compared_unless_a_reference_is_named():
    assert pairs(RESULT.gaps("recall", at=0.5)) == [("women", "men")]
    assert pairs(RESULT.gaps("recall", at=0.5, against="men")) == [("women", "men")]
    found = RESULT.gaps("recall", at=0.5, against="other")
    assert pairs(found) == [("women", "other"), ("men", "other")]
    assert found.compared == 2
    one = evaluate(["women"]).gaps("recall", at=0.5)
    assert pairs(one) == [("women", "other")]
    both = {"sex": ["women", "men"], "age": ["young", "old"]}
    apart = evaluate(both, {"sex": SEX, "age": AGE})
    found = apart.gaps("recall", at=0.5)
    assert pairs(found) == [("sex women", "sex men"), ("age young", "age old")]
    task = fg.BinaryTask(groups=both, crossed=True)
    crossed = evaluate(None, {"sex": SEX, "age": AGE}, task=task)
    assert crossed.gaps("recall", at=0.5).compared == 6
    assert "crossed: a row counts once" in str(crossed)
    assert "a row counts in each" in str(apart)


def test_what_cannot_be_compared_is_told():
    for told, asked in (
        ("Say which: gaps", {"metric": "recall"}),
        ("Leave out at=", {"metric": "roc_auc", "at": 0.5}),
        ("Leave out at=", {"metric": "xauc", "at": 0.5}),
        ("There are: precision, recall", {"metric": "nonsense"}),
        ("no group 'girls'.*women, men, other", {"metric": "roc_auc", "against": "girls"}),
        ("with an interval", {"metric": "mann_whitney_u"}),
    ):
        refused(fg.InputError, told, RESULT.gaps, **asked)
    refused(fg.InputError, "the plan has no groups", fg.evaluate({"a": (Y, S)}).gaps, "roc_auc")
    refused(fg.InputError, "this is a single group", RESULT.select(group="men").gaps, "roc_auc")


def test_the_largest_gap_is_seen_from_above_and_judged_with_all_others():
    gaps = evaluate([*"abcdefghij"], RNG.choice([*"abcdefghij"], N)).gaps("recall", at=0.5)
    assert (gaps.compared, len(gaps.pairs)) == (45, 45)
    widest = gaps.largest
    assert widest.difference.value == max(abs(each.difference.value) for each in gaps.pairs) > 0
    assert widest.first.value - widest.second.value == pytest.approx(widest.difference.value)
    assert widest.joint.low < widest.difference.low < widest.difference.high < widest.joint.high
    assert not gaps.standing_out
    (men_above,) = [RESULT.gaps("recall", at=0.5).largest]
    assert (men_above.group, men_above.against) == ("men", "women")
    assert men_above.stands_out


def test_groups_that_noise_hides_are_told_as_such():
    group = np.where(np.arange(N) < 8, "few", SEX)
    axis = fg.Axis.uniform(16, outside="clip")
    result = evaluate(
        ["women", "men", "few"], group, axis=axis, privacy=fg.DistributedDP(1.0), seed=3
    )
    gaps = result.gaps("recall", at=0.5)
    assert gaps.groups["few"] is None
    assert gaps.withheld["few"].startswith("withheld: the noise hides the number of")
    assert (pairs(gaps), gaps.compared) == ([("women", "men")], 3)  # planned, so that none is free
    assert "few          withheld: the noise hides" in str(gaps)
    assert result.select(group="few").withheld.startswith("no signal")
    frame = result.at_level(0.9).to_frame()
    withheld = frame[frame["metric"] == "withheld"]
    assert withheld["group"].tolist() == ["few"]
    assert withheld["caution"].tolist()[0].startswith("no signal")
    assert {"women", "men"} <= set(frame["group"])
    at = result.to_frame(thresholds=[0.5])
    assert list(at.columns[:3]) == ["group", "threshold", "metric"]


def test_under_noise_intervals_are_wider():
    axis = fg.Axis.uniform(16, outside="clip")
    exact, noisy = (
        evaluate(axis=axis, privacy=privacy, seed=1).gaps("recall", at=0.5).pairs[0].difference
        for privacy in (fg.SecureAggregation(), fg.DistributedDP(0.2))
    )
    assert noisy.parts["noise"] > 0
    assert "noise" not in exact.parts
    assert noisy.high - noisy.low > exact.high - exact.low


def test_gaps_print_and_become_frames():
    gaps = RESULT.gaps("recall", at=0.5)
    title, *lines = str(gaps).splitlines()
    assert title == "recall at 0.5, by group"
    assert lines[0].startswith("women        0.")
    assert lines[3].startswith("women - men  -0.")
    assert "The largest gap, men - women, stands out: 0." in lines[-1]
    assert "all 3 gaps together" in str(evaluate(["women", "men", "unknown"]).gaps("roc_auc"))
    assert repr(gaps) == "<Gaps of recall at 0.5: 3 groups, 1 gaps>"
    assert "<caption" in gaps._repr_html_()
    assert "women - men" in gaps._repr_html_()
    frame = gaps.to_frame(backend="pyarrow").to_pylist()[0]
    (pair,) = gaps.pairs
    assert frame["group"] == "women"
    assert (frame["value"], frame["low"]) == (pair.difference.value, pair.difference.low)
    assert frame["joint_high"] == pair.joint.high


def test_frames_of_slices_have_a_column_for_what_there_is():
    grouped = evaluate(axis=fg.Axis.uniform(20))
    assert list(grouped.to_frame().columns[:2]) == ["group", "metric"]
    assert list(grouped.select(group="men").to_frame().columns[:2]) == ["group", "metric"]
    plain = fg.evaluate({"a": (Y, S)}, axis=fg.Axis.uniform(20))
    assert plain.to_frame().columns[0] == "metric"
    both = fg.evaluate(
        {"a": fg.Examples(Y, {"new": S, "old": S}, group=SEX)},
        task=fg.BinaryTask(groups={"sex": ["women", "men"]}, models=("new", "old")),
        axis=fg.Axis.uniform(4),
    )
    assert list(both.to_frame().columns[:3]) == ["model", "group", "metric"]
    assert len(both.slices) == 8


NAN, INF = float("nan"), float("inf")


OF_DISTRIBUTED = {
    r"polya.*takes no delta.*skellam": [{"delta": delta} for delta in (1e-6, 0.0, 0.5)],
    "delta": [
        {"delta": delta, "noise": noise}
        for noise in ("skellam", "discrete-gaussian")
        for delta in (None, 0, 0.0, 1, 1.0, -1e-6, 2.0, NAN, INF, "1e-6", True)
    ],
    "noise must be one of .*discrete-gaussian": [{"noise": "laplace"}, {"noise": None}],
    "unit must be one of .*subject": [{"unit": "row"}, {"unit": 1}],
    "neighbours must be one of .*replace-one": [
        {"neighbours": given} for given in ("zero-out", ["add-remove"])
    ],
    "max_per_unit": [
        {"unit": unit, "max_per_unit": cap}
        for unit in ("subject", "client")
        for cap in (0, -1, 10**30, True, 1.0, 2.5, "2", None, NAN)
    ],
    "one row": [{"max_per_unit": 2}],
}
CLIPPING = Axis.uniform(4, outside="clip")


def test_what_promises_nothing_is_refused():
    for make, told in (
        *(
            (lambda e=e: DistributedDP(e), "epsilon")
            for e in (0, 0.0, -1, -0.5, NAN, INF, -INF, "1", None, [1.0], 1j, True)
        ),
        *(
            (lambda options=options: DistributedDP(1.0, **options), told)
            for told, all_of_it in OF_DISTRIBUTED.items()
            for options in all_of_it
        ),
        *(
            (lambda name=name, value=value: Cohort(**{name: value}), name)
            for name in ("min_survivors", "max_colluding")
            for value in (1.5, "3", True, None, -1)
        ),
        (lambda: Cohort(min_survivors=0), "min_survivors"),
        (lambda: plan_for(DistributedDP(1.0), bins=4, outside="refuse"), "leak"),
        (lambda: DistributedDP(1.0).state(None, draws=[], claim="simulated"), "noise comes from a"),
        *(
            (
                lambda model=model: EvaluationPlan.for_reports(CLIPPING, model),
                f"{model.kind} sends no reports",
            )
            for model in (SecureAggregation(), DistributedDP(1.0))
        ),
    ):
        refused(PlanError, told, make)


def test_usual_parameters_pass_quietly_and_an_absurd_epsilon_warns_at_the_caller():
    for epsilon in (1, 1e-3, 20, np.float64(0.5)):
        assert DistributedDP(epsilon).epsilon == epsilon
    for noise in ("skellam", "discrete-gaussian"):
        assert DistributedDP(1.0, 1e-6, noise=noise).delta == 1e-6
    assert DistributedDP(1.0, max_per_unit=1).max_per_unit == 1
    assert Cohort(np.int64(4), np.int64(0)) == Cohort(min_survivors=4, max_colluding=0)
    for epsilon in (20.1, 50.0, 1e6):
        with pytest.warns(PrivacyWarning, match="protects nobody") as caught:
            DistributedDP(epsilon)
        assert len(caught) == 1
        assert caught[0].filename == __file__


def test_specs_are_frozen_strict_and_travel_in_plans():
    spec = DistributedDP(0.3)
    with pytest.raises(AttributeError):
        spec.epsilon = 2.0
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"model": "distributed-dp", "epsilon": 1.0, "seed": 3}, DistributedDP)
    for spec in (
        DistributedDP(0.3),
        DistributedDP(1.0, 1e-7, noise="skellam", unit="client", max_per_unit=9),
        DistributedDP(1.0, unit="subject", max_per_unit=2, neighbours="replace-one"),
    ):
        plan = plan_for(spec, bins=4)
        assert EvaluationPlan.from_bytes(plan.to_bytes()).privacy == spec
        assert EvaluationPlan.from_toml(plan.to_toml()).privacy == spec
    data = plan_for(DistributedDP(0.3), bins=4).to_bytes()
    assert b'"epsilon":0.3' in data
    for bad in (b"0.0", b"-1.0", b'"x"'):
        with pytest.raises(FedgaugeError):
            EvaluationPlan.from_bytes(data.replace(b'"epsilon":0.3', b'"epsilon":' + bad))


def node_counts(tree, rows):
    """All counts that are sent for some rows (label, leaf), by the code that sends them."""
    bins = math.prod(tree)
    histogram = ScoreHistogram(Axis.uniform(bins))
    if rows:
        labels, leaves = zip(*rows, strict=True)
        histogram.update(labels, (np.array(leaves) + 0.5) / bins)
    return np.concatenate([level.ravel() for level in histogram.levels(tree)])


@pytest.mark.parametrize("tree", [(2,), (3,), (2, 2), (4, 2), (2, 2, 2)])
@pytest.mark.parametrize(("unit", "cap"), [("example", 1), ("subject", 2), ("client", 3)])
def test_sensitivity_is_the_largest_change_of_all_counts(tree, unit, cap):
    rows = list(itertools.product((0, 1), range(math.prod(tree))))
    if cap == 3:
        rows = rows[:3] + rows[-3:]
    units = [
        node_counts(tree, held)
        for size in range(cap + 1)
        for held in itertools.combinations_with_replacement(rows, size)
    ]
    for neighbours, others in (("add-remove", [units[0]]), ("replace-one", units)):
        changes = np.array(units)[:, None] - np.array(others)
        spec = DistributedDP(1.0, unit=unit, max_per_unit=cap, neighbours=neighbours)
        sensitivity = spec.sensitivity(levels=len(tree))
        assert sensitivity.l1 == np.abs(changes).sum(axis=2).max()
        most = np.sqrt((changes**2).sum(axis=2).max())
        assert sensitivity.l2 == pytest.approx(most, rel=1e-12)
        assert spec.level_sensitivity * len(tree) == sensitivity.l1


EVERY_MODEL = (
    SecureAggregation(),
    DistributedDP(1.0),
    DistributedDP(1.0, delta=1e-6, noise="skellam"),
    LocalDP(1.0),
    LocalDP(1.0, unit="label"),
)


@pytest.mark.parametrize("model", EVERY_MODEL, ids=repr)
def test_a_model_that_says_it_adds_noise_does_and_claims_epsilon_for_it(model):
    assert {type(each) for each in EVERY_MODEL} == set(get_args(AnyPrivacyModel))
    cohort = Cohort(5) if model.needs_cohort else None
    task = LabelTask() if model.flips_labels else None
    plan = EvaluationPlan.under(model, Axis.uniform(8, outside="clip"), cohort=cohort, task=task)
    plan.check_promise()
    variances = plan.noise_variances(5)
    if model.flips_labels:
        variances = plan.node_variances(np.full((2, 8), 5.0))[0].ravel()
    assert all(variance > 0 for variance in variances)
    assert bool(len(variances)) == plan.is_noisy == model.adds_noise
    stated = plan.statement("enforced")
    assert stated.model == model.name
    assert stated.epsilon == (model.budget.epsilon if model.adds_noise else None)
    assert (stated.epsilon is None) == (model.budget is None) == (not model.adds_noise)
    assert (stated.cohort is None) == (not model.needs_cohort)
    assert model.sends_reports == plan.final.sends_reports
    assert model.flips_labels == plan.final.flips_labels
    for words in (model.title, model.promise, model.unprotected):
        assert words
        assert not words.endswith(" ")


def test_a_model_that_forgets_its_noise_cannot_be_planned_with():
    class Forgetful(PrivacyModel, frozen=True, tag="forgetful"):
        adds_noise = True
        sends_reports = False
        kind = "forgetful"

    with pytest.raises(NotImplementedError):
        EvaluationPlan.under(Forgetful(), Axis.uniform(8, outside="clip"), cohort=Cohort(5))
