"""Values of likely counts: bounds and intervals hold them, and all ways to ask for one agree."""

import functools

import numpy as np
import pytest

import fedgauge as fg
from fedgauge.histograms.calibrator import Beta, Steps
from fedgauge.metrics.estimate import metrics_of

ROWS = 1500
SITES = 3
RISING = fg.Calibrator("beta", Beta(1.4, 0.8, 0.2))
STEPS = fg.Calibrator("binning", Steps([0.21, 0.5, 0.8], [0.1, 0.3, 0.6, 0.9]))
# Errors of calibration: less what chance adds, so that bounds need not hold them.
OF_GROUPS = {row.name for row in metrics_of(fg.Evaluation) if "calibration" in row.name}


def drawn(seed):
    """Labels, scores of two models and groups."""
    rng = np.random.default_rng(seed)
    y = (rng.random(ROWS) < 0.3).astype(int)
    scores = 1 / (1 + np.exp(-rng.normal(1.8 * y - 1.2, 1.2)))
    other = 1 / (1 + np.exp(-rng.normal(1.2 * y - 1.0, 1.4)))
    return y, scores, other, np.where(rng.random(ROWS) < 0.4, "f", "m")


def binary(**asked):
    return fg.evaluate({f"s{i}": drawn(i)[:2] for i in range(SITES)}, seed=3, **asked)


def grouped(**asked):
    rows = {f"s{i}": drawn(i) for i in range(SITES)}
    clients = {name: fg.Examples(y, s, group=g) for name, (y, s, _, g) in rows.items()}
    return fg.evaluate(clients, groups=["f", "m"], seed=3, **asked)


def models(**asked):
    rows = {f"s{i}": drawn(i) for i in range(SITES)}
    clients = {name: fg.Examples(y, {"a": s, "b": t}) for name, (y, s, t, _) in rows.items()}
    return fg.evaluate(clients, models=["a", "b"], seed=3, **asked)


def classes(**asked):
    clients = {}
    for site in range(SITES):
        rng = np.random.default_rng(site)
        truth = rng.integers(0, 3, ROWS)
        raw = np.exp(rng.normal(0, 1, (ROWS, 3)) + 1.2 * np.eye(3)[truth])
        clients[f"s{site}"] = fg.Examples(truth, raw / raw.sum(axis=1, keepdims=True))
    return fg.evaluate(clients, task=fg.MulticlassTask(labels=[0, 1, 2]), seed=3, **asked)


def labels_apart(privacy):
    y, scores, *_ = drawn(5)
    parties = {str(k): {i: int(y[i]) for i in range(k, ROWS, 3)} for k in range(3)}
    return fg.evaluate_vertical(dict(enumerate(scores)), parties, privacy=privacy, seed=3)


DDP, LDP = fg.DistributedDP(1.0), fg.LocalDP(4.0)
MADE = {
    "flat": lambda: binary(privacy=DDP, tree=(64,)),
    "tree": lambda: binary(privacy=DDP, tree=(8, 8)),
    "little signal": lambda: binary(privacy=fg.DistributedDP(0.1), tree=(16,)),
    "sums": lambda: binary(privacy=fg.DistributedDP(3.0), tree=(16,), score_sums=True),
    "two rounds": lambda: binary(privacy=DDP, axis="two-round"),
    "local": lambda: binary(privacy=LDP, tree=(16,)),
    "local tree": lambda: binary(privacy=LDP, tree=(4, 4)),
    "labels": lambda: labels_apart(fg.DistributedDP(1.0, unit="label", neighbours="flip")),
    "flipped labels": lambda: labels_apart(fg.LocalDP(2.0, unit="label")),
    "groups": lambda: grouped(privacy=DDP, tree=(32,)),
    "local groups": lambda: grouped(privacy=fg.LocalDP(6.0), tree=(8,)),
    "models": lambda: models(privacy=fg.DistributedDP(2.0), tree=(16,)),
    "classes": lambda: classes(privacy=DDP, tree=(16,)),
    "a rising map": lambda: made("flat").with_calibrator(RISING),
    "a map of steps": lambda: made("flat").with_calibrator(STEPS),
    "labels and a map": lambda: made("labels").with_calibrator(STEPS),
}


@functools.cache
def made(kind):
    return MADE[kind]()


def shown(kind):
    """The slices of which something is told."""
    return [part for part in made(kind).slices if part.withheld is None]


def told(ask):
    """An answer in a list; none where the metric is not defined."""
    try:
        return [ask()]
    except fg.UndefinedMetric:
        return []


def estimates(result):
    """Every estimate of a result of one slice, with its name."""
    thresholds = [*result.pooled.axis.thresholds[::5].tolist(), 0.335, 0.5, 0.871]
    for row in metrics_of(fg.Evaluation):
        yield from ((row.name, each) for each in told(lambda row=row: getattr(result, row.name)))
    yield from (("partial_auc", each) for each in told(lambda: result.partial_auc(0.2)))
    for threshold in thresholds:
        at = result.at_threshold(threshold)
        yield from ((f"{name} at {threshold}", e) for name, e in at.as_dict().items() if e)
        yield from zip(at.confusion_matrix._fields, at.confusion_matrix, strict=True)
    for threshold in (0.2, 0.5):
        yield from (("benefit", e) for e in told(lambda t=threshold: result.net_benefit(t)))


def hold(name, estimate):
    low, high = estimate.bounds
    if name not in OF_GROUPS:
        assert low <= estimate.value <= high, name
    if estimate.interval is not None:
        assert estimate.low <= estimate.value <= estimate.high, name


@pytest.mark.parametrize("kind", MADE)
def test_bounds_and_intervals_hold_every_value(kind):
    checked = 0
    for part in shown(kind):
        assert part.is_shrunk
        for name, estimate in estimates(part):
            hold(name, estimate)
            checked += 1
    assert checked > 50


OF_LINE = {"calibration_slope", "calibration_intercept"}  # with intervals around their own value


@pytest.mark.parametrize("kind", MADE)
def test_intervals_are_those_of_counts_as_noise_left_them_and_no_wider_than_that_takes(kind):
    for part in shown(kind):
        bare = part.with_estimator(fg.Aligned(shrink=False))
        for (name, one), (other, plain) in zip(estimates(part), estimates(bare), strict=True):
            assert name == other
            ends = min(plain.bounds[0], one.value), max(plain.bounds[1], one.value)
            if name not in OF_GROUPS:
                assert one.bounds == pytest.approx(ends, abs=1e-9), name
            if plain.interval is not None and name not in OF_LINE:
                ends = min(plain.low, one.value), max(plain.high, one.value)
                assert tuple(one.interval) == pytest.approx(ends, abs=1e-9), name
                assert one.unshrunk.value == pytest.approx(plain.value, abs=1e-12), name


@pytest.mark.parametrize("kind", MADE)
def test_curves_thresholds_and_tables_agree_at_edges(kind):
    for part in shown(kind):
        roc, pr = part.roc_curve(), part.pr_curve()
        for fpr, tpr, threshold in list(zip(*roc, strict=True))[1::3]:
            at = part.at_threshold(threshold)
            if not at.on_edge:
                continue
            assert (at.fpr.value, at.recall.value) == pytest.approx((fpr, tpr), abs=1e-9)
        for precision, recall, threshold in list(zip(*pr, strict=False))[::3]:
            at = part.at_threshold(threshold)
            for value in told(lambda at=at: at.precision) if at.on_edge else ():
                expected = pytest.approx((precision, recall), abs=1e-9)
                assert (value.value, at.recall.value) == expected
        chosen = part.threshold_for(fpr=0.2)
        assert chosen.fpr.value <= 0.2 + 1e-9
        if chosen.on_edge:
            assert chosen.recall.value == pytest.approx(np.max(roc.tpr[roc.fpr <= 0.2 + 1e-9]))


@pytest.mark.parametrize("kind", [kind for kind in MADE if "map" not in kind])
def test_shrinking_keeps_the_numbers_of_examples(kind):
    for part in shown(kind):
        pooled = part.pooled
        np.testing.assert_allclose(pooled.likely.sum(axis=1), pooled.counts.sum(axis=1))
        assert pooled.likely.min() >= 0
        if "labels" in kind:
            np.testing.assert_allclose(pooled.likely.sum(axis=0), pooled.totals)


@pytest.mark.parametrize("band", ["roc", "pr", "det", "prg", "gain"])
@pytest.mark.parametrize("kind", ["flat", "local tree", "labels", "a map of steps"])
def test_bands_hold_the_curve(kind, band):
    result = made(kind)
    found = getattr(result, f"{band}_band")("pointwise")
    drawn_ = getattr(result, f"{band}_curve")()(found.x)
    assert np.all(found.low <= drawn_ + 1e-9)
    assert np.all(drawn_ <= found.high + 1e-9)


def test_gaps_are_differences_of_the_values_shown():
    result = made("groups")
    for metric, at in (("roc_auc", None), ("average_precision", None), ("recall", 0.5)):
        (pair,) = result.gaps(metric, at=at).pairs
        assert pair.difference.value == pair.first.value - pair.second.value
        hold(metric, pair.difference)
        assert pair.joint.low <= pair.difference.value <= pair.joint.high
        one = result.select(group=pair.group)
        asked = one if at is None else one.at_threshold(at)
        assert getattr(asked, metric) == pair.first


@pytest.mark.parametrize("at", [None, 0.5])
@pytest.mark.parametrize("average", ["macro", "weighted", "micro"])
def test_an_average_is_of_the_values_shown(average, at):
    result = made("classes")
    metric = "roc_auc" if at is None else "recall"
    found = result.macro(metric, average=average, at=at)
    bare = result.with_estimator(fg.Aligned(shrink=False)).macro(metric, average=average, at=at)
    hold(metric, found)
    assert found.unshrunk == bare
    if average == "macro":
        parts = [part if at is None else part.at_threshold(at) for part in result.slices]
        assert found.value == pytest.approx(np.mean([getattr(p, metric).value for p in parts]))


def test_a_comparison_is_of_the_values_shown():
    result = made("models")
    one, other = (result.select(model=name) for name in ("a", "b"))
    found = result.compare("a", "b")
    bare = result.with_estimator(fg.Aligned(shrink=False)).compare("a", "b")
    for metric in ("roc_auc", "average_precision", "brier_score"):
        hold(metric, getattr(found, metric))
        assert getattr(found, metric).unshrunk == getattr(bare, metric)
    assert found.roc_auc.value == one.roc_auc.value - other.roc_auc.value
    first, second = (each.at_threshold(0.5).recall.value for each in (one, other))
    assert found.at_threshold(0.5).recall.value == first - second


def test_a_difference_of_results_is_of_the_values_shown():
    flat, tree = made("flat"), made("tree")
    found = fg.diff(flat, tree)
    assert found.roc_auc.value == flat.roc_auc.value - tree.roc_auc.value
    plain = fg.diff(*(each.with_estimator(fg.Aligned(shrink=False)) for each in (flat, tree)))
    assert found.roc_auc.unshrunk == plain.roc_auc
    hold("roc_auc", found.roc_auc)


def test_a_map_that_always_rises_leaves_ranks_as_they_were():
    plain, after = made("flat"), made("a rising map")
    assert after.roc_auc == plain.roc_auc
    assert after.average_precision.value == plain.average_precision.value
    np.testing.assert_array_equal(after.roc_curve().tpr, plain.roc_curve().tpr)
    assert after.brier_score.value != plain.brier_score.value


def test_a_decision_curve_is_of_the_benefits_at_its_thresholds():
    result = made("flat")
    curve = result.decision_curve([0.25, 0.33])
    for number, threshold in enumerate(curve.thresholds):
        found = result.net_benefit(float(threshold))
        assert (curve.net_benefit[number], curve.low[number], curve.high[number]) == (
            found.value,
            found.low,
            found.high,
        )
    assert np.all(curve.advantage_low <= curve.advantage)
    assert np.all(curve.advantage <= curve.advantage_high)


def test_alarms_of_a_trend_do_not_depend_on_shrinking():
    """Their false-alarm rate is that of unbiased counts."""
    looks = {
        f"w{n}": fg.evaluate(
            {f"s{i}": drawn(10 * n + i)[:2] for i in range(SITES)}, privacy=DDP, tree=(16,), seed=n
        )
        for n in range(4)
    }
    bare = {name: each.with_estimator(fg.Aligned(shrink=False)) for name, each in looks.items()}
    one, other = (fg.Trend.of(each, at=[0.5]) for each in (looks, bare))
    assert one.alarms == other.alarms
    rows = zip(one.record["rows"], other.record["rows"], strict=True)
    assert all(a[key] == b[key] for a, b in rows for key in ("moved", "z", "least", "alarm"))
    assert one.estimate("w0", "roc_auc").value != other.estimate("w0", "roc_auc").value
