"""Two rounds of local reports: whether rows changed between them, the signed plan of the second."""

import hashlib
from collections.abc import Container
from functools import cached_property
from pathlib import Path
from typing import Final, Self

import msgspec
import numpy as np

from fedgauge import storage
from fedgauge.data.examples import Examples
from fedgauge.data.fingerprint import Fingerprint
from fedgauge.errors import PlanError, PlanRefused
from fedgauge.histograms.channels import ChannelReader
from fedgauge.keys import SigningKey, is_anybodys, key_from_text, key_to_text, verify
from fedgauge.plan import EvaluationPlan
from fedgauge.plan.limits import MOST_BYTES, check_bytes
from fedgauge.plan.task import measured_by
from fedgauge.storage import MALFORMED, open_regular, read_bounded

_BEGIN: Final = b'{"signer":'
_MORE_BYTES: Final = 1000  # than the plan has
_MODE: Final = 0o644  # the plan is public


class RowsInOrder:
    """A keyed digest of what can be reported of rows, in their order, to compare two rounds."""

    def __init__(self, plan: EvaluationPlan, key: bytes) -> None:
        self._reader = ChannelReader(measured_by(plan.task).layout, leniently=True)
        self._digest = hashlib.blake2b(key=key, digest_size=16, person=b"fedgauge order")
        self._rows = 0

    def add(self, batch: Examples) -> None:
        """Add rows."""
        columns = []
        for scores, channels in self._reader(batch):
            columns += [np.ascontiguousarray(scores, "<f8").view("<i8"), channels.astype("<i8")]
        # Row after row, so that it does not matter where batches end.
        self._digest.update(np.column_stack(columns).tobytes())
        self._rows += len(batch)

    def fingerprint(self) -> Fingerprint:
        """What tells these rows, in this order, from others."""
        return Fingerprint(self._rows, self._digest.hexdigest())


class _SignedPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A signed plan as it is sent; who signed comes first, and is judged first."""

    signer: str
    signature: bytes
    plan: msgspec.Raw


class SecondPlan:
    """The plan of a second round, signed by the intake that closed the first and found its bins.

    Made by :func:`fedgauge.local.encode.find_second`, read with :meth:`from_bytes` or :meth:`load`.
    The plan is read by :meth:`signed_by` alone: who signed is judged before.

    >>> from fedgauge import Axis, LocalDP, TwoRound
    >>> from fedgauge.plan.two_rounds import Found
    >>> two = TwoRound(4, coarse=Axis.uniform(4, 0.0, 4.0, outside="clip"))
    >>> plan = EvaluationPlan.for_reports(two, LocalDP(1.0))
    >>> key = SigningKey.generate()
    >>> second = SecondPlan.sign(plan.located(Found(two, (10, 50, 0, 10), 70)), key)
    >>> SecondPlan.from_bytes(second.data).signed_by([key.public]).whole == plan
    True
    """

    def __init__(self, data: bytes, form: _SignedPlan) -> None:
        self.data = data
        self._form = form
        self.signer = key_from_text(form.signer)

    @classmethod
    def sign(cls, plan: EvaluationPlan, key: SigningKey) -> Self:
        """The plan of a second round, signed."""
        content = plan.to_bytes()
        form = _SignedPlan(
            key_to_text(key.public), key.sign(_signed(content)), msgspec.Raw(content)
        )
        return cls(msgspec.json.encode(form), form)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a signed plan; neither signature nor plan are looked at yet."""
        check_bytes(len(data) - _MORE_BYTES)
        try:
            form = msgspec.json.decode(data, type=_SignedPlan)
        except MALFORMED:
            raise PlanError(
                "this is not the signed plan of a second round, or it is damaged. Fetch it again "
                "from the intake."
            ) from None
        return cls(data, form)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a file of it."""
        try:
            return cls.from_bytes(read_bounded(path, MOST_BYTES + _MORE_BYTES))
        except OSError as error:
            raise PlanError(f"cannot read plan {path}: {error.strerror}.") from None

    def save(self, path: str | Path) -> None:
        """Write it to a file, for everybody who reports."""
        try:
            storage.replace(Path(path), self.data, mode=_MODE)
        except OSError as error:
            raise PlanError(f"cannot write {path}: {error.strerror}.") from None

    def signed_by(self, signers: Container[bytes]) -> EvaluationPlan:
        """The plan, if one of these public keys signed it, and its bins follow from its counts."""
        if self.signer not in signers or is_anybodys(self.signer):
            raise PlanRefused(
                f"the second plan is signed with {self._form.signer}, which is not approved here. "
                "If that is the key of the server that collects the reports, add it to the site "
                "file as one of the coordinators."
            )
        if not verify(self.signer, _signed(bytes(self._form.plan)), self._form.signature):
            raise PlanRefused(
                f"the second plan is not what {self._form.signer} signed. Fetch it again from the "
                "intake."
            )
        return self._plan

    @cached_property
    def _plan(self) -> EvaluationPlan:
        plan = EvaluationPlan.from_bytes(bytes(self._form.plan))
        if plan.found is None or not plan.privacy.sends_reports:
            raise PlanRefused("what was signed is not the plan of a second round of reports.")
        return plan


def load_plan(path: str | Path) -> EvaluationPlan | SecondPlan:
    """Read a plan from a file, whether or not it is the signed one of a second round."""
    try:
        with open_regular(path) as file:
            is_signed = file.read(len(_BEGIN)) == _BEGIN
    except OSError:
        is_signed = False  # and refused below
    return SecondPlan.load(path) if is_signed else EvaluationPlan.load(path)


def read_plan(path: str | Path) -> EvaluationPlan:
    """The plan in a file, whoever signed it: for those who do not report under it."""
    plan = load_plan(path)
    return plan.signed_by([plan.signer]) if isinstance(plan, SecondPlan) else plan


def _signed(plan: bytes) -> bytes:
    return b"fedgauge second plan\0" + plan
