"""Random words for noise: AES-256 in counter mode, keyed by the operating system."""

import hashlib
import hmac
import os
from typing import Final, Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_KEY_BYTES: Final = 32


class WordSource(Protocol):
    """Anything that yields uniform 64-bit words."""

    def words(self, count: int) -> Words:
        """The next `count` words."""


class Keystream:
    """Uniform 64-bit words that nobody can guess.

    Each instance has a key of its own from the operating system. It takes no seed: noise
    that protects people must not be repeatable.
    """

    def __init__(self) -> None:
        self._stream = _AesCtr(os.urandom(_KEY_BYTES))

    def words(self, count: int) -> Words:
        """The next `count` words."""
        return self._stream.words(count)


class SimulatedKeystream:
    """Words from a seed, for simulations that must be repeatable.

    Whoever knows the seed can subtract the noise: this never protects anything.
    """

    def __init__(self, seed: int) -> None:
        self._stream = _AesCtr(hashlib.sha256(f"fedgauge-simulation {seed}".encode()).digest())

    def words(self, count: int) -> Words:
        """The next `count` words."""
        return self._stream.words(count)


class KeptKeystream:
    """Words from a secret that its holder keeps: the same ones again, and for nobody else.

    Those of another purpose say nothing about them. The first two words of all are other than the
    next two, and so on: they are a cipher's blocks.
    """

    def __init__(self, secret: bytes, purpose: bytes) -> None:
        if len(secret) < _KEY_BYTES:
            raise ValueError(f"a secret has {_KEY_BYTES} bytes or more")
        self._stream = _AesCtr(hmac.digest(secret, b"fedgauge " + purpose, "sha256"))

    def words(self, count: int) -> Words:
        """The next `count` words."""
        return self._stream.words(count)


class _AesCtr:
    """The keystream of AES-256-CTR from counter 0."""

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def words(self, count: int) -> Words:
        """The next `count` little-endian words."""
        stream = self._encryptor.update(bytes(8 * count))
        return np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)
