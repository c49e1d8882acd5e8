import inspect
import itertools
import secrets
from collections import Counter

import pytest

from fedgauge.errors import ProtocolError
from fedgauge.secagg import shamir
from fedgauge.secagg.shamir import PRIME, join, share_from_bytes, share_to_bytes, split

EDGES = [0, 1, 255, 256, 2**255, 2**256 - 2, 2**256 - 1]


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


@pytest.mark.parametrize("secret", EDGES)
@pytest.mark.parametrize(
    ("holders", "threshold"),
    [([1], 1), ([1, 2], 1), ([1, 2, 3], 2), ([4, 9, 7, 100_000], 4), (list(range(1, 60)), 31)],
)
def test_shares_join_to_the_secret(secret, holders, threshold):
    shares = split(secret, holders, threshold)
    assert list(shares) == holders
    assert all(0 <= share < PRIME for share in shares.values())
    assert join(shares) == secret
    assert join({point: shares[point] for point in holders[-threshold:]}) == secret


def test_every_large_enough_subset_joins_to_the_secret():
    holders, threshold = [1, 2, 5, 6, 40, 41, 99], 4
    shares = split(2**256 - 1, holders, threshold)
    for size in range(threshold, len(holders) + 1):
        for subset in itertools.permutations(holders, size) if size == 4 else [holders[:size]]:
            assert join({point: shares[point] for point in subset}) == 2**256 - 1


def test_one_share_too_few_joins_to_something_else():
    shares = split(5, [1, 2, 3, 4], 3)
    # A chance of one in 2^256 to be wrong about this.
    assert join({1: shares[1], 2: shares[2]}) != 5


def test_a_changed_share_changes_the_secret():
    shares = split(5, [1, 2, 3], 3)
    assert join(shares | {2: (shares[2] + 1) % PRIME}) != 5


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


FIELDS = [(5, 1), (5, 2), (5, 3), (5, 4), (7, 1), (7, 2), (7, 3), (7, 4)]


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


# Randomness


def test_coefficients_come_from_the_operating_system():
    assert inspect.signature(split).parameters["random_below"].default is secrets.randbelow


def test_one_coefficient_is_drawn_for_each_share_that_must_say_nothing():
    asked = []

    def draw(bound):
        asked.append(bound)
        return 3

    shares = split(7, [1, 2, 10], 3, random_below=draw)
    assert asked == [PRIME, PRIME]
    assert shares == {1: 7 + 3 + 3, 2: 7 + 6 + 12, 10: 7 + 30 + 300}


def test_shares_differ_from_one_split_to_the_next():
    holders = [1, 2, 3]
    drawn = {tuple(split(0, holders, 2).values()) for _ in range(20)}
    assert len(drawn) == 20


# What is refused


@pytest.mark.parametrize(
    ("secret", "holders", "threshold"),
    [
        (1, [1, 2], 0),
        (1, [1, 2], -1),
        (1, [1, 2], 3),
        (1, [], 1),
        (1, [1, 1], 2),
        (1, [1, 2, 1], 2),
        (1, [0, 1], 2),
        (1, [-1, 1], 2),
        (1, [1, PRIME], 2),
        (1, [1, PRIME + 1], 2),
        (-1, [1, 2], 2),
        (PRIME, [1, 2], 2),
    ],
)
def test_wrong_arguments_are_refused(secret, holders, threshold):
    with pytest.raises(ProtocolError):
        split(secret, holders, threshold)


@pytest.mark.parametrize("share", [0, 1, 2**256 - 1, 2**256, PRIME - 1])
def test_shares_travel_as_33_bytes(share):
    sent = share_to_bytes(share)
    assert len(sent) == shamir.SHARE_BYTES == 33
    assert sent == bytes((share >> 8 * i) & 255 for i in range(33))
    assert share_from_bytes(sent) == share


@pytest.mark.parametrize("share", [PRIME, PRIME + 1, 2**257, 2**264 - 1])
def test_what_is_outside_the_field_is_no_share(share):
    with pytest.raises(ProtocolError, match="field"):
        share_from_bytes(share.to_bytes(33, "little"))


@pytest.mark.parametrize("length", [0, 1, 32, 34, 66])
def test_shares_of_another_length_are_refused(length):
    with pytest.raises(ProtocolError, match="field"):
        share_from_bytes(bytes(length))


@pytest.mark.parametrize("secret", EDGES)
def test_secrets_travel_as_32_bytes(secret):
    raw = secret.to_bytes(32, "little")
    assert shamir.secret_to_int(raw) == secret
    assert shamir.secret_from_int(secret) == raw


@pytest.mark.parametrize("number", [2**256, 2**256 + 1, PRIME - 1])
def test_numbers_beyond_256_bits_are_no_secrets(number):
    with pytest.raises(ProtocolError, match="belong together"):
        shamir.secret_from_int(number)
