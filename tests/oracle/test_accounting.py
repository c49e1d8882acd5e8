"""Accounting against sums over all outcomes, dp-accounting's own mechanisms, and opendp."""

import math
from functools import reduce

import numpy as np
import opendp.prelude as dp
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld import privacy_loss_mechanism as mechanism
from scipy import signal, stats

from fedgauge.privacy.accounting import gaussian_delta, gaussian_tau, skellam_delta


def partitions(cap, largest=None):
    """The ways rows can fall into the nodes of one level, all in one node first."""
    if cap == 0:
        return [()]
    first = range(min(cap, largest or cap), 0, -1)
    return [(part, *rest) for part in first for rest in partitions(cap - part, part)]


def skellam(mean, reach):
    """P(-reach..reach), by convolving two Poisson laws."""
    size = 4 * reach + math.ceil(mean)
    poisson = stats.poisson.pmf(np.arange(size), mean)
    law = signal.convolve(poisson, poisson[::-1], method="direct")
    return law[size - 1 - reach : size + reach]


def discrete_gaussian(sigma2, reach):
    masses = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * sigma2))
    return masses / masses.sum()


def sum_of_shares(sigma2, parties, reach):
    share = discrete_gaussian(sigma2 / parties, reach)
    return reduce(
        lambda a, b: signal.convolve(a, b, mode="same", method="direct"), [share] * parties
    )


def hockey_stick(epsilon, shifts):
    """Sum of max(0, P - e^epsilon Q) over all joint outcomes, for (law, shift) pairs."""
    p = q = np.ones(1)
    for law, shift in shifts:
        padded = np.pad(law, abs(shift))
        p = np.multiply.outer(p, padded).ravel()
        q = np.multiply.outer(q, np.roll(padded, shift)).ravel()
    return np.maximum(p - math.exp(epsilon) * q, 0).sum()


def test_the_helpers_hold_the_laws_they_name():
    k = np.arange(-15, 16)
    np.testing.assert_allclose(skellam(1.3, 15), stats.skellam.pmf(k, 1.3, 1.3), atol=1e-15)
    assert (k**2 @ sum_of_shares(6.0, 3, 15)) == pytest.approx(6.0, rel=1e-3)


def between(value, epsilon, exact, scale):
    """`value` bounds exact(epsilon), and is no worse than rounding by 0.1% of `scale` allows."""
    assert exact(epsilon) <= value * (1 + 1e-9) + 1e-15
    assert value <= exact(epsilon - 1.001e-3 * scale) + 1e-13


CASES = [
    # means, cap, moves
    ([0.05], 1, 1),
    ([2.0], 1, 1),
    ([2.0], 3, 1),
    ([40.0], 4, 1),
    ([2.0], 1, 2),
    ([40.0], 4, 2),
    ([2.0, 5.0], 1, 1),
    ([30.0, 30.0], 3, 1),
    ([0.5, 0.4], 2, 2),
]


@pytest.mark.parametrize(("means", "cap", "moves"), CASES)
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.5])
def test_skellam_is_the_sum_over_outcomes(means, cap, moves, epsilon):
    few = moves * len(means) < 4
    reaches = [math.ceil(12 + 8.5 * math.sqrt(2 * mean)) if few else 12 for mean in means]
    laws = [skellam(mean, reach) for mean, reach in zip(means, reaches, strict=True)]
    scale = cap * math.sqrt(moves * sum(1 / (2 * mean) for mean in means))
    value = skellam_delta(epsilon, means=means, cap=cap, moves=moves)
    for way in ((1, -1), (-1, 1)):  # add or remove; with two moves one leaves and one arrives
        shifts = [(law, sign * cap) for law in laws for sign in way[:moves]]
        between(value, epsilon, lambda e, s=shifts: hockey_stick(e, s), min(scale, 3.0))


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.5])
@pytest.mark.parametrize(
    ("sigma2s", "cap", "moves"),
    [([0.3], 1, 1), ([4.0], 1, 1), ([60.0], 5, 2), ([4.0, 9.0], 2, 1), ([0.5, 0.8], 1, 2)],
)
def test_one_discrete_gaussian_is_the_sum_over_outcomes(sigma2s, cap, moves, epsilon):
    laws = [discrete_gaussian(sigma2, math.ceil(9 * math.sqrt(sigma2) + 2)) for sigma2 in sigma2s]
    shifts = [(law, s * cap) for law in laws for s in (1, -1)[:moves]]
    scale = cap * math.sqrt(moves * sum(1 / sigma2 for sigma2 in sigma2s))
    value = gaussian_delta(epsilon, sigma2s=sigma2s, parties=1, cap=cap, moves=moves)
    between(value, epsilon, lambda e: hockey_stick(e, shifts), min(scale, 3.0))


class TestSumsOfShares:
    @pytest.mark.parametrize("share", [0.25, 0.3, 0.5])
    @pytest.mark.parametrize("parties", [2, 3, 5])
    def test_the_law_of_the_sum_stays_within_half_of_tau(self, share, parties):
        # Kairouz et al.'s tau is for a ratio of two values of the law: one value moves by at
        # most half of it, in either direction. Measured: up to 0.25 tau at one value and 0.40
        # tau between two, so a bound of tau / 4 (half the constant) would fail here.
        reach, middle = 60, slice(60 - 9, 60 + 10)  # where doubles still hold the ratio
        law = sum_of_shares(share * parties, parties, reach)[middle]
        moved = np.log(law / discrete_gaussian(share * parties, reach)[middle])
        tau = gaussian_tau(share * parties, parties)
        assert np.abs(moved).max() <= tau / 2
        assert np.ptp(moved) <= tau / 2
        assert parties > 2 or np.ptp(moved) > tau / 2.6

    @pytest.mark.parametrize("epsilon", [0.8, 1.5, 3.0])
    @pytest.mark.parametrize(
        ("sigma2", "parties", "cap", "moves"),
        [(0.9, 2, 1, 1), (1.6, 3, 1, 1), (1.8, 3, 2, 1), (1.4, 2, 1, 2), (3.0, 5, 2, 2)],
    )
    def test_the_claim_covers_the_true_sum(self, sigma2, parties, cap, moves, epsilon):
        law = sum_of_shares(sigma2, parties, 25)
        true = hockey_stick(epsilon, [(law, cap), (law, -cap)][:moves])
        claimed = gaussian_delta(epsilon, sigma2s=[sigma2], parties=parties, cap=cap, moves=moves)
        assert true <= claimed * (1 + 1e-9)
        assert claimed < 1


def composed(epsilons, law, shifts, *, step):
    """Lower bounds of delta for independent shifts: losses rounded down, on a grid."""
    grids, low = [], 0
    for shift in shifts:
        p, q = law[shift:], law[:-shift]
        loss = np.floor(np.log(p / q) / step).astype(int)
        grids.append(np.bincount(loss - loss.min(), weights=p))
        low += loss.min()
    masses = reduce(signal.fftconvolve, grids)
    losses = step * (low + np.arange(masses.size))
    return np.array([-np.expm1(np.minimum(epsilon - losses, 0)) @ masses for epsilon in epsilons])


@pytest.mark.parametrize("mean", [0.3, 4.0, 60.0])
@pytest.mark.parametrize("cap", [2, 3, 5, 8])
def test_all_rows_in_one_node_is_the_worst_of_all_partitions(mean, cap):
    # Not cut where the law is small: that would take the worst losses from large shifts.
    law = skellam(mean, math.ceil(12 + 7 * math.sqrt(2 * mean)) + cap)
    deviation = cap / math.sqrt(2 * mean)
    epsilons = deviation * np.array([0, 0.5, 1, 2])
    deltas = {way: composed(epsilons, law, way, step=5e-4 * deviation) for way in partitions(cap)}
    claimed = np.array([skellam_delta(e, means=[mean], cap=cap) for e in epsilons])
    assert all((delta <= deltas[(cap,)] + 1e-12).all() for delta in deltas.values())
    assert (deltas[(cap,)] <= claimed).all()
    np.testing.assert_allclose(deltas[(cap,)], claimed, rtol=0.01)
    # Unit shifts, as if rows were separate people, would understate it.
    assert (deltas[(1,) * cap] < 0.97 * claimed)[claimed < 0.9].all()


def test_a_finer_level_may_split_what_a_coarser_one_merges():
    law = skellam(4.0, 40)
    claimed = skellam_delta(1.0, means=[4.0, 4.0], cap=4)
    (merged,) = composed([1.0], law, (4, 4), step=5e-4)
    for way in partitions(4)[1:]:
        (split,) = composed([1.0], law, (4, *way), step=5e-4)
        assert hockey_stick(1.0, [(law, 4)]) < split < merged <= claimed < 1.01 * merged


def test_ten_rows_of_one_person_are_not_ten_people():
    # method.md, section 4: m = 10, h = 8, mu = 5000, delta 1e-6: epsilon 1.21, not 0.36. There
    # mu is the mean of each Poisson law, as here: the variance of a node is 10,000. Read as
    # the variance, mu = 5000 would give 1.77. The naive 0.36 is dp-accounting's default grid
    # of 1e-4, rounded up 80 times; the tight value of that wrong figure is 0.352.
    def brackets(low, high, **options):
        return skellam_delta(low, **options) > 1e-6 >= skellam_delta(high, **options)

    assert brackets(1.205, 1.215, means=[5000.0] * 8, cap=10)
    assert brackets(1.755, 1.775, means=[2500.0] * 8, cap=10)
    assert brackets(0.350, 0.354, means=[5000.0] * 80)
    log_law = np.log(skellam(5000.0, 900))
    coarse = pld.from_two_probability_mass_functions(
        dict(enumerate(log_law[:-1])), dict(enumerate(log_law[1:]))
    ).self_compose(80)
    assert coarse.get_epsilon_for_delta(1e-6) == pytest.approx(0.36, abs=0.005)


@pytest.mark.parametrize(
    ("mean", "levels", "cap", "moves"),
    [(1e4, 1, 1, 1), (1e4, 3, 3, 2), (1e6, 1, 1, 1), (1e6, 8, 3, 1), (1e8, 1, 1, 1)],
)
def test_wide_noise_approaches_the_gaussian_mechanism(mean, levels, cap, moves):
    scale = cap * math.sqrt(levels * moves / (2 * mean))
    limit = mechanism.GaussianPrivacyLoss(1.0, sensitivity=scale)
    for factor in (0.5, 2.0, 4.0) if mean < 1e8 else (3.0,):
        expected = limit.get_delta_for_epsilon(factor * scale)
        options = {"cap": cap, "moves": moves}
        ours = skellam_delta(factor * scale, means=[mean] * levels, **options)
        assert ours == pytest.approx(expected, rel=0.02)
        if mean <= 1e6:
            ours = gaussian_delta(
                factor * scale, sigma2s=[2 * mean] * levels, parties=10, **options
            )
            assert ours == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("sigma", "cap", "levels"), [(3.0, 1, 1), (8.0, 2, 4), (20.0, 10, 3)])
def test_the_discrete_gaussian_of_dp_accounting_agrees_and_opendps_bound_holds(sigma, cap, levels):
    theirs = pld.from_discrete_gaussian_mechanism(
        sigma, sensitivity=cap, value_discretization_interval=2e-3, use_connect_dots=True
    ).self_compose(levels)
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        ours = gaussian_delta(epsilon, sigma2s=[sigma**2] * levels, parties=1, cap=cap)
        assert ours == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=0.01, abs=1e-12)
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    noise = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale=sigma))
    profile = noise.map(cap * math.sqrt(levels))
    for delta in (1e-4, 1e-6, 1e-9):
        epsilon = profile.epsilon(delta)  # through zCDP, so above the tight one
        ours = {"sigma2s": [sigma**2] * levels, "parties": 1, "cap": cap}
        assert gaussian_delta(epsilon, **ours) <= delta
        assert gaussian_delta(0.85 * epsilon, **ours) > delta
