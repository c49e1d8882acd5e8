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


class _AesCtr:
    """The keystream of AES-256-CTR from counter 0."""

    def __init__(self, key: bytes) -> None:
        self._encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()

    def words(self, count: int) -> Words:
        """The next `count` words, little-endian."""
        stream = self._encryptor.update(bytes(8 * count))
        return np.frombuffer(stream, dtype="<u8").astype(np.uint64, copy=False)


class Keystream(_AesCtr):
    """Uniform 64-bit words under a fresh key; without a seed, since real noise must not repeat."""

    def __init__(self) -> None:
        super().__init__(os.urandom(_KEY_BYTES))


class SimulatedKeystream(_AesCtr):
    """Words from a seed, for repeatable simulations: who knows the seed can subtract the noise."""

    def __init__(self, seed: int) -> None:
        super().__init__(hashlib.sha256(f"fedgauge-simulation {seed}".encode()).digest())


class KeptKeystream(_AesCtr):
    """Words from a secret: the same at every call, unpredictable to others, independent by purpose.

    A block of the cipher is two words, and no block repeats.
    """

    def __init__(self, secret: bytes, purpose: bytes) -> None:
        if len(secret) < _KEY_BYTES:
            raise ValueError(f"a secret has {_KEY_BYTES} bytes or more")
        super().__init__(hmac.digest(secret, b"fedgauge " + purpose, "sha256"))
