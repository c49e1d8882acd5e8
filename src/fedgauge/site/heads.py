"""The end of a chain, kept in small files: the head beside the key, a witness far from it."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from fedgauge.errors import LedgerError
from fedgauge.storage import durable
from fedgauge.storage.ownership import require_own
from fedgauge.storage.whole import bounded, open_regular, read_bounded

_MOST_BYTES: Final = 1000  # a head has fewer than 200
_GENESIS: Final = hashlib.sha256(b"fedgauge-ledger/1").hexdigest()
_HEAD: Final = re.compile(r"fedgauge-head/1 (0|[1-9][0-9]{0,17}) ([0-9a-f]{64})\n")
LOST: Final = (
    "Put the latest ledger back. If it is lost, what was spent is unknown: take the budget of "
    "its datasets as used up."
)


class Head(NamedTuple):
    """The number of the last line, 0 before the first, and its hash."""

    number: int
    digest: str

    def then(self, line: str) -> "Head":
        """The head after one more line."""
        # The digest before has a fixed length, so no two histories read as the same bytes.
        data = bytes.fromhex(self.digest) + line.encode()
        return Head(self.number + 1, hashlib.sha256(data).hexdigest())

    @classmethod
    def parse(cls, data: bytes) -> "Head | None":
        """The head that a file holds; None where it holds none."""
        match = _HEAD.fullmatch(data.decode("ascii", errors="replace"))
        return None if match is None else cls(int(match[1]), match[2])

    def to_bytes(self) -> bytes:
        """As a file holds it."""
        return f"fedgauge-head/1 {self.number} {self.digest}\n".encode()


START: Final = Head(0, _GENESIS)


class HeadFile:
    """The head of a ledger, beside the site's key."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def lock(self) -> Path:
        """The lock file of whoever reads and writes it."""
        return self.path.with_name(f"{self.path.name}.lock")

    def read(self) -> Head | None:
        """What it says; None where there is no file."""
        try:
            with open_regular(self.path) as file:
                opened, data = os.fstat(file.fileno()), bounded(file, _MOST_BYTES)
        except FileNotFoundError:
            return None
        require_own(self.path, LedgerError, opened=opened, private=True)
        head = Head.parse(data)
        if head is None:
            raise LedgerError(f"the head {self.path} of the ledger is damaged. {LOST}")
        return head

    def write(self, head: Head) -> None:
        """Say so from now on."""
        durable.replace(self.path, head.to_bytes())


class Witness:
    """A second head, on another disk or machine, that no copy of the site's folder brings along.

    Who else can write to it is not asked: shares and sticks often have no owners, and whoever
    changes it alone can stop the site, not make it spend again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    def exists(self) -> bool:
        """Whether there is one."""
        with self._within_reach():
            return self.path.exists()

    @contextmanager
    def held(self, timeout: float) -> Iterator[None]:
        """Keep others from it, who may be copies of this site on other machines."""
        with ExitStack() as stack:
            with self._within_reach():
                if not self.path.exists():  # no lock is made in the place of an absent disk
                    raise self._missing()
                lock = self.path.with_name(f"{self.path.name}.lock")
                stack.enter_context(durable.locked(lock, timeout))
            yield

    def read(self) -> Head:
        """What it says."""
        with self._within_reach():
            head = Head.parse(read_bounded(self.path, _MOST_BYTES))
        if head is None:
            raise LedgerError(f"the witness {self.path} of the ledger is damaged. {self._anew}")
        return head

    def write(self, head: Head) -> None:
        """Say so from now on."""
        with self._within_reach():
            durable.replace(self.path, head.to_bytes())

    @contextmanager
    def _within_reach(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise self._missing() from None
        except OSError as error:
            raise LedgerError(
                f"cannot use the witness {self.path} of the ledger: {error.strerror}. Mend its "
                "disk or share, and try again."
            ) from None

    def _missing(self) -> LedgerError:
        return LedgerError(
            f"the witness {self.path} of the ledger is out of reach. Mount its disk or share, and "
            f"try again. {self._anew}"
        )

    @property
    def _anew(self) -> str:
        return (
            "If it is lost, make sure that this folder is the latest and only copy of the site, "
            "take the line `witness` out of the site file, and run `fedgauge site witness`."
        )
