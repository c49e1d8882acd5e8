"""Draws follow their laws. Seeded, so that a test passes always or never. Each test of a sample
rejects a right law with a probability of at most FALSE_ALARM over the choice of the seed. The seeds
were not picked: they are the numbers written here."""

import numpy as np
import pytest
from scipy import stats

from fedgauge import Axis
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy import Cohort, DistributedDP
from fedgauge.privacy.keystream import SimulatedKeystream
from noise import share_law

FALSE_ALARM = 1e-6
DRAWS = 100_000
POLYA = DistributedDP(1.0)
SKELLAM = DistributedDP(1.0, 1e-6, noise="skellam")
GAUSSIAN = DistributedDP(1.0, 1e-6, noise="discrete-gaussian")


def chi_square(draws, values, law):
    """P-value of Pearson's test; neighbouring values are pooled until 20 are expected."""
    expected = law * len(draws)
    group = (np.cumsum(expected) // 20).astype(int)
    group = np.unique(group, return_inverse=True)[1]
    wanted = np.bincount(group, weights=expected)
    wanted[-1] += len(draws) - wanted.sum()
    place = np.clip(draws, values[0], values[-1]) - values[0]
    found = np.bincount(group[place], minlength=len(wanted))
    return stats.chisquare(found, wanted).pvalue


def kolmogorov_smirnov(draws, values, law):
    """P-value for continuous laws, which for laws on integers is an upper bound."""
    found = np.searchsorted(np.sort(draws), values, side="right") / len(draws)
    distance = np.abs(found - np.cumsum(law)).max()
    return stats.kstwo.sf(distance, len(draws))


both = pytest.mark.parametrize("p_value", [chi_square, kolmogorov_smirnov])


def summed(spec, level, *, parties, shares, seed):
    """Shares of different clients, each with a keystream of its own, added up."""
    law = share_law(spec, level, parties=parties)
    return sum(
        law.draw(SimulatedKeystream(1000 * seed + client), (DRAWS,)) for client in range(shares)
    )


def target(spec, level, part=1):
    values = np.arange(-400, 401)
    if spec.noise == "polya":
        return values, stats.dlaplace.pmf(values, level / spec.level_sensitivity)
    return values, stats.skellam.pmf(values, part * level, part * level)


SUMS = [
    (POLYA, 1.0),
    (POLYA, 0.15),
    (DistributedDP(1.0, neighbours="replace-one"), 0.5),
    (DistributedDP(1.0, unit="subject", max_per_unit=3), 1.0),
    (SKELLAM, 0.7),
    (SKELLAM, 16.9),
]


@both
@pytest.mark.parametrize("parties", [1, 3, 19])
@pytest.mark.parametrize(("spec", "level"), SUMS)
def test_summed_shares_follow_the_target(spec, level, parties, p_value):
    """False alarms: 1e-6 for each test, law and number of parties."""
    draws = summed(spec, level, parties=parties, shares=parties, seed=3)
    assert p_value(draws, *target(spec, level)) > FALSE_ALARM


@both
@pytest.mark.parametrize(("spec", "level"), SUMS)
def test_shares_drawn_at_once_follow_the_target_and_one_too_few_is_noticed(spec, level, p_value):
    """False alarms: 1e-6 for each test and law."""
    law = share_law(spec, level, parties=19, shares=19)
    draws = law.draw(SimulatedKeystream(5), (DRAWS,))
    assert p_value(draws, *target(spec, level)) > FALSE_ALARM
    # The tests above have power: they reject 9 of 10 shares.
    draws = summed(spec, level, parties=10, shares=9, seed=4)
    assert p_value(draws, *target(spec, level)) < FALSE_ALARM


@both
def test_summed_gaussian_shares_follow_the_law_of_their_sum(p_value):
    """False alarms: 1e-6 for each test."""
    values = np.arange(-40, 41)
    share = np.exp(-(values**2) / (2 * 3.0))
    law = np.array([1.0])
    for _ in range(4):
        law = np.convolve(law, share / share.sum())
    values = np.arange(-160, 161)
    drawn = summed(GAUSSIAN, 12.0, parties=4, shares=4, seed=6)
    at_once = share_law(GAUSSIAN, 12.0, parties=4, shares=4).draw(SimulatedKeystream(6), (DRAWS,))
    for draws in (drawn, at_once):
        assert p_value(draws, values, law) > FALSE_ALARM


@pytest.mark.parametrize(("spec", "level"), [*SUMS, (GAUSSIAN, 12.0)])
def test_mean_and_variance_of_draws(spec, level):
    """False alarms: about 1e-6 for each moment, by the central limit theorem."""
    law = share_law(spec, level, parties=4, shares=6)
    draws = law.draw(SimulatedKeystream(7), (DRAWS,)).astype(float)
    bound = stats.norm.isf(FALSE_ALARM / 2)
    assert abs(draws.mean()) < bound * np.sqrt(law.variance / DRAWS)
    error = np.std(draws**2) / np.sqrt(DRAWS)
    assert abs(np.mean(draws**2) - law.variance) < bound * error
    assert 10 * bound * error < law.variance  # a variance off by a tenth would be noticed


def test_nodes_classes_and_levels_are_independent():
    """False alarms: 1e-6 over all pairs of nodes together."""
    plan = EvaluationPlan.for_histogram(
        Axis.uniform(4, outside="clip"), Cohort(), tree=(2, 2), privacy=POLYA
    )
    source, rounds = SimulatedKeystream(8), 10_000
    draws = [
        law.draw(source, (rounds, plan.task.rows_sent, nodes)).reshape(rounds, -1)
        for law, nodes in zip(plan.noise_laws(shares=3), plan.final.nodes, strict=True)
    ]
    noise = np.concatenate(draws, axis=1)
    assert noise.shape == (rounds, 12)
    pairs = np.corrcoef(noise.T)[np.triu_indices(12, 1)]
    assert np.abs(pairs).max() * np.sqrt(rounds) < stats.norm.isf(FALSE_ALARM / 2 / len(pairs))
    # Nor is the size of the noise shared, as it would be if words were used twice.
    pairs = np.corrcoef(np.abs(noise).T)[np.triu_indices(12, 1)]
    assert np.abs(pairs).max() * np.sqrt(rounds) < stats.norm.isf(FALSE_ALARM / 2 / len(pairs))
