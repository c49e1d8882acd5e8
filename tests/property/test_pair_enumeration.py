"""Privacy of noisy pairs by enumeration: all labels of a few examples, every flip, all outputs.
Discrete Laplace noise has log-probabilities that are fractions, up to a constant, so epsilon is
compared exactly. Beyond the values that noise-free numbers take, ratios no longer change."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from fedgauge import DistributedDP
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.vertical import auc

SCORES = {
    "three": [0.1, 0.5, 0.9],
    "four": [0.9, 0.1, 0.5, 0.7],
    "tied": [0.5, 0.1, 0.5, 0.5],
    "all tied": [0.5, 0.5, 0.5],
    "one": [0.5],
}
LAPLACE = [name for name, row in auc.MECHANISMS.items() if row.noise == "polya"]
NOTHING = auc.DiscreteLaplace(Fraction(0))


def label_dp(epsilon, **options):
    return DistributedDP(epsilon, unit="label", neighbours="flip", **options)


def known_of(ranks):
    return auc.PartyRanks.of(ranks, np.zeros(len(ranks), dtype=int), 1)


def exact_pairs(ranks, terms):
    """The pair of every labelling, before noise."""
    quiet = terms._replace(positives=NOTHING, ranks=NOTHING)
    return {
        labels: auc.noisy_pair(np.array(labels, bool), ranks, quiet, None)
        for labels in itertools.product((0, 1), repeat=len(ranks))
    }


def flips(pairs):
    for labels, here in pairs.items():
        for place in range(len(labels)):
            other = (*labels[:place], 1 - labels[place], *labels[place + 1 :])
            yield here, pairs[other]


def exponent(law, step=1):
    """Minus the log-probability of a noise value, up to a constant; infinite where impossible."""

    def minus_log(value):
        if not law.scale:
            return 0 if value == 0 else math.inf
        return math.inf if value % step else Fraction(abs(value), step) / law.scale

    return minus_log


def worst(here, there, minus_log, outputs):
    """The largest log-ratio of one number's probabilities at two true values."""
    found = [
        minus_log(seen - there) - minus_log(seen - here)
        for seen in outputs
        if minus_log(seen - here) < math.inf
    ]
    return max(found)


def loss_of(ranks, terms, steps=(1, 1)):
    """The worst loss over every labelling, every flip and every output: the two numbers' sum."""
    laws = [exponent(terms.positives, steps[0]), exponent(terms.ranks, steps[1])]
    pairs = exact_pairs(ranks, terms)
    values = [sorted({pair[i] for pair in pairs.values()}) for i in (0, 1)]
    outputs = [range(v[0] - 2 * s, v[-1] + 2 * s + 1) for v, s in zip(values, steps, strict=True)]
    return max(
        sum(worst(here[i], there[i], laws[i], outputs[i]) for i in (0, 1))
        for here, there in flips(pairs)
    )


@pytest.mark.parametrize("name", LAPLACE)
@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)
@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_the_worst_loss_is_epsilon(name, scores, epsilon):
    ranks = auc.doubled_midranks(np.array(scores))
    (terms,) = auc.MECHANISMS[name].terms(known_of(ranks), label_dp(epsilon))
    loss = loss_of(ranks, terms)
    if name == "laplace-global" and ranks.max() < 2 * (len(ranks) - 1):
        assert loss < epsilon  # no example has the highest rank of all
    else:
        assert loss == Fraction(epsilon)


@pytest.mark.parametrize("name", LAPLACE)
def test_parties_with_some_of_the_ranks_lose_no_more(name):
    ranks = auc.doubled_midranks(np.array([0.1, 0.4, 0.4, 0.6, 0.8, 0.9]))
    for party in itertools.product((0, 1), repeat=len(ranks)):
        party = np.array(party)
        known = auc.PartyRanks.of(ranks, party, 2)
        for place, terms in enumerate(auc.MECHANISMS[name].terms(known, label_dp(1.0))):
            own = ranks[party == place]
            if len(own):
                loss = loss_of(own, terms)
                assert loss <= 1
                assert name == "laplace-global" or loss == 1


@pytest.mark.parametrize("name", LAPLACE)
def test_exact_positives_noise_in_steps_and_a_budget_spent_twice_are_seen(name):
    """D times whole-number noise has the same variance and leaves the sum modulo D exact."""
    ranks = auc.doubled_midranks(np.array(SCORES["four"]))
    known = known_of(ranks)
    (terms,) = auc.MECHANISMS[name].terms(known, label_dp(1.0))
    reach = int(auc.MECHANISMS[name].split(known).reach[0])
    coarse = terms._replace(ranks=auc.DiscreteLaplace(terms.ranks.scale / reach))
    assert loss_of(ranks, coarse, steps=(1, reach)) == math.inf
    twice = terms._replace(
        positives=auc.DiscreteLaplace(Fraction(1)), ranks=auc.DiscreteLaplace(Fraction(reach))
    )
    assert loss_of(ranks, twice) == 2
    (terms,) = auc.MECHANISMS[name].terms(known_of(ranks), label_dp(1.0))
    assert loss_of(ranks, terms._replace(positives=NOTHING)) == math.inf


def test_the_mean_distance_is_no_sensitivity():
    ranks = auc.doubled_midranks(np.array(SCORES["four"]))
    (terms,) = auc.MECHANISMS["orthogonal"].terms(known_of(ranks), label_dp(1.0))
    mean = Fraction(int(np.abs(ranks - terms.centre).sum()), len(ranks))
    assert loss_of(ranks, terms._replace(ranks=auc.DiscreteLaplace(2 * mean))) > 1


@pytest.mark.parametrize("name", auc.MECHANISMS)
def test_what_is_drawn_is_what_was_enumerated(name):
    """Seeded: variances of 2,000 draws stray by 5%, a correlation by 2%; five times is allowed.
    Laws above are those in the terms. Here a party draws from them: both numbers, each in steps of
    1, neither by the other."""
    noise = auc.MECHANISMS[name].noise
    privacy = label_dp(1.0, noise=noise, delta=None if noise == "polya" else 1e-5)
    ranks = auc.doubled_midranks(np.array(SCORES["four"]))
    (terms,) = auc.MECHANISMS[name].terms(known_of(ranks), privacy)
    labels, source = np.array([True, False, False, True]), SimulatedKeystream(5)
    exact = exact_pairs(ranks, terms)[1, 0, 0, 1]
    drawn = np.array([auc.noisy_pair(labels, ranks, terms, source) for _ in range(2000)]) - exact
    assert drawn.var(axis=0) == pytest.approx(
        [terms.positives.variance, terms.ranks.variance], 0.25
    )
    assert abs(np.corrcoef(drawn.T)[0, 1]) < 0.11
    assert [np.gcd.reduce(column) for column in drawn.T] == [1, 1]


def gaussian_masses(sigma2, shift, reach):
    values = np.arange(-reach, reach + 1) - shift
    masses = np.exp(-(values**2) / (2 * float(sigma2)))
    return masses / masses.sum()


def delta_of(ranks, terms, epsilon):
    """The largest delta over flips, of the joint law of both numbers."""
    worst_delta = 0.0
    sigma2s = [terms.positives.sigma2, terms.ranks.sigma2]
    reaches = [int(14 * math.sqrt(s)) + 20 for s in sigma2s]
    for here, there in flips(exact_pairs(ranks, terms)):
        laws = [
            [gaussian_masses(s, value, r) for value in (0, there[i] - here[i])]
            for i, (s, r) in enumerate(zip(sigma2s, reaches, strict=True))
        ]
        first, second = (np.multiply.outer(laws[0][i], laws[1][i]) for i in (0, 1))
        worst_delta = max(worst_delta, np.maximum(first - math.exp(epsilon) * second, 0.0).sum())
    return worst_delta


@pytest.mark.parametrize("delta", [1e-9, 1e-5, 1e-2])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_rho_is_the_most_that_delta_allows(epsilon, delta):
    """Canonne, Kamath & Steinke 2020, proposition 7, over a grid of its own."""

    def least_delta(rho):
        above = np.exp(np.linspace(-12, 14, 200_001))
        logs = above * ((1 + above) * rho - epsilon) - np.log(above)
        return float(np.exp(np.min(logs - (1 + above) * np.log1p(1 / above))))

    rho = float(auc.rho_of(epsilon, delta))
    assert least_delta(rho) <= delta < least_delta(1.001 * rho)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_gaussian_pairs_keep_delta(epsilon):
    ranks = auc.doubled_midranks(np.array(SCORES["three"]))
    privacy = label_dp(epsilon, delta=1e-5, noise="discrete-gaussian")
    (terms,) = auc.MECHANISMS["gaussian"].terms(known_of(ranks), privacy)
    assert 1e-7 < delta_of(ranks, terms, epsilon) <= 1e-5
    half = terms._replace(
        positives=auc.DiscreteGaussian(terms.positives.sigma2 / 2),
        ranks=auc.DiscreteGaussian(terms.ranks.sigma2 / 2),
    )
    assert delta_of(ranks, half, epsilon) > 1e-5


@pytest.mark.parametrize("name", LAPLACE)
@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)
def test_pairs_are_possible_between_the_least_and_the_most_of_any_labels(name, scores):
    ranks = auc.doubled_midranks(np.array(scores))
    (terms,) = auc.MECHANISMS[name].terms(known_of(ranks), label_dp(1.0))
    quiet = terms._replace(positives=NOTHING, ranks=NOTHING)
    given = {}
    for positives, total in exact_pairs(ranks, terms).values():
        given.setdefault(positives, []).append(total)
    far = 3 * len(ranks) ** 2
    for positives in range(-2, len(ranks) + 3):
        totals = given.get(positives, [1, 0])  # between which there is none
        for total in range(-far, far + 1):
            possible = min(totals) <= total <= max(totals) and positives in given
            assert (
                auc.is_pair_possible(auc.PairAnswer(positives, total), ranks, quiet, 0.5)
                == possible
            )


@pytest.mark.parametrize(
    "law", [auc.DiscreteLaplace(Fraction(7, 2)), auc.DiscreteGaussian(Fraction(30))]
)
@pytest.mark.parametrize("chance", [0.05, 1e-3, 1e-6])
def test_noise_goes_no_further_than_stated(law, chance):
    """Summed up; and half as far it would go more often."""
    values = np.arange(-400, 401)
    if isinstance(law, auc.DiscreteLaplace):
        weights = np.exp(-np.abs(values) / float(law.scale))
    else:
        weights = np.exp(-(values**2) / (2 * float(law.sigma2)))
    shares = weights / weights.sum()
    assert shares[np.abs(values) > law.reach(chance)].sum() <= chance
    assert shares[np.abs(values) > law.reach(chance) / 2].sum() > chance
