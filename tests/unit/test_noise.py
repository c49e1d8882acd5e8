"""The tables against the true laws, in more digits than the tables have."""

from fractions import Fraction
from functools import partial, reduce
from itertools import pairwise

import mpmath
import msgspec
import numpy as np
import pytest
from plans import plan_for
from refusals import refused

import fedgauge
from fedgauge import Axis, EvaluationPlan, HistogramRound, ScoreSums
from fedgauge.errors import PlanError
from fedgauge.privacy import Cohort, DistributedDP, noise
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.privacy.noise import BITS, honest_parties
from noise import check_promise, level_noise, share_law

SHAPES = [Fraction(1, 1000), Fraction(1, 19), Fraction(1, 2), Fraction(1), Fraction(41, 19)]
RATES = [Fraction(1, 10**6), Fraction(1, 3), Fraction(1), Fraction(37, 2), Fraction(5000)]
SPREADS = [Fraction(1, 20), Fraction(1, 2), Fraction(1), Fraction(301, 19), Fraction(4000)]
POLYA = DistributedDP(1.0)
SKELLAM = DistributedDP(1.0, 1e-6, noise="skellam")
GAUSSIAN = DistributedDP(1.0, 1e-6, noise="discrete-gaussian")
COHORT = Cohort(min_survivors=10, max_colluding=1)
TREE = (4, 2)


def negative_binomial(shape, epsilon):
    """P(k) by gamma functions, with success probability p = 1 - a."""
    epsilon = mpmath.mpf(epsilon)
    p = -mpmath.expm1(-epsilon)
    r = mpmath.mpf(shape.numerator) / shape.denominator
    start = r * mpmath.log(p) - mpmath.loggamma(r)
    mean = r * (1 - p) / p

    def mass(k):
        return mpmath.exp(start + mpmath.loggamma(k + r) - mpmath.loggamma(k + 1) - k * epsilon)

    return mass, mean, mean / p


def poisson(rate):
    rate = mpmath.mpf(rate.numerator) / rate.denominator

    def mass(k):
        return mpmath.exp(k * mpmath.log(rate) - rate - mpmath.loggamma(k + 1))

    return mass, rate, rate


def discrete_gaussian(spread):
    s = mpmath.mpf(spread.numerator) / spread.denominator

    # Poisson summation turns the slow series for a wide law into a fast one.
    def total(t):
        return mpmath.sqrt(mpmath.pi / t) * mpmath.nsum(
            lambda j: mpmath.exp(-((mpmath.pi * j) ** 2) / t), [-mpmath.inf, mpmath.inf]
        )

    weight = total(1 / (2 * s))
    # E k^2 = -d/dt log total(t).
    variance = -mpmath.diff(lambda t: mpmath.log(total(t)), 1 / (2 * s))
    return lambda k: mpmath.exp(-k * k / (2 * s)) / weight, mpmath.mpf(0), variance


CASES = {
    **{
        f"negative binomial {shape} {epsilon}": (
            partial(noise.negative_binomial, shape, epsilon),
            partial(negative_binomial, shape, epsilon),
        )
        for shape in SHAPES
        for epsilon in (0.1, 1.0, 6.0)
    },
    **{f"poisson {rate}": (partial(noise.poisson, rate), partial(poisson, rate)) for rate in RATES},
    **{
        f"gaussian {spread}": (
            partial(noise.discrete_gaussian, spread),
            partial(discrete_gaussian, spread),
        )
        for spread in SPREADS
    },
}
every_law = pytest.mark.parametrize("name", CASES)


def masses(table):
    """The table's law, as exact numbers of 2^-128."""
    edges = [0, *table.cumulative, 2**BITS]
    return [high - low for low, high in pairwise(edges)]


def numbered(table):
    return enumerate(masses(table), start=table.first)


@every_law
def test_a_table_is_the_true_law_within_its_distance(name):
    make, truth = CASES[name]
    table = make()
    with mpmath.workprec(300):
        mass = truth()[0]
        inside = distance = mpmath.mpf(0)
        for k, drawn in numbered(table):
            true = mass(k)
            inside += true
            distance += abs(mpmath.ldexp(drawn, -BITS) - true)
        outside = 1 - inside
        assert -(mpmath.mpf(2) ** -200) < outside < 2.0**-119
        distance = (distance + outside) / 2
        assert distance <= table.distance
        assert table.distance <= 2.0**-100
    with mpmath.workprec(300):
        _, mean, variance = truth()
        assert table.mean == pytest.approx(float(mean), rel=1e-14, abs=1e-30)
        assert table.variance == pytest.approx(float(variance), rel=1e-14)
    first = Fraction(sum(k * mass for k, mass in numbered(table)), 2**BITS)
    second = Fraction(sum(k * k * mass for k, mass in numbered(table)), 2**BITS)
    assert float(first) == pytest.approx(table.mean, rel=1e-12, abs=1e-25)
    assert float(second - first**2) == pytest.approx(table.variance, rel=1e-12)
    table = CASES[name][0]()
    assert all(mass >= 0 for mass in masses(table))
    assert table.cumulative[-1] <= 2**BITS
    if name.startswith("gaussian"):
        drawn = masses(table)
        assert len(drawn) == 1 - 2 * table.first
        # Rounding may differ by a unit on each side; what is cut goes to the last value.
        assert all(abs(a - b) <= 2 for a, b in zip(drawn[1:-1], drawn[-2:0:-1], strict=True))


class Scripted:
    """Words as they are written down."""

    def __init__(self, words):
        self.left = list(words)

    def words(self, count):
        taken, self.left = self.left[:count], self.left[count:]
        assert len(taken) == count
        return np.array(taken, dtype=np.uint64)


def inverse(table, number):
    return table.first + sum(edge <= number for edge in table.cumulative)


def crafted(table):
    """128-bit numbers on, beside and between the edges of a table."""
    edges = {0, 2**BITS - 1}
    for edge in table.cumulative[:: max(1, len(table.cumulative) // 40)]:
        edges |= {edge - 1, edge, edge + 1, (edge >> 64) << 64, edge | (2**64 - 1)}
        edges |= {edge - 2**64, edge + 2**64}
    return sorted(edge for edge in edges if 0 <= edge < 2**BITS)


def test_draws_invert_all_128_bits():
    for make in (
        partial(noise.negative_binomial, Fraction(1, 3), 0.7),
        partial(noise.poisson, Fraction(9, 2)),
        partial(noise.discrete_gaussian, Fraction(7)),
        partial(noise.discrete_gaussian, Fraction(4000)),  # its last edge is 2^128
    ):
        table = make()
        seen = set()
        for number in crafted(table):
            source = Scripted([number >> 64, number & (2**64 - 1)])
            assert table.draw(source, 1).tolist() == [inverse(table, number)]
            # The low word is read when, and only when, the high one leaves the value open.
            tied = (number >> 64) in {edge >> 64 for edge in table.cumulative}
            assert len(source.left) == (0 if tied else 1)
            seen.add(tied)
        assert seen == {True, False}


def test_ties_are_settled_one_by_one_in_order():
    table = noise.poisson(Fraction(2))
    edge = table.cumulative[1]
    high, low = edge >> 64, edge & (2**64 - 1)
    source = Scripted([high, 0, high, 2**63, high, low - 1, low, low + 1])
    expected = [table.first + 1, 0, table.first + 2, inverse(table, 1 << 127), table.first + 2]
    assert table.draw(source, 5).tolist() == expected
    assert source.left == []
    table = noise.negative_binomial(Fraction(1), 0.5)
    shared = [edge for edge in table.cumulative if edge >> 64 == 2**64 - 1]
    assert len(shared) > 20
    for edge in shared:
        for number in (edge - 1, edge):
            source = Scripted([number >> 64, number & (2**64 - 1)])
            assert table.draw(source, 1).tolist() == [inverse(table, number)]


def test_a_law_of_one_value_draws_that_value():
    for make in (
        partial(noise.negative_binomial, Fraction(1, 3), 100.0),
        partial(noise.poisson, Fraction(1, 2**130)),
        partial(noise.discrete_gaussian, Fraction(1, 1000)),
    ):
        assert make().draw(SimulatedKeystream(1), 3).tolist() == [0, 0, 0]
        for count in (0, 1, 1000):  # as many as asked for
            draws = noise.poisson(Fraction(3)).draw(SimulatedKeystream(1), count)
            assert (draws.shape, draws.dtype) == ((count,), np.int64)


def test_a_law_too_wide_for_a_table_is_refused(monkeypatch):
    # More shares than parties may need a longer table: refused after the sum was opened, a
    # result would be lost.
    narrowest = noise._TAIL_BITS * np.log(2) / noise._MOST_VALUES
    table = noise.negative_binomial(Fraction(8), Fraction(float(narrowest) * 1.0001))
    assert len(table.cumulative) > noise._MOST_VALUES
    for law in (
        (Fraction(8), Fraction(float(narrowest) * 0.999)),
        (Fraction(1, 7), Fraction(5e-324) / 128),  # no float measures it
    ):
        refused(PlanError, "too wide", noise.negative_binomial, *law)
    monkeypatch.setattr(noise, "_MOST_VALUES", 100)
    noise.negative_binomial.cache_clear()
    refused(PlanError, "too wide", noise.negative_binomial, Fraction(1, 7), 0.1)
    assert len(noise.negative_binomial(Fraction(1, 7), 1.0).cumulative) < 100


@pytest.mark.parametrize("shape", [Fraction(1, 19), Fraction(1), Fraction(5, 2)])
def test_a_wide_table_is_right_wherever_it_is_looked_at(shape):
    # As wide as the noise of score sums; every value would take minutes.
    table = noise.negative_binomial(shape, Fraction(1, 1280))
    assert len(table.cumulative) > 90_000
    with mpmath.workprec(300):
        truth, _, _ = negative_binomial(shape, Fraction(1, 1280))
        for k in (0, 1, 2, 999, 20_011, 70_000, len(table.cumulative) - 1):
            below = table.cumulative[k - 1] if k else 0
            found = mpmath.mpf(table.cumulative[k] - below)
            assert abs(found - mpmath.ldexp(truth(k), BITS)) <= 1  # two roundings


def node_law(law):
    """The law of one node's noise in floating point, on -reach..reach."""
    mass = np.array([float(Fraction(m, 2**BITS)) for m in masses(law._table)])
    if law._signed:
        return reduce(np.convolve, [mass] * law._repeats)
    return np.convolve(mass, mass[::-1])


def padded(law, size):
    extra = (size - len(law)) // 2
    return np.pad(law, extra) if extra >= 0 else law[-extra:extra]


@pytest.mark.parametrize("shares", [2, 3, 7])
@pytest.mark.parametrize(("spec", "level"), [(POLYA, 0.8), (SKELLAM, 6.0), (GAUSSIAN, 12.0)])
def test_many_shares_at_once_have_the_law_of_their_sum(spec, level, shares):
    one = node_law(share_law(spec, level, parties=4))
    summed = reduce(np.convolve, [one] * shares)
    at_once = padded(node_law(share_law(spec, level, parties=4, shares=shares)), len(summed))
    np.testing.assert_allclose(at_once, summed, rtol=0, atol=1e-14)


@pytest.mark.parametrize("shares", [1, 4, 9])
def test_variance_is_that_of_the_noise(shares):
    for spec, level, whole in (
        (POLYA, 0.8, 2 * np.exp(-0.8) / (1 - np.exp(-0.8)) ** 2),
        (SKELLAM, 6.0, 12.0),
        (GAUSSIAN, 12.0, 12.0),
    ):
        law = share_law(spec, level, parties=4, shares=shares)
        mass = node_law(law)
        values = np.arange(len(mass)) - len(mass) // 2
        assert law.variance == pytest.approx(np.sum(mass * values**2), rel=1e-10)
        assert law.variance == pytest.approx(whole * shares / 4, rel=1e-6)


@pytest.mark.parametrize(("spec", "level"), [(POLYA, 0.8), (SKELLAM, 6.0), (GAUSSIAN, 12.0)])
def test_draws_fill_the_shape_and_differ_between_nodes(spec, level):
    law = share_law(spec, level / 10 if spec is POLYA else 50 * level, parties=4, shares=3)
    draws = law.draw(SimulatedKeystream(3), (2, 8))
    assert draws.shape == (2, 8)
    assert draws.dtype == np.int64
    assert len(np.unique(draws)) > 4
    again = law.draw(SimulatedKeystream(3), (2, 8))
    assert draws.tolist() == again.tolist()


def test_laws_are_of_what_a_plan_sends_and_their_distance_of_every_table():
    assert share_law(POLYA, 1.0, parties=3).distance == (
        2 * noise.negative_binomial(Fraction(1, 3), 1.0).distance
    )
    one = share_law(GAUSSIAN, 9.0, parties=3).distance
    assert share_law(GAUSSIAN, 9.0, parties=3, shares=5).distance == 5 * one
    assert one == noise.discrete_gaussian(Fraction(3)).distance
    assert plan_for(POLYA, TREE, COHORT).sums_law(shares=3) is None
    exact = EvaluationPlan.for_histogram(Axis.uniform(4), COHORT, score_sums=True)
    assert exact.sums_law(shares=3) is None
    assert exact.noise_laws(shares=3) == []


@pytest.mark.parametrize(
    ("survivors", "colluding", "honest"), [(3, 1, 2), (20, 1, 19), (10, 9, 1), (4, 0, 4)]
)
def test_colluders_do_not_count_as_noise(survivors, colluding, honest):
    cohort = Cohort(min_survivors=survivors, max_colluding=colluding)
    assert honest_parties(cohort) == honest
    laws = plan_for(POLYA, TREE, cohort).noise_laws(shares=1)
    assert [law._table for law in laws] == [noise.negative_binomial(Fraction(1, honest), 0.5)] * 2


@pytest.mark.parametrize(("survivors", "colluding"), [(1, 1), (3, 3), (2, 5)])
def test_a_cohort_of_colluders_is_refused(survivors, colluding):
    cohort = Cohort(min_survivors=survivors, max_colluding=colluding)
    refused(PlanError, "min_survivors", honest_parties, cohort)
    refused(PlanError, "collude", plan_for, POLYA, TREE, cohort)


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 1.0, 7.0, 1 / 3, 1e-3])
@pytest.mark.parametrize("levels", [1, 2, 3, 7])
def test_even_budgets_use_epsilon_up_and_never_exceed_it(epsilon, levels):
    budgets = level_noise(DistributedDP(epsilon), COHORT, levels)
    assert len(set(budgets)) == 1
    assert sum(map(Fraction, budgets)) <= Fraction(epsilon)
    assert sum(budgets) == pytest.approx(epsilon, rel=1e-14)


def test_weights_split_the_budget_and_more_shares_do_not():
    budgets = level_noise(POLYA, COHORT, 3, [1, 3, 4])
    assert budgets == pytest.approx((1 / 8, 3 / 8, 1 / 2), rel=1e-15)
    assert plan_for(POLYA, TREE, COHORT, weights=[1.0, 3.0]).final.noise == (0.25, 0.75)
    few, many = (plan_for(POLYA, TREE, Cohort(min_survivors=n)) for n in (5, 50))
    assert few.rounds == many.rounds
    assert few.noise_laws(shares=4)[0].variance == many.noise_laws(shares=49)[0].variance


@pytest.mark.parametrize(
    "weights", [[1.0], [1.0, 2.0, 3.0], [0.0, 1.0], [2.0, -1.0], [0.0, 0.0], [1.0, float("nan")]]
)
def test_bad_weights_are_refused(weights):
    with pytest.raises(PlanError):
        plan_for(POLYA, TREE, COHORT, weights=weights)
    for spec in (SKELLAM, GAUSSIAN):
        refused(PlanError, "weights", level_noise, spec, COHORT, 2, [1.0, 2.0])


def with_noise(plan, noise):
    return msgspec.structs.replace(plan, rounds=(HistogramRound(plan.final.nodes, noise),))


@pytest.fixture(scope="module", params=[POLYA, SKELLAM, GAUSSIAN], ids=lambda spec: spec.noise)
def plan(request):
    return plan_for(request.param, TREE, COHORT)


def weaker(plan, factor):
    """Noise weaker by a factor: a larger budget, or a smaller variance."""
    factor = factor if plan.privacy.noise == "polya" else 1 / factor
    return with_noise(plan, (plan.final.noise[0] * factor, *plan.final.noise[1:]))


def test_calibrated_plans_keep_their_promise_and_weakened_noise_does_not(plan):
    plan.check_promise()
    check_promise(plan.privacy, plan.cohort, plan.final.noise)
    weaker(plan, 0.9).check_promise()
    for factor in (1.05, 2.0):
        refused(PlanError, "costs more", weaker(plan, factor).check_promise)
    clients = {f"site-{i}": ([0, 1], [0.2, 0.8]) for i in range(10)}
    refused(PlanError, "costs more", fedgauge.evaluate, clients, weaker(plan, 1.05))


def test_a_promise_and_its_statement_have_a_unit_and_neighbours():
    plan = plan_for(POLYA, TREE, COHORT)
    first, second = plan.final.noise
    with pytest.raises(PlanError, match="costs more"):
        with_noise(plan, (first, np.nextafter(second, 1))).check_promise()
    stronger = DistributedDP(1.0, 1e-6, noise="skellam", neighbours="replace-one")
    parameters = level_noise(SKELLAM, COHORT, 1)
    check_promise(SKELLAM, COHORT, parameters)
    for spec in (stronger, msgspec.structs.replace(SKELLAM, unit="subject", max_per_unit=2)):
        refused(PlanError, "costs more", check_promise, spec, COHORT, parameters)
    spec = DistributedDP(0.7, unit="subject", max_per_unit=3, neighbours="replace-one")
    said = statement(spec)
    assert (said.model, said.claim) == ("distributed-dp", "simulated")
    assert (said.epsilon, said.unit, said.neighbours) == (0.7, "subject", "replace-one")
    assert said.cohort == COHORT
    assert said.public_inputs == ("examples 1000",)


def statement(privacy=POLYA, tree=(64,), cohort=COHORT):
    return plan_for(privacy, tree, cohort).statement("simulated", ("examples 1000",))


@pytest.mark.parametrize(
    ("tree", "survivors", "epsilon"),
    [((64,), 20, 1.0), ((16, 16), 20, 0.3), ((16384,), 1001, 1.0), ((64,), 100_001, 1.0)],
)
def test_the_numerical_delta_of_polya_is_stated_and_tiny(tree, survivors, epsilon):
    said = statement(DistributedDP(epsilon), tree, Cohort(min_survivors=survivors))
    assert 0 < said.delta <= 2.0**-80


def test_the_numerical_delta_counts_every_table_node_and_party():
    small = statement().delta
    assert statement(tree=(128,)).delta == pytest.approx(2 * small, rel=1e-12)
    # Tables of smaller shares are shorter, hence not exactly twice.
    double = statement(cohort=Cohort(min_survivors=19, max_colluding=1)).delta
    assert double == pytest.approx(2 * small, rel=0.02)
    per_draw = noise.negative_binomial(Fraction(1, 9), 1.0).distance
    draws = 9 * 2 * 64 * 2  # honest parties, channels, bins, two tables for each share
    assert statement().delta == pytest.approx((1 + np.e) * draws * per_draw, rel=1e-12)
    counts = noise.negative_binomial(Fraction(1, 9), Fraction(0.8)).distance
    plan = sums_plan(tree=(64,))
    sums = noise.negative_binomial(Fraction(1, 9), Fraction(plan.final.sums.noise) / 256)
    told = plan.statement("simulated").delta
    assert told == pytest.approx((1 + np.e) * draws * (counts + sums.distance), rel=1e-6)
    assert told > 1.9 * plan_for(POLYA, (64,), COHORT).statement("simulated").delta


def test_the_delta_of_a_spec_is_part_of_the_statement(plan):
    said = plan.statement("simulated").delta
    assert said >= (plan.privacy.delta or 0) >= 0
    assert said == pytest.approx(plan.privacy.delta or 0, abs=2.0**-80)


@pytest.mark.parametrize("epsilon", [90.0, 200.0, 1000.0])
@pytest.mark.filterwarnings("ignore::fedgauge.errors.PrivacyWarning")
def test_an_absurd_epsilon_is_useless_but_works(epsilon):
    clients = {name: ([0, 1], [0.2, 0.8]) for name in "abc"}
    result = fedgauge.evaluate(clients, privacy=DistributedDP(epsilon), tree=(2,))
    assert result.roc_auc.value == pytest.approx(1.0, abs=1e-9)
    assert 0 <= result.privacy.delta <= 1


def sums_plan(epsilon=1.0, tree=(4, 2), **options):
    return plan_for(DistributedDP(epsilon), tree, COHORT, score_sums=True, **options)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 7.0, 1 + 1 / 3, 0.7000000000000001, np.pi])
def test_counts_and_sums_share_epsilon_exactly(epsilon):
    sent = sums_plan(epsilon, (8,)).final
    assert Fraction(sent.noise[0]) + Fraction(sent.sums.noise) == Fraction(epsilon)
    assert sent.sums.noise == pytest.approx(epsilon / 5, rel=1e-14)


@pytest.mark.parametrize("weights", [None, [1.0, 3.0], [0.1, 0.7]])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 1 / 1.3])
def test_sums_and_any_levels_never_exceed_epsilon(epsilon, weights):
    plan = sums_plan(epsilon, weights=weights)
    sent = plan.final
    total = sum(map(Fraction, sent.noise)) + Fraction(sent.sums.noise)
    assert Fraction(epsilon) * (1 - Fraction(1, 2**52)) <= total <= Fraction(epsilon)
    plan.check_promise()


def with_sums_noise(plan, of_sums, **changes):
    sums = msgspec.structs.replace(plan.final.sums, noise=of_sums)
    sent = msgspec.structs.replace(plan.final, sums=sums, **changes)
    return msgspec.structs.replace(plan, rounds=(sent,))


def test_counts_and_sums_that_cost_more_than_epsilon_are_refused():
    plan = sums_plan(tree=(8,))
    share = plan.final.sums.noise
    with_sums_noise(plan, 0.5 * share).check_promise()
    dear = [with_sums_noise(plan, n) for n in (float(np.nextafter(share, 1)), 2 * share, 1.0)]
    for each in (*dear, with_sums_noise(plan, share, noise=(1.0,))):
        refused(PlanError, "costs more", each.check_promise)
    clients = {f"site-{i}": ([0, 1], [0.2, 0.8]) for i in range(10)}
    refused(PlanError, "costs more", fedgauge.evaluate, clients, dear[1])


@pytest.mark.parametrize("neighbours", ["add-remove", "replace-one"])
def test_the_law_of_sums_is_made_for_all_steps(neighbours):
    spec = DistributedDP(4.0, neighbours=neighbours, unit="subject", max_per_unit=2)
    plan = plan_for(spec, (8,), COHORT, score_sums=True)
    assert plan.sums_law(shares=3)._table is noise.negative_binomial(
        Fraction(3, 9), Fraction(plan.final.sums.noise) / (256 * spec.level_sensitivity)
    )
    assert [law._table for law in plan.noise_laws(shares=3)] == [
        noise.negative_binomial(
            Fraction(3, 9), Fraction(plan.final.noise[0]) / spec.level_sensitivity
        )
    ]


@pytest.mark.parametrize("spec", [SKELLAM, GAUSSIAN], ids=lambda spec: spec.noise)
def test_only_polya_is_for_score_sums(spec):
    refused(PlanError, "noise='polya'", spec.calibrate, COHORT, 1, score_sums=True)
    plan = EvaluationPlan.for_histogram(Axis.uniform(4, outside="clip"), COHORT, privacy=spec)
    sums = msgspec.structs.replace(plan.final, sums=ScoreSums(256, 0.5))
    refused(PlanError, "noise='polya'", msgspec.structs.replace, plan, rounds=(sums,))
