"""Estimates of slices from local reports: unbiased, and as uncertain as they say. The same rows are
reported again and again. Means are judged by their own deviation, at 5 of them; variances of 200
estimates against those claimed, by chi-square, at one in 100,000 each. Over all cases below that is
one false alarm in a thousand. At the end is a small run of studies/local_slices.py, with another
one in a thousand."""

import numpy as np
import pytest
from scipy.stats import binom, chi2

import fedgauge as fg
import local_slices as study
from fedgauge.engines.simulation import run
from fedgauge.estimation.counts import PooledCounts, Released, every_block
from fedgauge.metrics import areas
from fedgauge.privacy.keystream import SimulatedKeystream

RUNS = 200
ROWS = 2000
CASES = {
    "noise": (fg.LocalDP(1.0), (4,)),
    "drawn": (fg.LocalDP(9.0, oracle="hadamard"), (4,)),  # hardly any noise, but what is drawn
    "tree": (fg.LocalDP(4.0), (2, 2)),
}
TASK = fg.BinaryTask(models=("new", "old", "oldest"), groups={"sex": ["women", "men"]})


def examples():
    rng = np.random.default_rng(3)
    y, sex = rng.random(ROWS) < 0.4, rng.choice(["women", "men", "?"], ROWS, p=[0.6, 0.3, 0.1])
    scores = 1 / (1 + np.exp(0.5 - 1.5 * y - rng.normal(size=(3, ROWS))))
    return fg.Examples(y, dict(zip(TASK.models, scores, strict=True)), group=sex)


EXAMPLES = examples()


@pytest.fixture(scope="module", params=CASES)
def runs(request):
    """The plan, exact counts, and what came out again and again."""
    privacy, tree = CASES[request.param]
    axis = fg.Axis.uniform(4, outside="clip")
    plan = fg.EvaluationPlan.for_reports(axis, privacy, task=TASK, tree=tree)
    exact = plan.histogram()
    exact.update_batches([EXAMPLES])
    clients = {"all": EXAMPLES}
    found = [run(clients, plan, SimulatedKeystream(seed), "plain")[0] for seed in range(RUNS)]
    return plan, exact.counts.astype(float), found


def test_estimates_are_right_on_average_and_stray_as_claimed(runs):
    plan, exact, found = runs
    low, high = chi2.ppf([1e-5 / 2, 1 - 1e-5 / 2], RUNS - 1) / (RUNS - 1)
    truth = Released(plan.axis, exact, 1, reports=ROWS)
    slices = [TASK.slices[0], TASK.slices[-6], TASK.slices[4]]  # all rows, then of two groups
    for slice_ in slices:
        pooled = PooledCounts.of(plan, truth, slice_)
        estimates = np.array([PooledCounts.of(plan, each, slice_).unbiased for each in found])
        gradient = areas.auc_gradient(pooled.counts)
        total = np.zeros_like(gradient)
        total[1] = 1.0
        one = np.zeros_like(gradient)
        one[0, 0] = 1.0
        for weights in (gradient, total, one):
            values = (estimates * weights).sum(axis=(1, 2))
            variance = float(pooled.noise_variance(weights))
            stray = abs(values.mean() - (pooled.unbiased * weights).sum())
            assert stray < 5 * np.sqrt(variance / RUNS)
            assert low < values.var(ddof=1) / variance < high


def test_counts_redrawn_stray_as_released_ones_and_channels_as_their_sides(runs):
    plan, exact, _ = runs
    truth = Released(plan.axis, exact, 1, reports=ROWS)
    pooled = PooledCounts.of(plan, truth, TASK.slices[4])
    again = (
        pooled.counts
        + pooled.drawn[0].moved(
            4000, plan.tree, pooled.variances, np.random.default_rng(1), sampling=False
        )[:, :2]
    )
    gradient = areas.auc_gradient(pooled.counts)
    ratio = (again * gradient).sum(axis=(1, 2)).var() / float(pooled.noise_variance(gradient))
    assert 0.8 < ratio < 1.25  # 4,000 draws stray by 3%
    # What averages take of each channel agrees with what a slice takes of their sums.
    pooled = PooledCounts.of(plan, truth, TASK.slices[0])
    weights = areas.auc_gradient(pooled.counts)
    expanded = np.zeros((plan.task.rows_sent, plan.axis.bins))
    for side, rows in enumerate(TASK.contrast(TASK.slices[0])):
        expanded[list(rows)] = weights[side]
    blocks = every_block(plan, exact)
    parts = np.split(expanded, np.cumsum([len(each.sides) for each in blocks])[:-1])
    by_channel = sum(
        float(each.covariance(plan.tree, pooled.variances, part, part))
        for each, part in zip(blocks, parts, strict=True)
    )
    assert by_channel == pytest.approx(float(pooled.noise_variance(weights)))


def test_intervals_cover(monkeypatch):
    """If all cover 94% of the time; and reports about one score at a time err less than shares."""
    monkeypatch.setattr(study, "POPULATION", 100_000)
    found = study.run(study.Cell("labels", 3, 20_000, 4.0), np.random.default_rng(2), 12)
    shares = [share for name, share in found.items() if name.endswith((" covers", " bounds"))]
    assert min(shares) >= binom.ppf(1e-3 / len(shares), 12, 0.94) / 12
    assert found["split"] > 1.5
