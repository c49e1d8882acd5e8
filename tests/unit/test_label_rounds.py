"""Labels flipped at random: what a plan says of them, and the evaluation that is made of them."""

import json
import os
import stat
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pytest
from refusals import refused
from rows import drawn, parties
from sklearn.metrics import average_precision_score, roc_auc_score

import fedgauge as fg
from fedgauge.estimation.counts import Released, counts_of
from fedgauge.plan import HistogramRound, ReportRound
from fedgauge.plan.explain import explain
from fedgauge.plan.task import BinaryTask, LabelTask
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.privacy.local import debias, flip, variances
from fedgauge.results.evaluation import Evaluation
from fedgauge.vertical.flips import Flips, count_by_bin

LABEL = fg.LocalDP(1.0, unit="label")
AXIS = fg.Axis.from_values(range(16), outside="clip")
PLAN = fg.EvaluationPlan.for_flips(AXIS, LABEL)


def evaluate(labels, scores, epsilon=1.0, seed=1, **options):
    privacy = fg.LocalDP(epsilon, unit="label")
    ids = np.arange(len(labels))
    return fg.evaluate_vertical(
        (ids, scores), parties(labels), privacy=privacy, seed=seed, **options
    )


def test_only_local_dp_of_labels_flips_them_and_only_apart_from_scores():
    for options, told in (
        *(({"unit": u}, "of example, label") for u in ("row", None, 1, "subject", "client")),
        ({"oracle": "hadamard", "unit": "label"}, r"has no oracle\. Leave oracle out"),
    ):
        refused(fg.PlanError, told, fg.LocalDP, 1.0, **options)
    for model in (fg.SecureAggregation(), fg.DistributedDP(1.0), fg.LocalDP(1.0)):
        assert not model.flips_labels
        with pytest.raises(fg.PlanError, match="only LocalDP with unit='label' flips labels"):
            fg.EvaluationPlan.for_flips(AXIS, model)
    with pytest.raises(fg.PlanError, match="goes with a task of labels"):
        fg.evaluate({"a": ([0, 1], [0.2, 0.7])}, privacy=LABEL)
    refused(fg.PlanError, "nobody sums securely", fg.evaluate, {"a": ([0, 1], [2, 7])}, PLAN)


def test_what_may_be_claimed_and_what_an_officer_reads():
    stated = PLAN.statement("enforced", ("positive_rate 0.2",))
    assert (stated.unit, stated.neighbours, stated.epsilon, stated.delta) == ("label", "flip", 1, 0)
    assert (stated.model, stated.cohort) == ("local-dp", None)
    assert stated.public_inputs == ("positive_rate 0.2",)
    told = " ".join(explain(PLAN).split())
    assert "16 whole numbers" in told
    assert "epsilon 1 for the label of one row" in told
    assert "2.72-fold if the label were the other one" in told
    assert "flipping again costs epsilon again" in told
    assert "does not rest on others" in told
    assert "50% at most 73.2%" in told
    assert "its label as flipped" in told
    assert "report" not in told


def test_plans_survive_the_journey_and_those_for_reports_have_the_bytes_they_had():
    assert fg.EvaluationPlan.from_bytes(PLAN.to_bytes()) == PLAN
    assert fg.EvaluationPlan.from_toml(PLAN.to_toml()) == PLAN
    assert fg.EvaluationPlan.under(LABEL, AXIS, task=LabelTask()) == PLAN
    PLAN.check_promise()
    assert (PLAN.numbers, PLAN.bytes_per_client, PLAN.cohort) == (16, 128, None)
    assert PLAN.is_noisy
    assert not PLAN.final.sends_reports
    assert PLAN.noise_variances(5) == ()
    assert msgspec.json.encode(fg.LocalDP(1.0)) == (
        b'{"model":"local-dp","epsilon":1.0,"oracle":"oue"}'
    )
    assert fg.LocalDP(1.0).unit == "example"
    computed = fg.LocalDP(1.0, unit="".join("example"))
    assert msgspec.json.encode(computed) == msgspec.json.encode(fg.LocalDP(1.0))


def replaced(**options):
    return lambda: msgspec.structs.replace(PLAN, **options)


REFUSED = {
    "a tree": (replaced(tree=(4, 4)), "a tree over them gains nothing"),
    "a cohort": (replaced(cohort=fg.Cohort(3)), "needs no cohort"),
    "examples": (replaced(task=BinaryTask()), "goes with a task of labels"),
    "an axis that refuses": (
        replaced(axis=fg.Axis.from_values(range(16), outside="refuse")),
        "refuse scores",
    ),
    "counts": (replaced(rounds=(HistogramRound((16,)),)), "this one mixes them"),
    "reports": (replaced(rounds=(ReportRound((16,), (5,)),)), "this one mixes them"),
    "min_cell": (replaced(min_cell=5), "noise hides small cells"),
    "others' flips": (
        replaced(privacy=fg.DistributedDP(1.0, unit="label", neighbours="flip")),
        "this one mixes them",
    ),
    "a sum": (lambda: PLAN.summed, "which nobody sums securely"),
    "a cohort of a sum": (lambda: PLAN.terms.sum_cohort, "which nobody sums securely"),
    "for_histogram": (
        lambda: fg.EvaluationPlan.for_histogram(AXIS, fg.Cohort(3), privacy=LABEL),
        "use EvaluationPlan.for_flips",
    ),
    "for_reports": (lambda: fg.EvaluationPlan.for_reports(AXIS, LABEL), "EvaluationPlan.for_flips"),
    "under a cohort": (
        lambda: fg.EvaluationPlan.under(LABEL, AXIS, cohort=fg.Cohort(3)),
        "every flipped label is private by itself: leave out cohort",
    ),
    "score sums": (
        lambda: fg.EvaluationPlan.under(LABEL, AXIS, score_sums=True),
        "flipped labels carry no score sums",
    ),
    "flips of a sum": (
        lambda: fg.EvaluationPlan.for_histogram(AXIS, fg.Cohort(3)).flipped,
        "is not for flipped labels",
    ),
}


@pytest.mark.parametrize(("make", "told"), REFUSED.values(), ids=REFUSED)
def test_what_no_plan_of_flips_is(make, told):
    refused(fg.PlanError, told, make)


def test_counts_are_debiased_and_have_the_noise_of_their_labels():
    """Every way to flip three labels, weighed by its chance, adds up to the labels."""
    chance = PLAN.flipped.chance
    rho = chance / 2**64
    labels, mean, square = np.array([1, 0, 1]), 0.0, 0.0
    for flips in np.ndindex(2, 2, 2):
        weight = np.prod(np.where(flips, rho, 1 - rho))
        found = debias(np.array([(labels ^ flips).sum()]), np.array([3]), chance)[0]
        mean, square = mean + weight * found, square + weight * found**2
    assert mean == pytest.approx(2.0, abs=1e-12)
    assert square - mean**2 == pytest.approx(variances(np.array([3.0]), chance)[0], rel=1e-12)
    totals = np.arange(16)
    released = Released(AXIS, np.array([totals - 0.25 * totals, 0.25 * totals]), 4)
    pooled = counts_of(PLAN, released, PLAN.task.slices[0])
    rho = PLAN.flipped.chance / 2**64
    expected = rho * (1 - rho) / (1 - 2 * rho) ** 2 * totals
    assert pooled.noisy
    assert pooled.bin_variances == pytest.approx(expected)
    assert pooled.leaf_variances == pytest.approx(np.array([expected, expected]))
    assert pooled.deviation_of_totals == pytest.approx(np.sqrt(expected.sum()))
    chance = 2**63 - 2**40
    assert debias(np.array([1]), np.array([0]), chance)[0] == 2.0**23
    told, bins = np.array([True, False, True, True]), np.array([0, 0, 2, 2])
    assert count_by_bin(told, bins, 4).tolist() == [1, 0, 2, 0]  # what is sent


@pytest.mark.parametrize("positive", [None, "ill"])
def test_without_flips_few_values_are_exact(positive):
    labels, scores = drawn(5000, decimals=1)
    given = labels if positive is None else np.where(labels, "ill", "well")
    with pytest.warns(fg.PrivacyWarning):
        result = evaluate(given, scores, epsilon=60.0, positive=positive)
    assert result.roc_auc.value == pytest.approx(roc_auc_score(labels, scores), abs=1e-9)
    assert result.average_precision.value == pytest.approx(
        average_precision_score(labels, scores), abs=1e-9
    )


def test_a_seed_flips_the_same_labels_for_every_model():
    """What two models are told of the same labels adds up to the same positives.

    Without a seed four totals are alike with a chance below 1e-2 each: all of them below 1e-6.
    """
    labels, scores = drawn(4000)

    def total(scores=scores, seed=1):
        return evaluate(labels, scores, seed=seed).released.counts[1].sum()

    assert total() == pytest.approx(total(1 - scores**2), rel=1e-12)
    assert total() != pytest.approx(total(seed=2), rel=1e-6)
    assert len({total(seed=None) for _ in range(5)}) > 1


def test_few_labels_are_hidden_and_the_verdict_says_what_is_promised():
    told = str(evaluate(*drawn(5000)))
    assert "label-DP, one label flipped: epsilon 1; " in told
    assert "; 5,000 examples, about " in told
    assert "positives in 64 bins that the scorer chose" in told
    labels, _ = drawn(5000)
    assert "positives in 1 bin that the scorer chose" in str(evaluate(labels, np.ones(5000)))
    labels, scores = drawn(100)
    result = evaluate(labels, scores, epsilon=0.3)
    assert result.pooled.hidden is not None
    assert "noise hides" in str(result)
    with pytest.raises(fg.NoSignal):
        _ = result.roc_auc
    labels, scores = drawn(400)
    result = evaluate(labels, scores, epsilon=1.0)
    assert result.pooled.hidden is None
    assert result.pooled.faint is not None
    rows = drawn(20_000)  # the AUC alone, and a number of bins
    assert evaluate(*rows, only="roc_auc").roc_auc == evaluate(*rows).roc_auc
    assert evaluate(*drawn(5000), tree=(16,)).released.axis.bins == 16


def test_counts_that_no_labels_have_are_cautioned_of():
    totals = np.full(16, 1000)
    chance = PLAN.flipped.chance

    def caution(told):
        positives = debias(told, totals, chance)
        released = Released(AXIS, np.array([totals - positives, positives]), 4)
        return Evaluation(
            PLAN, PLAN.statement("simulated"), released, estimator=fg.Aligned()
        ).caution

    honest = flip(np.arange(16_000) % 16 > 8, chance, SimulatedKeystream(1)).reshape(-1, 16)
    assert caution(honest.sum(axis=0)) is None
    for count in (0, 1000):
        told = honest.sum(axis=0)
        told[0] = count
        assert "flips explain" in caution(told)


def test_options_that_mean_nothing_here_and_labels_that_cannot_be_read_are_told():
    labels, scores = drawn(1000)
    for options, told in (
        ({"cohort": fg.Cohort(4)}, "leave out cohort"),
        ({"tree": (8, 8)}, "a tree over them gains nothing"),
        ({"summation": "secure"}, "not summed securely"),
        ({"mechanism": "adaptive", "only": "roc_auc"}, "needs DistributedDP"),
    ):
        refused(fg.PlanError, told, evaluate, labels, scores, **options)
    labels[5] = 7
    with pytest.raises(fg.LabelError, match=r"party 'party 1': 1 of 250 labels are neither"):
        evaluate(labels, scores)


ROWS = 400
IDS = np.arange(ROWS)
LABELS = np.arange(ROWS) % 3 == 0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "labels.flips"


def kept(path, ids=IDS, labels=LABELS, epsilon=1.0):
    return Flips.kept(path, ids, labels, epsilon=epsilon)


def test_asked_again_or_at_the_same_time_flips_are_the_same(path):
    first, again = kept(path), kept(path)
    assert np.array_equal(first.told, again.told)
    assert first.digest == again.digest
    assert (first.epsilon, first.told.dtype, first.told.shape) == (1.0, bool, (ROWS,))
    order = np.random.default_rng(0).permutation(ROWS)
    assert np.array_equal(kept(path, IDS[order], LABELS[order]).told, first.told[order])
    assert np.array_equal(kept(path, [str(i) for i in IDS]).told, first.told)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: kept(path), range(8)))
    assert len({flips.digest for flips in found}) == 1
    assert len({flips.told.tobytes() for flips in found}) == 1


def test_each_file_flips_anew_and_a_large_epsilon_flips_nothing(tmp_path, path):
    """Alike with a chance of (1 - 2 rho (1 - rho))^400, below 10^-80."""
    first, other = kept(tmp_path / "a"), kept(tmp_path / "b")
    assert not np.array_equal(first.told, other.told)
    assert first.digest != other.digest
    with pytest.warns(fg.PrivacyWarning):
        flips = kept(path, epsilon=50.0)
    assert np.array_equal(flips.told, LABELS)


def test_a_positive_label_is_what_it_means_and_another_epsilon_is_refused(path):
    first = Flips.kept(path, IDS, LABELS, epsilon=1.0)
    for positive in (1, True, 1.0, "1", " true"):
        again = Flips.kept(path, IDS, LABELS, epsilon=1.0, positive=positive)
        assert again.digest == first.digest
    for positive in (0, 2, 1.5, "yes", "int 1", "9" * 400, "nan", "inf"):
        with pytest.raises(fg.SiteError, match="or of another positive label"):
            Flips.kept(path, IDS, LABELS, epsilon=1.0, positive=positive)
    for epsilon in (0.5, 1.0000001, 2.0):
        refused(fg.SiteError, r"flips of epsilon 1, .* Ask for 1\.", kept, path, epsilon=epsilon)


def test_only_the_owner_can_read_and_change_the_file_and_a_missing_folder_is_told(path, tmp_path):
    before = os.umask(0)
    try:
        kept(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for mode in (0o640, 0o604, 0o620, 0o602, 0o644):
        path.chmod(mode)
        refused(fg.SiteError, "chmod 600", kept, path)
    path.chmod(0o600)
    kept(path)
    with pytest.raises(fg.SiteError, match=r"cannot keep flips in .*No such file"):
        kept(tmp_path / "none" / "labels.flips")


OTHER_ROWS = {
    "one more": (IDS, LABELS, np.arange(ROWS + 1), np.append(LABELS, True)),
    "one less": (IDS, LABELS, IDS[1:], LABELS[1:]),
    "another": (IDS, LABELS, np.append(IDS[1:], 9999), np.append(LABELS[1:], LABELS[0])),
    "none": (IDS, LABELS, IDS[:0], LABELS[:0]),
    "run together": (["a", "bc"], LABELS[:2], ["ab", "c"], LABELS[:2]),
    "words": (["patient-17", "patient-18"], LABELS[:2], ["patient-17", "patient-19"], LABELS[:2]),
}


@pytest.mark.parametrize("name", OTHER_ROWS)
def test_other_ids_are_refused_unnamed_with_what_they_cost(path, name):
    ids, labels, *other = OTHER_ROWS[name]
    kept(path, ids, labels)
    told = r"of other ids.*another file: that costs epsilon again"
    with pytest.raises(fg.SiteError, match=told) as caught:
        kept(path, *other)
    assert "patient" not in str(caught.value)


@pytest.mark.parametrize("field", ["format", "epsilon", "key", "ids", "labels", "bits", "seal"])
def test_a_changed_file_is_refused(path, field):
    kept(path)
    content = json.loads(path.read_bytes())
    content[field] = 2.0 if field == "epsilon" else "AAAA" + content[field][4:]
    path.write_text(json.dumps(content))
    refused(fg.SiteError, r"was changed\. Restore it from a copy", kept, path)


@pytest.mark.parametrize(
    "content",
    [lambda _: b"", lambda _: b"{}", lambda _: b"\xff", lambda _: b"[1]", lambda f: f[:-20]],
)
def test_what_is_no_file_of_flips_is_refused_and_left_alone(path, content):
    kept(path)
    data = content(path.read_bytes())
    path.write_bytes(data)
    refused(fg.SiteError, "does not keep flips", kept, path)
    assert path.read_bytes() == data


def test_rows_that_cannot_be_flipped(path):
    for ids, labels, told in (
        ([1, 2, 2], [True, False, True], "1 ids come twice"),
        ([1, None, 3], [True, False, True], "1 ids are missing"),
        ([1, "a", 3], [True, False, True], "mix kinds"),
        ([1, 2, 3], [1, 0, 1], "truth values"),
        ([1, 2, 3], [True, False], "one for each id"),
    ):
        refused(fg.InputError, told, kept, path, ids, labels)
        assert not path.exists()
    for epsilon in (0, -1.0, 1e-9, float("nan"), "1"):
        refused(fg.PlanError, "epsilon", kept, path, epsilon=epsilon)
