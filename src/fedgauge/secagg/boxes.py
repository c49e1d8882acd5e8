"""Two shares on their way to a holder: sealed, and bound so that it shows who lied about them.

Each box has a key of its own. Who dealt it can show what is in that one box, by its key, without
telling anything of the others; a holder could only show all that it was sent.
"""

import hashlib
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

import msgspec

from fedgauge.errors import ProtocolError
from fedgauge.secagg import shamir
from fedgauge.secagg.crypto import SEAL_BYTES, AgreementKey, derive, pair, seal, unseal

DIGEST_BYTES: Final = 32
_SEALED_BYTES: Final = 2 * shamir.SHARE_BYTES + SEAL_BYTES
_KEY_BYTES: Final = 32


class Kind(IntEnum):
    """What a share is of: a member's own mask, or the key of its masks with others."""

    MASK = 0
    KEY = 1


class Pair(NamedTuple):
    """What a holder is dealt: a share of each secret."""

    mask: bytes
    key: bytes

    def checks(self, session: bytes, dealer: int, holder: int) -> bytes:
        """Digests of both shares, by which each can be recognised later."""
        return b"".join(_check(share, kind, session, dealer, holder) for kind, share in self._kinds)

    @property
    def _kinds(self) -> Iterable[tuple[Kind, bytes]]:
        return zip(Kind, self, strict=True)


class Box(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Two sealed shares, on their way to or from a member; `checks` are digests of them."""

    member: int
    key: bytes
    sealed: bytes
    checks: bytes

    @classmethod
    def made(
        cls,
        shares: Pair,
        key: AgreementKey,
        theirs: bytes,
        session: bytes,
        dealer: int,
        holder: int,
    ) -> "Box":
        """Seal shares with the key of this box for the holder of a public key."""
        about = b"box " + pair(dealer, holder)
        sealed_with = derive(key.agree(theirs), session=session, purpose=about)
        sealed = seal(sealed_with, b"".join(shares), session + about)
        return cls(holder, key.public, sealed, shares.checks(session, dealer, holder))

    @property
    def has_right_size(self) -> bool:
        """Whether its parts are as long as they must be."""
        sizes = (len(self.key), len(self.sealed), len(self.checks))
        return sizes == (_KEY_BYTES, _SEALED_BYTES, 2 * DIGEST_BYTES)

    def opened(self, mine: AgreementKey, session: bytes, dealer: int, holder: int) -> Pair:
        """The shares, by the holder's key."""
        return self._unsealed(mine.agree(self.key), session, dealer, holder)

    def shown(self, key: bytes, theirs: bytes, session: bytes, dealer: int, holder: int) -> Pair:
        """The shares, by the private key of the box and the holder's public one."""
        if len(key) != _KEY_BYTES or AgreementKey(key).public != self.key:
            raise ProtocolError("that is not the key of the box.")
        return self._unsealed(AgreementKey(key).agree(theirs), session, dealer, holder)

    def _unsealed(self, secret: bytes, session: bytes, dealer: int, holder: int) -> Pair:
        about = b"box " + pair(dealer, holder)
        sealed_with = derive(secret, session=session, purpose=about)
        plain = unseal(sealed_with, self.sealed, session + about)
        shares = Pair(plain[: shamir.SHARE_BYTES], plain[shamir.SHARE_BYTES :])
        for share in shares:
            shamir.share_from_bytes(share)
        if shares.checks(session, dealer, holder) != self.checks:
            raise ProtocolError("a box holds other shares than it says.")
        return shares

    def digest(self, dealer: int, holder: int) -> bytes:
        """What tells this box from every other one."""
        parts = (self.key, self.sealed, self.checks)
        told = hashlib.sha256(b"fedgauge box\0" + pair(dealer, holder))
        for part in parts:
            told.update(hashlib.sha256(part).digest())
        return told.digest()


def is_share(
    share: bytes, kind: Kind, checks: bytes, session: bytes, dealer: int, holder: int
) -> bool:
    """Whether a share is the one that was dealt."""
    place = DIGEST_BYTES * kind
    expected = checks[place : place + DIGEST_BYTES]
    return _check(share, kind, session, dealer, holder) == expected


def _check(share: bytes, kind: Kind, session: bytes, dealer: int, holder: int) -> bytes:
    # A share is uniform over 257 bits, so its digest tells nothing of it.
    about = b"%s %s" % (kind.name.encode(), pair(dealer, holder))
    return hashlib.sha256(b"fedgauge share\0" + session + about + b"\0" + share).digest()
