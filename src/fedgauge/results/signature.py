"""Who signed a result, what its members confirmed, and whether it was edited since.

The coordinator signs what was released: all of the saved result but the estimator, the level, the
map that scores are read through, and the numbers that follow from these and the counts. Such
numbers are computed again and compared. The proof also holds the signed invitation and the members'
signatures under who took part. The counts rest on the coordinator's word: nobody else sees the sum.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

import msgspec

from fedgauge.errors import FedgaugeError, RecordError
from fedgauge.keys import SigningKey, key_to_text, verify
from fedgauge.results.record import Record
from fedgauge.secagg import Confirmed, Invitation, Stage
from fedgauge.secagg.graph import MOST_MEMBERS
from fedgauge.secagg.messages import Vote, agreement, from_bitmap

State = Literal["verified", "unknown key", "unsigned", "broken"]

_SIGNED_AS: Final = b"fedgauge result\0"  # no message of a protocol begins like this
_MOST_INVITATION: Final = 1 << 24  # bytes: keys of 20,000 members and a plan need far less
_DERIVED: Final = ("estimator", "level", "calibrator")
_DERIVED_OF_SLICE: Final = ("variances", "metrics", "curves")
# Libraries round differently from version to version; a smaller edit changes nothing.
_RELATIVE: Final = 1e-6
_ABSOLUTE: Final = 1e-9
_SHORT_KEY: Final = 16  # characters that tell keys apart in a picture

_CHANGED: Final = "it was changed after it was signed"
_UNREADABLE: Final = "its proof cannot be read"


class Proof(msgspec.Struct, frozen=True):
    """What a result carries beside its numbers, as saved: bytes are base64.

    `invitation` is signed and holds the plan, the keys of members and coordinator, and the session;
    the sets are bitmaps over its members; `setting` is a digest of what else members agreed on,
    such as the config of a run; `votes` are what they signed about all that.
    """

    invitation: bytes
    present: bytes
    sharers: bytes
    survivors: bytes
    setting: bytes
    votes: tuple[Vote, ...]
    signature: bytes


class _Proved(msgspec.Struct, frozen=True):
    """The proof in a result, read without the rest."""

    proof: Proof


@dataclass(frozen=True)
class Signature:
    """Whether a result is what its coordinator signed and its members confirmed.

    Attributes
    ----------
    state
        ``"verified"``: signed by a key that was named to :meth:`by`. ``"unknown key"``: all fits
        together, but the key was not checked. ``"unsigned"``: nothing shows whether it was edited.
        ``"broken"``: it is not what was signed.
    reason
        Why it is broken.
    key, name
        The coordinator's public key, and its name where known.
    members
        Public keys of the sites that confirmed who is in the sum.
    clients, invited
        How many sites are in the sum; how many were asked.
    session
        Id of the evaluation that they confirmed.
    model
        Digest of the model that was sent to be evaluated, if any.
    simulated
        Whether the result itself says that no protocol ran.
    compared
        Whether the key was compared with named ones.

    Examples
    --------
    >>> fg.evaluate({"a": ([0, 1, 1], [0.2, 0.7, 0.9])}).signature.state
    'unsigned'
    """

    state: State
    reason: str = ""
    key: str | None = None
    name: str | None = None
    members: tuple[str, ...] = ()
    clients: int = 0
    invited: int = 0
    session: str | None = None
    model: str | None = None
    simulated: bool = False
    compared: bool = False

    def by(self, known: Mapping[bytes, str]) -> Self:
        """Verified if it was signed by one of these public keys, given with their names."""
        names = {key_to_text(key): name for key, name in known.items()}
        if self.state != "unknown key" or not names:
            return self
        if self.key in names:
            return replace(self, state="verified", name=names[self.key], compared=True)
        return replace(self, compared=True)

    def as_broken(self, reason: str) -> Self:
        """The same, once something turned out not to fit."""
        return replace(self, state="broken", reason=reason)

    @property
    def in_words(self) -> str:
        """The state in one line."""
        confirmed = f"confirmed by {len(self.members):,} of {self.clients:,} sites"
        match self.state:
            case "verified":
                return f"verified: signed by {self.name or self.key}, {confirmed}"
            case "unknown key":
                whose = "not one that was named" if self.compared else "not checked"
                return f"signed by an unknown key: {self.key}, {whose}; {confirmed}"
            case "broken":
                return f"BROKEN: {self.reason}"
            case _:
                if self.simulated:
                    return "unsigned: simulated"
                return "unsigned: nothing shows who made the result, or whether it was edited"

    @property
    def in_brief(self) -> str:
        """The state in a few words, for a picture."""
        match self.state:
            case "verified":
                return f"verified: signed by {self.name or self._short_key}"
            case "unknown key":
                whose = "unknown key" if self.compared else "key not checked"
                return f"signed by {self._short_key}, {whose}"
            case "broken":
                return self.in_words
            case _:
                return "simulated" if self.simulated else "unsigned"

    @property
    def _short_key(self) -> str:
        return f"{(self.key or '')[:_SHORT_KEY]}..."


def prove(record: Record, confirmed: Confirmed, key: SigningKey) -> dict[str, Any]:
    """The proof of a result, as plain data, signed with the coordinator's key."""
    proof = msgspec.json.decode(msgspec.json.encode(Proof(*confirmed, signature=b"")))
    unsigned = msgspec.structs.replace(record, proof=proof)
    signature = key.sign(_covered(msgspec.json.decode(unsigned.to_json())))
    return {**proof, "signature": msgspec.to_builtins(signature)}


def examine(saved: bytes, record: Record) -> Signature:
    """Whether a saved result, unknown fields included, is what was signed and confirmed."""
    simulated = record.privacy.claim == "simulated"
    if record.proof is msgspec.UNSET:
        return Signature("unsigned", simulated=simulated)
    try:
        return _checked(json.loads(saved, object_pairs_hook=_once_each), record)
    except RecordError as error:
        return Signature("broken", str(error), simulated=simulated)
    except (msgspec.MsgspecError, FedgaugeError, ValueError, OverflowError, RecursionError):
        return Signature("broken", _UNREADABLE, simulated=simulated)


def is_signed(saved: bytes, invitation: Invitation) -> bool:
    """Whether the coordinator of an evaluation signed this as its result."""
    try:
        # Objects are made of nothing else: junk of many lists takes many times its size.
        if msgspec.json.decode(saved, type=_Proved).proof.invitation != invitation.data:
            return False
        fields = json.loads(saved, object_pairs_hook=_once_each)
        proof = msgspec.convert(fields["proof"], Proof)
        covered = _covered(fields)
    except (LookupError, TypeError, ValueError, OverflowError, RecursionError, FedgaugeError):
        return False
    of_it = proof.invitation == invitation.data
    return of_it and verify(invitation.coordinator, covered, proof.signature)


def follows(saved: bytes, record: Record) -> bool:
    """Whether metrics, curves and variances, as far as saved, are those of a record made anew."""
    stored = msgspec.json.decode(saved)["slices"]
    again = msgspec.json.decode(record.to_json())["slices"]
    for old, new in zip(stored, again, strict=True):
        for part in ("metrics", "curves"):
            for name, value in old[part].items():
                if name not in new[part] or not (value is None or _same(value, new[part][name])):
                    return False
        if not _same(old.get("variances"), new.get("variances")):
            return False
    return True


def _checked(saved: dict[str, Any], record: Record) -> Signature:
    """The signature of a result in which everything fits; RecordError says what does not."""
    proof = msgspec.convert(record.proof, Proof)
    if len(proof.invitation) > _MOST_INVITATION or len(proof.votes) > MOST_MEMBERS:
        raise RecordError("its proof is too large")
    invitation = Invitation(proof.invitation)
    # Base64 has several texts for the same bytes, and this one is covered by no signature.
    if record.proof["signature"] != msgspec.to_builtins(proof.signature):
        raise RecordError(_CHANGED)
    if not verify(invitation.coordinator, _covered(saved), proof.signature):
        raise RecordError(_CHANGED)
    if record.privacy.claim != "enforced":
        raise RecordError("it says simulated, but only results between sites are signed")
    if invitation.plan.digest != record.plan.digest:
        raise RecordError("its plan is not the one that its members were invited to")
    members = _confirmed(proof, invitation, record)
    return Signature(
        "unknown key",
        key=key_to_text(invitation.coordinator),
        members=tuple(key_to_text(invitation.members[member]) for member in members),
        clients=record.clients,
        invited=len(invitation.members),
        session=invitation.session.hex(),
        model=invitation.model.hex() or None,
    )


def _confirmed(proof: Proof, invitation: Invitation, record: Record) -> list[int]:
    """The members who confirmed, if they are enough."""
    count = len(invitation.members)
    present, sharers, survivors = (
        from_bitmap(bits, count) for bits in (proof.present, proof.sharers, proof.survivors)
    )
    if not survivors <= sharers <= present:
        raise RecordError("sites are in its sum that did not take part from the start")
    if len(survivors) != record.clients:
        raise RecordError("its number of clients is not the one that its members confirmed")
    if len(survivors) < invitation.needed:
        raise RecordError("fewer sites are in its sum than its plan needs")
    told = agreement(
        invitation.session, proof.present, proof.sharers, proof.survivors, proof.setting
    ).to_bytes()
    voters = [vote.member for vote in proof.votes]
    if len(set(voters)) != len(voters) or not survivors.issuperset(voters):
        raise RecordError("it is confirmed by sites that are not in its sum, or twice by one")
    for vote in proof.votes:
        if not invitation.is_signed(vote.member, vote.signature, Stage.AGREE, told):
            raise RecordError("a site's confirmation is of something else")
    if len(voters) < invitation.votes_needed(len(survivors)):
        raise RecordError("too few of its sites confirmed it")
    return sorted(voters)


def _covered(saved: dict[str, Any]) -> bytes:
    """What the coordinator signs: the saved result without what follows from it."""
    facts = _without(saved, _DERIVED)
    facts["slices"] = [_without(part, _DERIVED_OF_SLICE) for part in saved["slices"]]
    facts["proof"] = _without(saved["proof"], ("signature",))
    # The standard library's numbers look the same in every version of Python.
    text = json.dumps(_plain(facts), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return _SIGNED_AS + text.encode("ascii")


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The fields of an object, refused where one comes twice: programs differ on which counts."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise RecordError("a field comes twice in it")
    return fields


def _without(fields: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(fields, dict):
        raise RecordError("it has something else where fields must be")
    return {name: value for name, value in fields.items() if name not in names}


def _plain(value: Any) -> Any:
    """The same data with one form for equal numbers: some programs write 1.0 as 1."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _same(old: Any, new: Any) -> bool:
    """Whether plain data is the same, numbers up to rounding; what is not there is None."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(_same(old.get(name), new.get(name)) for name in old.keys() | new.keys())
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same, old, new))
    if _is_number(old) and _is_number(new):
        return math.isclose(old, new, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
    return bool(old == new)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
