import inspect
import itertools
import secrets
from collections import Counter
from functools import partial

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from fedgauge.errors import CountOverflow, PlanError, ProtocolError
from fedgauge.plan.rounds import LARGEST
from fedgauge.privacy import Cohort, DistributedDP, SecureAggregation
from fedgauge.secagg import masking, secret_sharing
from fedgauge.secagg.graph import MOST_MEMBERS
from fedgauge.secagg.secret_sharing import PRIME, join, share_from_bytes, share_to_bytes, split
from noise import share_law

EDGES = [0, 1, 255, 256, 2**255, 2**256 - 2, 2**256 - 1]
FIELDS = [(5, 1), (5, 2), (5, 3), (5, 4), (7, 1), (7, 2), (7, 3), (7, 4)]
POLYA = DistributedDP(1.0)
SKELLAM = DistributedDP(1.0, 1e-6, noise="skellam")
GAUSSIAN = DistributedDP(1.0, 1e-6, noise="discrete-gaussian")
COHORT = Cohort(min_survivors=5, max_colluding=1)
plan_for = partial(plans.plan_for, tree=(4, 4), cohort=COHORT)
ONES, ZEROS = 2**64 - 1, 0


def is_prime(number, bases):
    """Miller and Rabin: of all bases, at most a quarter are fooled by a composite."""
    odd, twos = number - 1, 0
    while odd and odd % 2 == 0:
        odd, twos = odd // 2, twos + 1

    def agrees(base):
        powers = [pow(base, odd << i, number) for i in range(twos)]
        return powers[0] == 1 or number - 1 in powers

    return number == 2 or (
        number % 2 == 1 and number > 1 and all(agrees(b) for b in bases if b % number)
    )


def test_the_prime_is_the_smallest_that_holds_every_secret():
    assert [n for n in range(60) if is_prime(n, range(2, 12))] == [
        2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59
    ]  # fmt: skip
    assert is_prime(PRIME, range(2, 202))
    assert not any(is_prime(number, [2, 3]) for number in range(2**256, PRIME))


# All secrets, all polynomials, all sets of holders over small fields


def all_shares(secret, holders, threshold, prime):
    """The shares for every choice of the coefficients, each of which is equally likely."""
    for coefficients in itertools.product(range(prime), repeat=threshold - 1):
        source = iter(coefficients)

        def next_below(bound, source=source):
            assert bound == prime
            return next(source)

        yield split(secret, holders, threshold, prime=prime, random_below=next_below)
        assert next(source, None) is None


@pytest.mark.parametrize(("prime", "threshold"), FIELDS)
def test_too_few_shares_say_nothing_and_enough_say_all(prime, threshold):
    holders = range(1, prime)
    laws, secret_of = {}, {}
    for secret in range(prime):
        for shares in all_shares(secret, holders, threshold, prime):
            for points in itertools.combinations(holders, threshold - 1):
                seen = tuple(shares[point] for point in points)
                laws.setdefault(points, {}).setdefault(secret, Counter())[seen] += 1
            for points in itertools.combinations(holders, threshold):
                seen = tuple(shares[point] for point in points)
                assert secret_of.setdefault((points, seen), secret) == secret
                assert join(dict(zip(points, seen, strict=True)), prime=prime) == secret
    for by_secret in laws.values():
        assert len(by_secret) == prime
        assert len({frozenset(law.items()) for law in by_secret.values()}) == 1
        # Not only the same for each secret, but uniform: what is seen could be drawn by anyone.
        assert set(by_secret[0].values()) == {1}


def test_coefficients_are_drawn_anew_one_for_each_share_that_must_say_nothing():
    assert inspect.signature(split).parameters["random_below"].default is secrets.randbelow
    asked = []

    def draw(bound):
        asked.append(bound)
        return 3

    shares = split(7, [1, 2, 10], 3, random_below=draw)
    assert asked == [PRIME, PRIME]
    assert shares == {1: 7 + 3 + 3, 2: 7 + 6 + 12, 10: 7 + 30 + 300}
    holders = [1, 2, 3]
    drawn = {tuple(split(0, holders, 2).values()) for _ in range(20)}
    assert len(drawn) == 20


def test_wrong_arguments_are_refused():
    for secret, holders, threshold in (
        *[(1, [1, 2], 0), (1, [1, 2], -1), (1, [1, 2], 3), (1, [], 1), (1, [1, 1], 2)],
        *[(1, [1, 2, 1], 2), (1, [0, 1], 2), (1, [-1, 1], 2), (1, [1, PRIME], 2)],
        *[(1, [1, PRIME + 1], 2), (-1, [1, 2], 2), (PRIME, [1, 2], 2)],
    ):
        with pytest.raises(ProtocolError):
            split(secret, holders, threshold)


@pytest.mark.parametrize("share", [0, 1, 2**256 - 1, 2**256, PRIME - 1])
def test_shares_travel_as_33_bytes(share):
    sent = share_to_bytes(share)
    assert len(sent) == secret_sharing.SHARE_BYTES == 33
    assert sent == bytes((share >> 8 * i) & 255 for i in range(33))
    assert share_from_bytes(sent) == share


def test_what_is_outside_the_field_or_of_another_length_is_no_share():
    for sent in (
        *(n.to_bytes(33, "little") for n in (PRIME, PRIME + 1, 2**257, 2**264 - 1)),
        *map(bytes, (0, 1, 32, 34, 66)),
    ):
        refused(ProtocolError, "field", share_from_bytes, sent)


def test_secrets_travel_as_32_bytes_and_wrong_shares_join_to_another():
    for secret in EDGES:
        raw = secret.to_bytes(32, "little")
        assert secret_sharing.secret_to_int(raw) == secret
        assert secret_sharing.secret_from_int(secret) == raw
    for number in (2**256, 2**256 + 1, PRIME - 1):
        refused(ProtocolError, "belong together", secret_sharing.secret_from_int, number)
    shares = split(5, [1, 2, 3, 4], 3)
    # A chance of one in 2^256 to be wrong about this.
    assert join({1: shares[1], 2: shares[2]}) != 5
    assert join(shares | {2: (shares[2] + 1) % PRIME}) != 5


def test_the_shortest_word_that_holds_every_sum():
    for members, most, bits in (
        (1, 0, 32),
        (1, 2**31 - 1, 32),
        (1, 2**31, 64),
        (2**31 - 1, 1, 32),  # a prime: no other product is this close
        (2**31, 1, 64),
        (2, 2**30 - 1, 32),
        (2, 2**30, 64),
        (1000, 2_147_483, 32),
        (1000, 2_147_484, 64),
        (1, 2**63 - 1, 64),
        (7 * 7 * 73 * 127, 337 * 92737 * 649657, 64),  # the factors of 2^63 - 1
    ):
        assert masking.word_bits(members, most) == bits
        for sum_ in (members * most, -members * most):
            assert -(2 ** (bits - 1)) <= sum_ < 2 ** (bits - 1)
        assert bits == 32 or members * most >= 2**31


@pytest.mark.parametrize(("members", "most"), [(1, 2**63), (2**63, 1), (2**32, 2**31), (9, 2**62)])
def test_sums_that_fit_no_word_are_refused(members, most):
    refused(PlanError, "largest count", masking.word_bits, members, most)


def test_encoding_leaves_the_values_alone_and_takes_the_largest_and_nothing():
    values = np.array([3, -4])
    sent = masking.encode(values, 10, 64)
    sent += np.uint64(1)
    assert values.tolist() == [3, -4]
    for values in ([-7], [7]):
        assert masking.decode(masking.encode(np.array(values), 7, 32), 32).tolist() == values
    assert masking.encode(np.array([], dtype=np.int64), 0, 32).tolist() == []


@given(data=st.data())
def test_the_sum_of_words_is_the_sum_of_values(data):
    members = data.draw(st.integers(1, 9), label="members")
    # Close to where 32 and 64 bits end, and anywhere below.
    limit = data.draw(st.sampled_from([2**31 - 1, 2**31 + 8, 2**63 - 1, 5000]), label="limit")
    most = limit // members
    value = st.one_of(st.sampled_from([most, -most, 0]), st.integers(-most, most))
    rows = data.draw(st.lists(st.tuples(value, value), min_size=members, max_size=members))
    bits = masking.word_bits(members, most)
    masks = np.random.default_rng(members).integers(0, 2**bits, 2, dtype=masking.word_type(bits))
    total = masks.copy()
    for row in rows:
        total += masking.encode(np.array(row, dtype=np.int64), most, bits)
    expected = np.sum(rows, axis=0, dtype=object).tolist()
    assert masking.decode(total - masks, bits).tolist() == expected


@pytest.mark.parametrize(("most", "value"), [(999, 1000), (999, -1000), (0, 1), (5, -(2**63))])
@pytest.mark.parametrize("bits", [32, 64])
def test_a_value_beyond_the_largest_is_refused_and_not_told(most, value, bits):
    values = np.array([0, value, 0])
    with pytest.raises(CountOverflow, match="plan allows") as caught:
        masking.encode(values, most, bits)
    said = str(caught.value).replace(",", "")
    assert str(abs(value)) not in said
    assert f"the {most}" in said  # the plan's number is public


@pytest.mark.parametrize("bits", [32, 64])
def test_words_travel_as_bytes(bits):
    sent = masking.encode(np.array([1, -2, 3]), 3, bits)
    back = masking.from_bytes(sent.tobytes(), 3, bits)
    assert masking.decode(back, bits).tolist() == [1, -2, 3]
    assert sent.tobytes()[: bits // 8] == (1).to_bytes(bits // 8, "little")


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("extra", [-9, -8, -4, -1, 1, 4, 8])
def test_words_of_another_length_are_refused(bits, extra):
    refused(ProtocolError, "length", masking.from_bytes, bytes(3 * bits // 8 + extra), 3, bits)


class Words:
    """A source that gives the same few words again and again."""

    def __init__(self, *script):
        self.script = itertools.cycle(script)

    def words(self, count):
        return np.array([next(self.script) for _ in range(count)], dtype=np.uint64)


def extremes(law):
    """The smallest and the largest noise that words of all ones and of all zeros give.

    One number takes up to four words: two draws where the law is a difference, and for each
    its low 64 bits where the high ones are at a step of the table.
    """
    scripts = itertools.product((ONES, ZEROS), repeat=4)
    drawn = [int(law.draw(Words(*script), (1,))[0]) for script in scripts]
    return min(drawn), max(drawn)


@pytest.mark.parametrize("shares", [1, 3])
@pytest.mark.parametrize("parties", [1, 4, 1000])
def test_noise_reaches_as_far_as_it_says_and_no_further(parties, shares):
    for spec, level in (
        (POLYA, 1.0),
        (POLYA, 0.01),
        (DistributedDP(1.0, neighbours="replace-one"), 0.5),
        *[(SKELLAM, 0.25), (SKELLAM, 400.0), (GAUSSIAN, 0.25), (GAUSSIAN, 400.0)],
    ):
        law = share_law(spec, level, parties=parties, shares=shares)
        assert extremes(law) == (-law.reach, law.reach)


@pytest.mark.parametrize(("score_sums", "times"), [(False, 1), (True, 256)])
def test_an_exact_sum_goes_as_far_as_all_rows_at_the_top(score_sums, times):
    exact = partial(plan_for, SecureAggregation(), score_sums=score_sums)
    assert exact().most_per_count == LARGEST * times
    assert exact(largest=77).most_per_count == 77 * times


@pytest.mark.parametrize("spec", [POLYA, SKELLAM, GAUSSIAN], ids=lambda spec: spec.noise)
def test_with_noise_a_number_goes_as_far_as_the_widest_level(spec):
    weights = [1.0, 9.0] if spec is POLYA else None
    plan = plan_for(spec, largest=1000, weights=weights)
    reaches = [law.reach for law in plan.noise_laws(shares=1)]
    assert plan.most_per_count == 1000 + max(reaches)
    if spec is POLYA:
        assert reaches[0] > reaches[1]


@pytest.mark.parametrize("largest", [1, 2**20, LARGEST])
@pytest.mark.parametrize("members", [5, 1000, MOST_MEMBERS])
@pytest.mark.parametrize(
    ("spec", "sums"), [(POLYA, False), (SKELLAM, False), (GAUSSIAN, False), (POLYA, True)]
)
def test_no_sum_of_counts_and_noise_wraps(spec, sums, members, largest):
    """Everybody has the largest count and the largest noise, or none and the smallest."""
    plan = plan_for(spec, largest=largest, score_sums=sums)
    most = plan.most_per_count
    bits = masking.word_bits(members, most)
    laws = [plan.sums_law(shares=1)] if sums else plan.noise_laws(shares=1)
    for law in laws:
        lowest, highest = extremes(law)
        assert lowest < 0 < highest
        for extreme in (largest * (256 if sums else 1) + highest, lowest):
            sent = masking.encode(np.array([extreme]), most, bits)
            total = sent * masking.word_type(bits).type(members)
            assert masking.decode(total, bits).tolist() == [members * extreme]


def test_a_lower_largest_count_and_no_sums_halve_what_travels():
    short, long = (plan_for(POLYA, largest=n) for n in (2**20, LARGEST))
    assert masking.word_bits(1000, short.most_per_count) == 32
    assert masking.word_bits(1000, long.most_per_count) == 64
    few = plan_for(SecureAggregation(), largest=2**20)
    assert masking.word_bits(1000, few.most_per_count) == 32
    for largest, bits in ((8000, 32), (9000, 64)):
        plan = plan_for(SecureAggregation(), largest=largest, score_sums=True)
        assert masking.word_bits(1000, plan.most_per_count) == bits


@pytest.mark.parametrize("largest", [0, -1, LARGEST + 1])
def test_a_largest_count_out_of_range_is_refused(largest):
    refused(PlanError, "largest count", plan_for, POLYA, largest=largest)


@pytest.mark.parametrize("largest", [1, 2**20, LARGEST])
def test_a_noisy_number_goes_as_far_as_the_widest_of_counts_and_sums(largest):
    plan = plan_for(POLYA, largest=largest, score_sums=True)
    reach = plan.sums_law(shares=1).reach
    assert plan.most_per_count == 256 * largest + reach
    assert reach > max(law.reach for law in plan.noise_laws(shares=1))
