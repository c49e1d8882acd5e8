"""Noise laws against SciPy, the keystream against the published AES vectors."""

from fractions import Fraction

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from fedgauge.privacy import DistributedDP, keystream, noise
from noise import share_law

# NIST SP 800-38A, F.5.5: CTR-AES256, the blocks called "Output Block".
NIST_KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
NIST_COUNTER = bytes.fromhex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff")
NIST_OUTPUT = bytes.fromhex(
    "0bdf7df1591716335e9a8b15c860c5025a6e699d536119065433863c8f657b94"
    "1bc12c9c01610d5d0d8bd6a3378eca622956e1c8693536b1bee99c73a31576b6"
)


def encrypt_counters(key, start, blocks):
    """AES of start, start + 1, ... block by block: counter mode by hand."""
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()  # noqa: S305
    counters = ((start + i) % 2**128 for i in range(blocks))
    return b"".join(encryptor.update(counter.to_bytes(16)) for counter in counters)


def test_the_keystream_is_counter_mode_from_zero():
    start = int.from_bytes(NIST_COUNTER)
    assert encrypt_counters(NIST_KEY, start, 4) == NIST_OUTPUT
    words = keystream._AesCtr(NIST_KEY).words(200)
    assert words.astype("<u8").tobytes() == encrypt_counters(NIST_KEY, 0, 100)


def test_the_keystream_gives_the_nist_vectors_from_their_counter(monkeypatch):
    started, counter_mode = [], modes.CTR

    def from_nist(nonce):
        started.append(nonce)
        return counter_mode(NIST_COUNTER)

    monkeypatch.setattr(keystream.modes, "CTR", from_nist)
    words = keystream._AesCtr(NIST_KEY).words(8)
    assert started == [bytes(16)]
    assert [int(word) for word in words] == [
        int.from_bytes(NIST_OUTPUT[i : i + 8], "little") for i in range(0, 64, 8)
    ]


def masses(table):
    edges = [0, *table.cumulative, 2**noise.BITS]
    law = np.diff(np.array(edges, dtype=object)) / 2**noise.BITS
    return np.arange(len(law)) + table.first, law.astype(float)


@pytest.mark.parametrize("shape", [Fraction(1, 19), Fraction(1, 2), Fraction(1), Fraction(23, 5)])
@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0])
def test_negative_binomial_agrees_with_scipy(shape, epsilon):
    table = noise.negative_binomial(shape, epsilon)
    values, law = masses(table)
    scipy = stats.nbinom(float(shape), -np.expm1(-epsilon))
    np.testing.assert_allclose(law, scipy.pmf(values), rtol=0, atol=1e-12)
    assert (table.mean, table.variance) == pytest.approx(scipy.stats("mv"), rel=1e-12)


@pytest.mark.parametrize("mean", [Fraction(1, 100), Fraction(1), Fraction(33, 2), Fraction(3000)])
def test_poisson_agrees_with_scipy(mean):
    table = noise.poisson(mean)
    values, law = masses(table)
    scipy = stats.poisson(float(mean))
    np.testing.assert_allclose(law, scipy.pmf(values), rtol=0, atol=1e-12)
    assert (table.mean, table.variance) == pytest.approx(scipy.stats("mv"), rel=1e-12)


@pytest.mark.parametrize("spread", [Fraction(1, 4), Fraction(2), Fraction(900)])
def test_discrete_gaussian_agrees_with_normalised_scipy_densities(spread):
    values, law = masses(noise.discrete_gaussian(spread))
    density = stats.norm.pdf(values, scale=float(spread) ** 0.5)
    np.testing.assert_allclose(law, density / density.sum(), rtol=0, atol=1e-12)


def difference(law):
    """The law of X - Y for a share law drawn as such a difference."""
    _, mass = masses(law._table)
    return np.arange(1 - len(mass), len(mass)), np.convolve(mass, mass[::-1])


@pytest.mark.parametrize("parties", [1, 2, 19])
@pytest.mark.parametrize("level", [0.2, 1.0])
def test_summed_polya_shares_are_scipys_discrete_laplace(parties, level):
    spec = DistributedDP(1.0, unit="subject", max_per_unit=2)
    values, law = difference(share_law(spec, level, parties=parties, shares=parties))
    np.testing.assert_allclose(law, stats.dlaplace.pmf(values, level / 2), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("shares", "mean"), [(1, 2.0), (5, 2.0), (5, 80.0)])
def test_summed_skellam_shares_are_scipys_skellam(shares, mean):
    spec = DistributedDP(1.0, 1e-6, noise="skellam")
    values, law = difference(share_law(spec, mean, parties=5, shares=shares))
    near = np.abs(values) < 12 * np.sqrt(2 * mean) + 20
    part = mean * shares / 5
    expected = stats.skellam.pmf(values[near], part, part)
    np.testing.assert_allclose(law[near], expected, rtol=0, atol=1e-12)
