"""Privacy of local reports by enumeration: all reports, all pairs of rows, exact fractions. The law
of a report is written here from the chances in the plan, and a second set of tests holds the code
that draws to that law, at the words where its decisions change."""

import itertools
import math
from fractions import Fraction

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import report_plan
from report_laws import hadamard_law, law_of, power, unary_law, worst

from fedgauge import LocalDP, PlanError
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.privacy.oracles import (
    KEEP,
    WHOLE,
    HadamardResponse,
    UnaryEncoding,
    draw_bits,
    keeps,
    randomise,
)

EPSILONS = (0.01, 0.5, 1.0, math.log(3), 2.5, 5.0, 20.0)
TREES = [(1,), (2,), (3,), (2, 2)]
every_epsilon = pytest.mark.parametrize("epsilon", EPSILONS, ids=lambda e: f"{e:.3g}")
every_tree = pytest.mark.parametrize("tree", TREES, ids=str)
every_oracle = pytest.mark.parametrize("oracle", ["oue", "hadamard"])


@every_oracle
@every_tree
@every_epsilon
def test_ratios_of_all_reports_and_of_a_row_at_random_are_at_most_e_to_epsilon(
    epsilon, tree, oracle
):
    plan = report_plan(LocalDP(epsilon, oracle=oracle), tree)
    low, high = power(epsilon)
    assert high - low < Fraction(1, 2**200)
    for level in plan.oracles:
        ratio = worst(law_of(level))
        assert ratio <= low
        # No more noise than need be: a chance of one in 2^64 less would break the promise.
        assert ratio == level.worst_ratio
        assert worst(law_of(less_noise(level))) > high
    # What a row that does not count is where each row reports: a budget adds such steps up.
    _, high = power(epsilon)
    for level in report_plan(LocalDP(epsilon, oracle=oracle), tree).oracles:
        laws = law_of(level)
        blank = {report: sum(law[report] for law in laws) / len(laws) for report in laws[0]}
        ratios = [law[report] / blank[report] for law in laws for report in law]
        assert max(*ratios, *(1 / ratio for ratio in ratios)) <= high


def less_noise(oracle):
    if isinstance(oracle, UnaryEncoding):
        return UnaryEncoding(oracle.cells, oracle.raised - 1)
    return HadamardResponse(oracle.cells, oracle.blank - 1, oracle.blocks)


@every_epsilon
@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_every_number_of_blocks_keeps_epsilon(epsilon, blocks):
    calibrated = HadamardResponse.calibrated(epsilon, cells=6)
    low, _ = power(epsilon)
    share = 2 * blocks / (2 * blocks - 1 + low)
    blank = math.ceil(share * WHOLE)
    assert worst(hadamard_law(6, blank, blocks)) <= low
    if blocks == calibrated.blocks:
        assert calibrated.blank == blank


@every_tree
@every_oracle
def test_levels_tell_nothing(tree, oracle):
    """Which rows speak about which level depends on the words alone, not on the rows."""
    plan = report_plan(LocalDP(1.0, oracle=oracle), tree)
    spoken = set()
    for leaf in range(2 * math.prod(tree)):
        reports = randomise(plan.oracles, np.full(50, leaf), SimulatedKeystream(4))
        spoken.add(tuple(map(len, reports)))
    assert len(spoken) == 1
    assert sum(*spoken) == 50


@pytest.mark.parametrize("keep", [Fraction(51, 100), Fraction(3, 4)], ids=str)
def test_a_one_that_is_kept_more_often_breaks_epsilon(keep):
    raised = UnaryEncoding.calibrated(1.0, cells=3).raised
    assert worst(unary_law(3, raised, keep)) > power(1.0)[1]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda e: 1 / (math.exp(e) + 2),
        lambda e: math.exp(-e),
        lambda e: 1 / (math.exp(e / 0.99) + 1),
        lambda e: 1 / (1 + 2 * math.exp(e)),
    ],
    ids=["plus-two", "exp", "one-percent", "twice"],
)
@pytest.mark.parametrize("epsilon", [0.5, 5.0])
def test_wrong_chances_are_caught(epsilon, wrong):
    """The same check reports a q that is too small, or is refused by a plan."""
    raised = int(wrong(epsilon) * WHOLE)
    too_small = raised < UnaryEncoding.calibrated(epsilon, cells=4).raised
    assert (worst(unary_law(4, raised)) > power(epsilon)[1]) == too_small
    plan = report_plan(LocalDP(epsilon), (2,))
    altered = msgspec.structs.replace(plan.final, noise=(raised,))
    altered = msgspec.structs.replace(plan, rounds=(altered,)) if raised < KEEP else None
    if too_small:
        with pytest.raises(PlanError, match="cost more"):
            altered.check_promise()


def test_a_hadamard_plan_with_too_little_noise_is_refused():
    plan = report_plan(LocalDP(2.0, oracle="hadamard"), (4,))
    (noise,) = plan.final.noise
    altered = msgspec.structs.replace(plan.final, noise=(noise - 1,))
    plan.check_promise()
    with pytest.raises(PlanError, match="cost more"):
        msgspec.structs.replace(plan, rounds=(altered,)).check_promise()


@settings(deadline=None, max_examples=60)
@given(st.floats(1e-6, 30.0), st.integers(1, 2**64), st.integers(-3, 3))
def test_keeps_decides_as_a_rational_interval_does(epsilon, denominator, off):
    low, high = power(epsilon)
    ratio = Fraction(int(low * denominator) + off, denominator)
    assert keeps(ratio, epsilon) == (ratio <= low)
    assert (ratio <= low) == (ratio <= high)


class Words:
    """Gives the words it was given, first to last."""

    def __init__(self, *parts):
        self._left = [int(word) for part in parts for word in part]

    def words(self, count):
        taken, self._left = self._left[:count], self._left[count:]
        assert len(taken) == count
        return np.array(taken, dtype=np.uint64)

    @property
    def is_empty(self):
        return not self._left


@pytest.mark.parametrize(
    "chance",
    [1, 2**56 - 1, 2**56, 2**56 + 1, KEEP, UnaryEncoding.calibrated(1.0, cells=2).raised],
    ids=hex,
)
def test_bits_are_set_with_exactly_their_chance(chance):
    """Every first byte, and both sides of where the other 56 bits decide."""
    first, rest = divmod(chance, 2**56)
    octets = np.arange(256, dtype=np.uint8).view("<u8")
    seen = Fraction(0)
    for low, weight in ((max(rest - 1, 0), rest), (rest, 2**56 - rest)):
        source = Words(octets, [(low << 8) | 0xA5])
        bits = draw_bits(source, chance, 256)
        assert source.is_empty
        assert bits[:first].all()
        assert not bits[first + 1 :].any()
        if weight:
            assert bits[first] == (low < rest)
            seen += Fraction(int(bits.sum()) * weight, 256 * 2**56)
    assert seen == Fraction(chance, WHOLE)


def unary_report(oracle, cell, raised, kept):
    """The report when the other bits are drawn as `raised` says and the cell's as `kept`."""
    octets = np.full(-(-oracle.cells // 8) * 8, 255, dtype=np.uint8)
    octets[: oracle.cells][np.array(raised, dtype=bool)] = 0
    coin = np.full(8, 255 if not kept else 0, dtype=np.uint8)
    source = Words(octets.view("<u8"), coin.view("<u8"))
    (payload,) = oracle.encode(np.array([cell]), source)
    assert source.is_empty
    return tuple(np.unpackbits(payload)[: oracle.cells])


def test_unary_reports_are_the_coins():
    oracle = UnaryEncoding.calibrated(1.0, cells=4)
    for cell in range(4):
        for raised in itertools.product((0, 1), repeat=4):
            for kept in (0, 1):
                expected = list(raised)
                expected[cell] = kept
                assert unary_report(oracle, cell, raised, kept) == tuple(expected)


@pytest.mark.parametrize(("cells", "blocks"), [(6, 1), (6, 2), (6, 4), (8, 8), (5, 2)])
def test_hadamard_reports_follow_their_law_exactly(cells, blocks):
    """All columns and answers, on both sides of the chance to say nothing."""
    blank = HadamardResponse.calibrated(2.0, cells=cells).blank
    oracle = HadamardResponse(cells, blank, blocks)
    rows = -(-cells // blocks)
    width = 1 << (rows - 1).bit_length()
    assert oracle.numbers == 2 * blocks * width
    spreads = [(said << 32) | column for said in range(2 * blocks) for column in range(width)]
    each = Fraction(1, len(spreads))
    for cell, law in enumerate(hadamard_law(cells, blank, blocks)):
        found = dict.fromkeys(law, Fraction(0))
        for word, chance in ((blank - 1, blank), (blank, WHOLE - blank)):
            source = Words([word] * len(spreads), spreads)
            reports = oracle.encode(np.full(len(spreads), cell), source)
            for report in reports:
                found[int.from_bytes(bytes(report), "big")] += each * Fraction(chance, WHOLE)
        assert found == law
