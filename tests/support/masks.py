"""Masks of a secure sum, computed here from the words of the protocol."""

import hmac

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes


def hkdf(secret, salt, info):
    """RFC 5869, for one block."""
    extracted = hmac.digest(salt, secret, "sha256")
    return hmac.digest(extracted, info + b"\1", "sha256")


def keystream(key, numbers):
    stream = (
        Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(4 * numbers))
    )
    return np.frombuffer(stream, dtype="<u4")


def pair_mask(private, public, session, first, second, numbers):
    """The mask of a pair, from the private key of one and the public key of the other."""
    private = X25519PrivateKey.from_private_bytes(private)
    secret = private.exchange(X25519PublicKey.from_public_bytes(public))
    first, second = sorted((first, second))
    return keystream(hkdf(secret, session, b"fedgauge mask %d %d" % (first, second)), numbers)


def own_mask(secret, session, numbers):
    return keystream(hkdf(secret, session, b"fedgauge own mask"), numbers)


def public_key(private):
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def stripped(words, member, session, *, own=None, pairs=()):
    """A masked input less the masks that one knows; `pairs` has (other, private, public)."""
    rest = np.frombuffer(words, dtype="<u4").copy()
    if own is not None:
        rest -= own_mask(own, session, len(rest))
    for other, private, public in pairs:
        mask = pair_mask(private, public, session, member, other, len(rest))
        rest = rest - mask if member < other else rest + mask
    return rest.view("<i4")
