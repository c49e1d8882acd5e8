"""Likely counts: against other ways to find them, and whatever counts, noise and axis are."""

import math
import warnings
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings
from scipy.optimize import minimize
from scipy.special import expit, gammaln, logit

import fedgauge as fg
from fedgauge.estimation import shrinkage
from fedgauge.estimation.counts import DrawnBlock, LabelCounts, PooledCounts
from fedgauge.estimation.remapping import mapped
from fedgauge.histograms.calibrator import Beta, Calibrator, Steps

AXIS = fg.Axis.uniform(8, outside="clip")
NOISY = np.array([[90.0, 41, 30, 12, 8, 6, -3, 2], [12.0, -4, 9, 38, 40, 61, 70, 95]])
DDP, LDP = fg.DistributedDP(1.0), fg.LocalDP(5.0)
EDGES = fg.Axis.from_edges([0.0, 5e-324, 1e-300, 0.5, float(np.nextafter(1, 0)), 1.0])


@pytest.fixture
def tight(monkeypatch):
    monkeypatch.setattr(shrinkage, "_CLOSE", 1e-10)
    monkeypatch.setattr(shrinkage, "_STEPS", 500)


def correlated(cells, variance):
    """A covariance as trees leave: neighbours in a group of four have some noise in common."""
    groups = np.kron(np.eye(cells // 4), np.ones((4, 4)))
    return variance * (np.eye(cells) - 0.15 * groups)


def fitted(noisy, noise, bend=1):
    """A path, its covariance, and the family: of both classes."""
    prior = shrinkage._prior(AXIS)
    family = shrinkage._Poisson(np.concatenate([3 - prior.centred / 2, 3 + prior.centred / 2]))
    seen = shrinkage._Seen.of(family, noisy.ravel(), noise)
    covariance = prior.of_both[bend]
    return shrinkage._fit(seen, covariance, shrinkage._CLOSE), covariance, family


def within(noisy, noise, totals, bend=1):
    """The same of positives in known totals."""
    prior = shrinkage._prior(AXIS)
    family = shrinkage._Binomial(prior.centred - 0.5, totals)
    covariance = prior.of_ratio[bend]
    seen = shrinkage._Seen.of(family, noisy, noise)
    return shrinkage._fit(seen, covariance, shrinkage._CLOSE), covariance, family


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("bend", range(3))
def test_the_path_is_the_mode_of_shifted_poisson_counts(bend):
    """With independent noise of variance v: noisy + v from Poisson(mean + v), found by scipy."""
    variances = np.linspace(4.0, 40.0, 16)
    fit, covariance, family = fitted(NOISY, np.diag(variances), bend)
    root = np.linalg.cholesky(covariance)

    def objective(u):
        mean = np.exp(family.start + root @ u)
        likelihood = (NOISY.ravel() + variances) * np.log(mean + variances) - mean
        slope = mean * ((NOISY.ravel() + variances) / (mean + variances) - 1)
        return 0.5 * u @ u - likelihood.sum(), u - root.T @ slope

    best = minimize(objective, np.zeros(16), jac=True, method="BFGS", options={"gtol": 1e-9})
    np.testing.assert_allclose(fit.path, root @ best.x, atol=1e-6)
    mean = np.exp(family.start + fit.path)
    expected = mean * (NOISY.ravel() + variances) / (mean + variances)
    np.testing.assert_allclose(fit.counts, expected, rtol=1e-9)


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("variance", [5.0, 80.0])
def test_any_noise_has_a_path_of_least_squares_with_its_own_spread(variance):
    """At the path the weighted squares and the prior, the weights held, are least: by scipy."""
    noise = correlated(16, variance)
    fit, covariance, family = fitted(NOISY, noise)
    spread = noise + np.diag(np.exp(family.start + fit.path))
    root, weights = np.linalg.cholesky(covariance), np.linalg.inv(spread)

    def objective(u):
        mean = np.exp(family.start + root @ u)
        left = NOISY.ravel() - mean
        squares = left @ weights @ left
        return 0.5 * (squares + u @ u), u - root.T @ (mean * (weights @ left))

    near = np.linalg.solve(root, fit.path) + 0.01
    best = minimize(objective, near, jac=True, method="BFGS", options={"gtol": 1e-8})
    np.testing.assert_allclose(fit.path, root @ best.x, atol=1e-6)
    mean = np.exp(family.start + fit.path)
    expected = mean + mean * (weights @ (NOISY.ravel() - mean))
    np.testing.assert_allclose(fit.counts, expected, atol=1e-6)


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("noise", [9.0 * np.eye(8), correlated(8, 9.0)], ids=["flat", "tree"])
def test_known_totals_have_a_path_of_least_squares_too(noise):
    totals = np.array([100.0, 40, 40, 50, 50, 70, 70, 100])
    fit, covariance, family = within(NOISY[1], noise, totals)
    share = expit(family.start + fit.path)
    spread = noise + np.diag(totals * share * (1 - share))
    pull = totals * share * (1 - share) * np.linalg.solve(spread, NOISY[1] - totals * share)
    np.testing.assert_allclose(fit.path, covariance @ pull, atol=1e-6)
    np.testing.assert_allclose(fit.counts, totals * share + pull, atol=1e-6)


def test_a_deep_tree_has_a_path_too(monkeypatch):
    """Steps of the expected curvature alone go on for ever under a binary tree; Newton's end."""
    pooled = released(fg.DistributedDP(0.3), (2,) * 7).pooled
    prior, noisy = shrinkage._prior(pooled.axis), pooled.unbiased
    family = shrinkage._Poisson(np.full(256, np.log(noisy.sum() / 256)))
    seen = shrinkage._Seen.of(family, noisy.ravel(), pooled.noise_matrix)
    fit = shrinkage._fit(seen, prior.of_both[1], 1e-6)
    mean = np.exp(family.start + fit.path)
    spread = pooled.noise_matrix + np.diag(mean)
    pull = mean * np.linalg.solve(spread, noisy.ravel() - mean)
    np.testing.assert_allclose(prior.of_both[1] @ pull, fit.path, atol=1e-4)
    assert fit.found
    monkeypatch.setattr(shrinkage, "_FIRST_STEPS", shrinkage._STEPS)
    assert not shrinkage._fit(seen, prior.of_both[1], 1e-6).found


def test_counts_stay_as_released_where_no_path_is_found(monkeypatch):
    monkeypatch.setattr(shrinkage, "_STEPS", 1)
    for pooled in (released(DDP).pooled, labelled("tree")):
        assert pooled.likely is pooled.counts
        assert not pooled.is_shrunk


@pytest.mark.parametrize("place", range(3))
def test_counts_stay_as_released_where_the_likeliest_path_is_not_found(monkeypatch, place):
    """The others contradict what was released: under a binary tree they did great harm."""
    fit, fits = shrinkage._fit, []

    def unfinished(*told):
        fits.append(fit(*told)._replace(found=len(fits) % 3 != place))
        return fits[-1]

    monkeypatch.setattr(shrinkage, "_fit", unfinished)
    likely = shrinkage.shrunk(AXIS, NOISY, 16.0 * np.eye(16))
    assert (likely is None) == (np.argmax([each.evidence for each in fits]) == place)


@pytest.mark.parametrize("made", [np.linalg.LinAlgError, np.nan])
def test_a_step_that_cannot_be_made_leaves_counts_as_released(monkeypatch, made):
    def solve(_, right):
        if made is np.linalg.LinAlgError:
            raise made("Singular matrix")
        return right * made

    monkeypatch.setattr(shrinkage, "_FIRST_STEPS", 0)
    monkeypatch.setattr(np.linalg, "solve", solve)
    pooled = released(DDP).pooled
    assert pooled.likely is pooled.counts


@pytest.mark.usefixtures("tight")
def test_the_evidence_of_little_noise_is_that_of_laplace():
    """Of Poisson counts, up to the error of Stirling's formula, which the weights do not see."""
    counts = np.round(np.abs(NOISY)) + 50
    fits = [fitted(counts, 1e-6 * np.eye(16), bend) for bend in range(3)]
    exact = []
    for fit, covariance, family in fits:
        log_mean = family.start + fit.path
        mean, flat = np.exp(log_mean), counts.ravel()
        prior = fit.path @ np.linalg.solve(covariance, fit.path)
        likelihood = (flat * log_mean - mean - gammaln(flat + 1)).sum()
        _, volume = np.linalg.slogdet(np.eye(16) + mean[:, None] * covariance)
        exact.append(likelihood - (prior + volume) / 2)
    found = [fit.evidence for fit, *_ in fits]
    np.testing.assert_allclose(np.diff(found), np.diff(exact), atol=0.05)


def test_the_average_weighs_each_smoothness_by_its_evidence():
    noise = 16.0 * np.eye(16)
    prior = shrinkage._prior(AXIS)
    totals = NOISY.sum(axis=1)
    half = (prior.centred + math.log(totals[1] / totals[0])) / 2
    level = np.log(totals / 8).mean()
    family = shrinkage._Poisson(np.concatenate([level - half, level + half]))
    seen = shrinkage._Seen.of(family, NOISY.ravel(), noise)
    fits = [shrinkage._fit(seen, each, shrinkage._CLOSE) for each in prior.of_both]
    weights = np.exp([fit.evidence - fits[0].evidence for fit in fits])
    expected = np.average([fit.counts for fit in fits], axis=0, weights=weights)
    found = shrinkage.shrunk(AXIS, NOISY, noise).ravel()
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert weights.min() / weights.sum() > 1e-3


def test_the_kernel_is_that_of_an_integrated_random_walk():
    """A walk in a thousand steps from 0 to each side, summed: as sums of its independent steps."""
    x = np.array([-2.0, -0.7, -0.1, 0.0, 0.3, 1.1, 2.5])
    steps = (np.arange(1000) + 0.5) * 2.5e-3
    after = np.clip(np.abs(x)[:, None] - steps, 0.0, None)
    of_each_side = [after * (np.sign(x) == side)[:, None] for side in (-1, 1)]
    expected = sum(each @ each.T for each in of_each_side) * 2.5e-3
    np.testing.assert_allclose(shrinkage._integrated_wiener(x), expected, atol=1e-4)


def test_places_are_log_odds_or_ranks():
    places = shrinkage._places(fg.Axis.from_edges([0, 0.1, 0.5, 0.9, 1]))
    np.testing.assert_allclose(np.diff(places), logit(0.9))
    narrow = shrinkage._places(fg.Axis.uniform(4, 0.49, 0.51))
    assert narrow[1] - narrow[0] == pytest.approx(0.5, abs=0.02)
    ranks = 2 * logit([0.125, 0.375, 0.625, 0.875])
    for axis in (
        fg.Axis.asinh(4),
        fg.Axis.from_values([0.1, 0.2, 0.4, 0.9]),
        fg.Axis.uniform(4, -0.1, 1),
        fg.Axis.uniform(4, 0, 1.1),
    ):
        np.testing.assert_allclose(shrinkage._places(axis), ranks)


def unit_weights(pooled):
    cells = pooled.released.size
    return np.eye(cells).reshape(cells, *pooled.released.shape)


def rows_of(count=3000, seed=1):
    rng = np.random.default_rng(seed)
    labels = (rng.random(count) < 0.4).astype(int)
    return labels, expit(rng.normal(1.5 * labels - 0.7)), rng.choice(["a", "b"], count)


def released(privacy, tree=(16,), *, grouped=False):
    labels, scores, group = rows_of()
    axis = fg.Axis.uniform(math.prod(tree), outside="clip")
    options = {"axis": axis, "tree": tree, "privacy": privacy, "seed": 3}
    if grouped:
        rows = {"all": fg.Examples(labels, scores, group=group)}
        return fg.evaluate(rows, task=fg.BinaryTask(groups={"g": ["a", "b"]}), **options)
    return fg.evaluate({k: (labels[i::3], scores[i::3]) for i, k in enumerate("xyz")}, **options)


NOISES = {
    "distributed": lambda: released(DDP).pooled,
    "distributed, tree": lambda: released(DDP, (4, 2, 2)).pooled,
    "distributed, terms": lambda: replace(released(DDP, (4, 4)).pooled, terms=(3, 1)),
    "local": lambda: released(LDP).pooled,
    "local, tree": lambda: released(LDP, (4, 4)).pooled,
    "local, a side more": lambda: three_sides(),
    "local, blocks": lambda: released(LDP, (4, 4), grouped=True).pooled,
}


def three_sides():
    rng = np.random.default_rng(0)
    counts = rng.uniform(5, 50, (5, 16))
    variances = (3.0, 7.0)
    noise = [rng.uniform(1, 5, (5, nodes)) for nodes in (4, 16)]
    blocks = [
        DrawnBlock(counts, np.array(sides), lambda _: noise, 3)
        for sides in ([0, 1, 0, 2, 1], [1, 0, 2, 2, 2])
    ]
    both = sum(block.by_side[:2] for block in blocks)
    axis = fg.Axis.uniform(16, outside="clip")
    return PooledCounts(axis, both, (4, 4), variances, drawn=tuple(blocks))


@pytest.mark.parametrize("kind", [*NOISES, "labels, tree", "labels, flips"])
def test_the_noise_matrix_is_the_covariance_of_single_counts(kind):
    """Of label parties that of positives."""
    pooled = counts_of(kind)
    each = unit_weights(pooled)[16 if kind.startswith("labels") else 0 :]
    expected = pooled.covariance(each[:, np.newaxis], each[np.newaxis])
    scale = np.diag(expected).max()
    np.testing.assert_allclose(pooled.noise_matrix, expected, rtol=1e-9, atol=1e-9 * scale)


def labelled(mechanism, variance=20.0, seed=0):
    rng = np.random.default_rng(seed)
    totals = rng.integers(20, 60, 16)
    totals[5] = 0
    positives = rng.binomial(totals, np.linspace(0.1, 0.9, 16)) + rng.normal(0, variance**0.5, 16)
    counts, axis = np.array([totals - positives, positives]), fg.Axis.uniform(16)
    if mechanism == "tree":
        return LabelCounts(axis, counts, (4, 4), (variance,) * 2)
    return LabelCounts(axis, counts, (16,), bin_variances=totals * variance / 40)


def counts_of(kind):
    return labelled(kind[8:]) if kind.startswith("labels") else NOISES[kind]()


def pooled_of(counts, variance=16.0, axis=None, **options):
    counts = np.asarray(counts, dtype=np.float64)
    axis = axis or fg.Axis.uniform(counts.shape[1], outside="clip")
    return PooledCounts(axis, counts, (counts.shape[1],), (variance,), **options)


def test_likely_counts_at_the_limits_of_noise():
    counts = np.maximum(NOISY, 1.0)
    np.testing.assert_allclose(pooled_of(counts, 1e-7).likely, counts, rtol=1e-6)
    known = labelled("tree", variance=1e-7)
    counts = known.totals * np.array([[0.7], [0.3]])
    np.testing.assert_allclose(replace(known, released=counts).likely, counts, atol=1e-4)
    # Whose logarithm rises as the log-odds do.
    likely = pooled_of(NOISY, 1e12).likely
    slope = np.diff(np.log(likely[1] / likely[0]))
    np.testing.assert_allclose(slope, np.diff(shrinkage._places(AXIS)), rtol=1e-3)


@pytest.mark.parametrize("kind", [(16,), (4, 4), "labels"])
def test_neither_class_nor_direction_matters(kind):
    rng = np.random.default_rng(2)
    counts = rng.poisson(np.geomspace(100, 1, 16), (2, 16)) + rng.normal(0, 4, (2, 16))
    axis = fg.Axis.uniform(16, outside="clip")
    if kind == "labels":
        there = labelled("tree")
    else:
        there = PooledCounts(axis, counts, kind, (16.0,) * len(kind))
    back = replace(there, released=there.unbiased[::-1, ::-1])
    np.testing.assert_allclose(back.likely[::-1, ::-1], there.likely, rtol=1e-6, atol=1e-6)


def test_a_map_that_rises_leaves_likely_counts_and_others_gather_them():
    pooled = pooled_of(NOISY)
    rises = mapped(pooled, Calibrator("beta", Beta(1.4, 0.7, -0.3)))
    assert rises.axis != pooled.axis
    np.testing.assert_array_equal(rises.likely, pooled.likely)
    twice = mapped(rises, Calibrator("beta", Beta(0.5, 2.0, 0.1)))
    np.testing.assert_array_equal(twice.likely, pooled.likely)
    halves = mapped(pooled, Calibrator("isotonic", Steps([0.5], [0.2, 0.7])))
    expected = pooled.likely.reshape(2, 2, 4).sum(axis=2)
    np.testing.assert_allclose(halves.likely, expected)
    np.testing.assert_array_equal(replace(halves, shrinks=False).likely, halves.counts)


def test_what_is_not_shrunk_and_what_was_released_stays():
    whole = np.arange(16).reshape(2, 8)
    exact = PooledCounts(AXIS, whole, (8,))
    many = pooled_of(np.full((2, 257), 50.0))
    kept = pooled_of(NOISY, shrinks=False)
    without = pooled_of([[3.0, -1, -4], [9.0, 4, 5]])
    for pooled in (exact, many, kept, without):
        assert pooled.likely is pooled.counts
    most = pooled_of(np.full((2, 256), 50.0) + np.arange(256) % 7)
    assert most.likely is not most.counts
    pooled = pooled_of(NOISY)
    before = pooled.counts.copy()
    assert pooled.likely is pooled.likely
    np.testing.assert_array_equal(pooled.unbiased, NOISY)
    np.testing.assert_array_equal(pooled.counts, before)
    noise = pooled.noise_matrix.copy()
    shrinkage.shrunk(AXIS, NOISY, noise)
    np.testing.assert_array_equal(noise, pooled.noise_matrix)
    result = released(DDP)
    plain = result.with_estimator(fg.Aligned(shrink=False))
    assert plain.roc_auc.value != result.roc_auc.value
    np.testing.assert_array_equal(plain.pooled.counts, result.pooled.counts)
    again = plain.with_estimator(fg.Aligned())
    np.testing.assert_array_equal(again.pooled.likely, result.pooled.likely)


def axes(bins):
    near = [0.0, 5e-324, 1e-300, 1e-12, 0.5, 1 - 1e-12, float(np.nextafter(1, 0)), 1.0]
    return st.sampled_from(
        [
            fg.Axis.uniform(bins),
            fg.Axis.uniform(bins, 0.3, 0.3000001),
            fg.Axis.logit(bins, limit=36.0),
            fg.Axis.asinh(bins),
            fg.Axis.from_values(range(bins)),
            fg.Axis.from_edges(near[: bins + 1] if bins < 4 else near),
            fg.Axis.from_edges(np.geomspace(1e-320, 1, bins + 1)),
        ]
    )


@st.composite
def extremes(draw):
    axis = draw(st.sampled_from([1, 2, 3, 7, 16, 64]).flatmap(axes))
    bins, rng = axis.bins, np.random.default_rng(draw(st.integers(0, 2**20)))
    scale = draw(st.sampled_from([1e-3, 1.0, 100.0, 1e6, 1e12]))
    counts = draw(st.sampled_from(["one bin", "all but one", "rough", "noise"]))
    place = draw(st.integers(0, bins - 1))
    both = scale * rng.normal(0, 1, (2, bins))
    if counts == "one bin":
        both = np.zeros((2, bins))
        both[:, place] = scale, draw(st.sampled_from([1e-3, 1.0, 1e9]))
    elif counts == "all but one":
        both = -np.abs(both)
        both[:, place] = np.abs(both).sum(axis=1) + draw(st.sampled_from([1e-3, 1.0, scale]))
    elif counts == "rough":
        both = scale * rng.lognormal(0, 5, (2, bins))
    tree = (2, bins // 2) if bins % 2 == 0 and draw(st.booleans()) else (bins,)
    variance = draw(st.sampled_from([1e-9, 1.0, 1e3, 1e12]))
    return axis, both, tree, (variance, variance / 7)[: len(tree)], draw(st.integers(1, 3))


@settings(deadline=None, max_examples=60)
@given(extremes())
@example((EDGES, np.diag([1e12] * 5)[[0, 4]], (5,), (1e-9,), 1))
@example((AXIS, np.array([[5e6] + [0.0] * 7, [0.0] * 7 + [5e6]]), (2, 4), (1e12, 1.0), 1))
@example((fg.Axis.uniform(1), np.array([[1e12], [1e-3]]), (1,), (1e-9,), 2))
def test_whatever_was_released_there_are_likely_counts(case):
    axis, both, tree, variances, blocks = case
    noise = [np.full((2, math.prod(tree[: d + 1])), v) for d, v in enumerate(variances)]
    block = DrawnBlock(both, np.arange(2), lambda _: noise, blocks)
    drawn = (block,) if block.counts.any() else ()
    totals = np.rint(np.abs(both).sum(axis=0))
    known = np.stack([totals - both[1], both[1]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for pooled in (
            PooledCounts(axis, both, tree, variances, (1, blocks)),
            PooledCounts(axis, both, tree, variances, drawn=drawn),
            LabelCounts(axis, known, tree, variances),
            LabelCounts(axis, known, tree, bin_variances=totals * variances[0]),
        ):
            likely = pooled.likely
            assert np.all(np.isfinite(likely) & (likely >= 0))
            assert np.array_equal(likely.any(axis=1), pooled.counts.any(axis=1))
            if isinstance(pooled, LabelCounts):
                np.testing.assert_allclose(likely.sum(axis=0), totals, rtol=1e-12)
            else:
                np.testing.assert_allclose(likely.sum(axis=1), pooled.counts.sum(axis=1))


@pytest.mark.parametrize("size", [1, 4, 8, 16])
def test_independent_blocks_are_found(size):
    """Of a flat tree, of leaves below one node, of a class, and of local reports."""
    blocks = np.random.default_rng(0).normal(size=(16 // size, size, size))
    blocks[0, 0, -1] = 0.0
    matrix = np.zeros((16 // size, size, 16 // size, size))
    each = np.arange(16 // size)
    matrix[each, :, each] = blocks
    np.testing.assert_array_equal(shrinkage._blocks(matrix.reshape(16, 16)), blocks)
    assert len(shrinkage._blocks(np.zeros((6, 6)))) == 6


@pytest.mark.parametrize("kind", ["flat", "tree", "local"])
def test_steps_are_enough_where_noise_is_large(kind, monkeypatch):
    """Of classes apart, most bins hold less than their noise, and half of them are negative."""
    rng = np.random.default_rng(3)
    middle = np.abs(np.arange(16) - np.array([[2], [13]]))
    known = np.eye(32) - np.full((32, 32), 1 / 32)
    noise = {"flat": np.eye(32), "tree": correlated(32, 1.0), "local": known}[kind] * 850.0**2
    noisy = np.array([[1.4e5], [6e4]]) * np.exp(-middle * 1.2)
    noisy += (np.linalg.cholesky(noise + np.eye(32)) @ rng.normal(size=32)).reshape(2, 16)
    axis = fg.Axis.uniform(16)
    soon = shrinkage.shrunk(axis, noisy, noise)
    monkeypatch.setattr(shrinkage, "_CLOSE", 1e-9)
    monkeypatch.setattr(shrinkage, "_STEPS", 1000)
    np.testing.assert_allclose(soon, shrinkage.shrunk(axis, noisy, noise), atol=0.05 * 850)


def test_bins_for_scores_of_0_and_1_keep_what_they_hold():
    """At their own log-odds, far from all others, they kept nothing of a class: a path stuck."""
    rng = np.random.default_rng(7)
    labels = np.arange(20_000) < 6_000
    x = rng.normal(1.8 * labels)
    scores = np.where(x < 0, 0.0, np.where(x > 1.8, 1.0, expit(1.8 * (x - 0.9) - 0.85)))
    edges = sorted([*np.arange(17) / 16, 5e-324, 1 - 2.0**-53])
    axis = fg.Axis.from_edges(edges)
    true = np.array([np.bincount(axis.index(scores[labels == k]), minlength=18) for k in (0, 1)])
    noisy = true + rng.normal(0, 10.0, true.shape)
    likely = shrinkage.shrunk(axis, noisy, 100.0 * np.eye(36))
    np.testing.assert_allclose(likely, true, atol=45.0)


def test_a_valley_of_the_ratio_is_not_mistaken_for_a_slope():
    """Positives at both ends: a stiff path that rises throughout is another, worse mode."""
    rng = np.random.default_rng(0)
    x = logit((np.arange(64) + 0.5) / 64)
    negatives, both_ends = np.exp(-(x**2) / 0.72), np.exp(-((np.abs(x) - 2.5) ** 2) / 0.72)
    true = np.stack([1400 * negatives / negatives.sum(), 600 * both_ends / both_ends.sum()])
    errors = []
    for _ in range(12):
        noisy = true + rng.laplace(0, 10.0, (2, 64))
        likely = shrinkage.shrunk(fg.Axis.uniform(64), noisy, 200.0 * np.eye(128))
        shares = likely[:, :32].sum(axis=1) / likely.sum(axis=1)
        errors.append(np.abs(shares - 0.5).max())
    assert np.mean(np.array(errors) > 0.3) < 0.3
