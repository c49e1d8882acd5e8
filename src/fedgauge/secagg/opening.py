"""Taking the masks off a sum: shares are judged one by one, and who told a wrong one is named."""

from collections.abc import Mapping

import numpy as np

from fedgauge.errors import CohortTooSmall, ProtocolError
from fedgauge.secagg import crypto, shamir, words
from fedgauge.secagg.boxes import Kind, is_share
from fedgauge.secagg.client import apply_pair_mask
from fedgauge.secagg.evidence import Evidence, WrongDealing, WrongShare, secret_behind
from fedgauge.secagg.kept import Dealings, Kept
from fedgauge.secagg.messages import Invitation, Opened, Opening


class Unmasking:
    """One attempt to open a sum with the shares that members told.

    A share other than the one that was dealt is left out: what remains is enough as long as
    `threshold` right ones are there. `evidence` shows who told wrong ones.

    Parameters
    ----------
    invitation
        What the members were invited to.
    kept
        What the coordinator knows after the fourth round.
    dealings
        Who dealt shares to whom.
    """

    def __init__(self, invitation: Invitation, kept: Kept, dealings: Dealings) -> None:
        self._invitation = invitation
        self._kept = kept
        self._dealings = dealings
        self._told: dict[tuple[Kind, int], list[Opened]] = {}
        self.evidence: list[Evidence] = []

    def take(self, openings: Mapping[int, Opening]) -> None:
        """Gather what holders told; wrong shares become evidence."""
        session, shared = self._invitation.session, self._kept.shared
        for holder, opening in openings.items():
            for kind, parts in zip(Kind, (opening.masks, opening.keys), strict=True):
                for dealer, share in ((part.member, part.share) for part in parts):
                    checks = shared[dealer].checks(dealer, holder)
                    if is_share(share, kind, checks, session, dealer, holder):
                        told = self._told.setdefault((kind, dealer), [])
                        told.append(Opened(holder, share))
                    else:
                        self.evidence.append(self._wrong(kind, dealer, holder, share, opening))

    def total(self, length: int, bits: int) -> words.Words:
        """The sum without its masks."""
        session, kept = self._invitation.session, self._kept
        total = words.from_bytes(kept.words, length, bits).copy()
        for member in kept.survivors:
            key = crypto.derive(
                self._secret(Kind.MASK, member), session=session, purpose=b"own mask"
            )
            np.subtract(total, crypto.mask(key, length, bits), out=total)
        for member in sorted(kept.shared.keys() - kept.survivors.keys()):
            self._lift(total, member, bits)
        return total

    def _lift(self, total: words.Words, dropped: int, bits: int) -> None:
        """Complete the masks that survivors share with a dropped member."""
        kept = self._kept
        key = crypto.AgreementKey(self._secret(Kind.KEY, dropped))
        shared, mine = kept.shared, kept.shared[dropped].boxes
        for member in kept.survivors:
            if member in mine or dropped in shared[member].boxes:
                other, session = kept.advertised(member).mask_key, self._invitation.session
                apply_pair_mask(total, key, other, dropped, member, session, bits)

    def _secret(self, kind: Kind, dealer: int) -> bytes:
        threshold = self._invitation.graph.threshold
        told = sorted(self._told.get((kind, dealer), []), key=lambda part: part.member)
        if len(told) < threshold:
            raise CohortTooSmall(
                f"{len(told)} shares of a member's secret came and {threshold} are needed."
            )
        used, keys = told[:threshold], self._kept.advertised(dealer)
        secret = secret_behind(
            {part.member + 1: shamir.share_from_bytes(part.share) for part in used},
            kind,
            self._kept.shared[dealer].commitment,
            keys.mask_key,
            self._invitation.session,
        )
        if secret is None:
            signed, keys_signed = self._kept.shared[dealer].signed, self._kept.keys_of(dealer)
            self.evidence.append(WrongDealing(dealer, kind, signed, keys_signed, used))
            raise ProtocolError("a member dealt wrong shares, so the sum cannot be opened.")
        return secret

    def _wrong(
        self, kind: Kind, dealer: int, holder: int, share: bytes, opening: Opening
    ) -> WrongShare:
        return WrongShare(
            dealer,
            holder,
            kind,
            share,
            self._kept.shared[dealer].signed,
            list(self._dealings.boxes_to(holder).values()),
            self._kept.survivors[holder].receipt,
            Opening.digests(opening.masks, opening.keys),
            opening.signature,
        )
