"""What a label party that answers alone hands to whoever scored: a few numbers, signed."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import msgspec

from fedgauge.errors import InputError, located
from fedgauge.keys import SigningKey, verify
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.paired import BYTES_PER_NUMBER
from fedgauge.vertical.party_file import covered, decoded, read_file

FORMAT: Final = "fedgauge-answer/1"
_SIGNED_AS: Final = b"fedgauge answer\0"
SESSION_BYTES: Final = 32
_MOST: Final = (1 << (8 * BYTES_PER_NUMBER - 1)) - 1


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A label party's numbers, private by themselves: noisy, or of labels as flipped.

    All answers to a plan have the same size, whatever is in them.

    Attributes
    ----------
    format
        ``"fedgauge-answer/1"``.
    party
        The party's public key.
    plan
        The digest of the plan, which names the bins or ranks that were told.
    session
        Random bytes, by which the party's ledger knows the answer.
    values
        The numbers, each in 16 little-endian bytes.
    signature
        The party's.

    Examples
    --------
    >>> from fedgauge import DistributedDP, EvaluationPlan
    >>> privacy = DistributedDP(1.0, unit="label", neighbours="flip")
    >>> plan = EvaluationPlan.for_pairs("adaptive", 5000, privacy)
    >>> answer = Answer.signed(SigningKey.generate(), plan, bytes(32), [12, -345])
    >>> Answer.from_bytes(answer.to_bytes()).numbers
    [12, -345]
    """

    format: str
    party: bytes
    plan: str
    session: bytes
    values: bytes
    signature: bytes

    @classmethod
    def signed(
        cls, key: SigningKey, plan: EvaluationPlan, session: bytes, numbers: Sequence[int]
    ) -> Self:
        """The answer to a plan."""
        # A wider number is far out in the noise of an epsilon that tells nothing: cut, it still
        # tells nothing, and takes as many bytes as any other.
        cut = (min(max(int(number), -_MOST), _MOST) for number in numbers)
        values = b"".join(
            number.to_bytes(BYTES_PER_NUMBER, "little", signed=True) for number in cut
        )
        unsigned = cls(FORMAT, key.public, plan.digest, session, values, b"")
        return msgspec.structs.replace(unsigned, signature=key.sign(covered(unsigned, _SIGNED_AS)))

    def to_bytes(self) -> bytes:
        """The answer as a file."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read an answer; refused unless it is whole, in its one form, and its party signed it."""
        answer = decoded(cls, data, FORMAT)
        if answer is None:
            raise InputError(
                f"this is not an answer as this fedgauge writes them ({FORMAT}), or not all of it."
            )
        if not verify(answer.party, covered(answer, _SIGNED_AS), answer.signature):
            raise InputError(
                "the answer was changed after its party signed it, or another one signed it. Ask "
                "the party to send it again."
            )
        if len(answer.values) % BYTES_PER_NUMBER or len(answer.session) != SESSION_BYTES:
            raise InputError("the answer is cut off.")
        return answer

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read the file of an answer."""
        with located(str(path)):
            return cls.from_bytes(read_file(path))

    def __len__(self) -> int:
        """How many numbers there are."""
        return len(self.values) // BYTES_PER_NUMBER

    @property
    def numbers(self) -> list[int]:
        """The numbers."""
        return [
            int.from_bytes(self.values[start : start + BYTES_PER_NUMBER], "little", signed=True)
            for start in range(0, len(self.values), BYTES_PER_NUMBER)
        ]
