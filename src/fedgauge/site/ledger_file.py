"""The ledger's file: lines in SQLite, a hash chain, and a copy of its end, the witness."""

import hashlib
import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import reduce
from pathlib import Path
from typing import Final, NamedTuple

from fedgauge import storage
from fedgauge.errors import LedgerError
from fedgauge.storage import bounded, open_regular, read_bounded, require_local, require_own

_MOST_BYTES: Final = 1 << 20  # far more than a head has
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
        storage.replace(self.path, head.to_bytes())


class Witness:
    """A second head, on another disk or machine, that no copy of the site's folder brings along.

    Its owner is not asked: shares and sticks often have none, and whoever changes it alone can stop
    the site, not make it spend again.
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
                stack.enter_context(storage.locked(lock, timeout))
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
            storage.replace(self.path, head.to_bytes())

    @contextmanager
    def _within_reach(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise self._missing() from None
        except OSError as error:
            raise LedgerError(
                f"cannot use the witness {self.path} of the ledger: {error.strerror}. Repair its "
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


_APPLICATION: Final = 0x66674C31  # "fgL1", which tells a ledger from other SQLite files


class Pages:
    """The lines of an open chain; those appended are kept when the chain closes well."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = tuple(lines)
        self.added: list[str] = []

    def append(self, line: str) -> None:
        """Add a line at the end."""
        self.added.append(line)


class Chain:
    """A file of lines where nothing can be changed, removed or put back unnoticed.

    Every line is hashed together with the hash before it. The last hash is also written to a head
    file elsewhere: a chain that does not hold it is an old copy or was altered. This finds
    mistakes, restored backups and edits of one file. Where both are put back together, a witness
    tells: a second head at a place that is not.

    Notes
    -----
    What is added is written in this order: COMMIT, the witness, the head. A call returns after all
    three, and only what a call returned from lets anything leave the site.

    - Killed before COMMIT lasts: nothing was added, and both heads name a line of the ledger.
    - Killed after it: the ledger holds more than one or both heads say. The next call brings them
      up to date before it gives a line away, so nobody acts on a line that the witness does not
      know. It is the line of a call that did not return, and is found when the call is repeated.
    - Heads are written once the COMMIT lasts, power cuts included, so none is ever ahead of
      its ledger by a crash: one that is, or that names another line, is proof of an old copy.
      One that lags proves nothing (a share may lose its last writes, a process that started
      before the witness did writes none), and is mended.
    - A copy of the folder that lacks a line whose call returned is older than the witness. Of two
      copies in use, the witness names a line of the one that added last, and the other stops at its
      next call. Its lock keeps them apart meanwhile; where a share has no locks, two may add a line
      each at the same moment, and one of them gets no further: a session makes several calls
      before its numbers leave.
    """

    def __init__(
        self, path: Path, head: Path, *, timeout: float, witness: Path | None = None
    ) -> None:
        self._path, self._head, self._timeout = path.absolute(), HeadFile(head), timeout
        self._witness = None if witness is None else Witness(witness)

    def create(self) -> None:
        """Begin a chain where there is none."""
        with self._errors(), storage.locked(self._head.lock, self._timeout):
            require_local(self._path)
            # A head that names no line is what a killed call left: the head comes first.
            if self._path.exists() or self._head.read() not in (None, START):
                raise LedgerError(
                    f"ledger {self._path} or its head {self._head.path} exists, and neither is "
                    "ever created again."
                )
            self._head.write(START)
            storage.write_new(self._path, b"")

    @contextmanager
    def open(self) -> Iterator[Pages]:
        """Check the whole chain, give its lines, then add what was appended: all or nothing."""
        with self._errors(), self._alone():
            require_local(self._path)
            known = self._read_head()
            seen = None if self._witness is None else self._witness.read()
            with closing(self._connect()) as connection:
                connection.execute("BEGIN IMMEDIATE")
                lines, heads = self._read(connection)
                self._check_heads(known, seen, heads)
                if known != heads[-1] or seen not in (None, heads[-1]):  # killed after COMMIT
                    self._write_heads(heads[-1])
                pages = Pages(lines)
                yield pages
                if pages.added:
                    head = heads[-1]
                    for line in pages.added:
                        head = head.then(line)
                        row = (head.number, line, head.digest)
                        connection.execute("INSERT INTO entries VALUES (?, ?, ?)", row)
                    connection.execute("COMMIT")
                    self._write_heads(head)

    def appoint(self, witness: Path) -> None:
        """Write a first witness; one that is there must fit, as after a call that was killed."""
        file = Witness(witness)
        if not file.exists():
            with self.open() as pages:
                file.write(reduce(Head.then, pages.lines, START))
        with Chain(self._path, self._head.path, witness=witness, timeout=self._timeout).open():
            pass

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(storage.locked(self._head.lock, self._timeout))
            if self._witness is not None:
                stack.enter_context(self._witness.held(self._timeout))
            yield

    def _read_head(self) -> Head:
        known = self._head.read()
        if not self._path.exists():
            if known is not None:
                raise LedgerError(f"ledger {self._path} is gone. {LOST}")
            raise LedgerError(
                f"there is neither a ledger {self._path} nor its head {self._head.path}. A site is "
                "carried over as a whole: put both back."
            )
        if known is None:
            raise LedgerError(
                f"the head {self._head.path} of ledger {self._path} is gone, so nobody can tell "
                "whether the ledger is the latest. Put the head back from a copy made with it."
            )
        if not self._path.is_file():
            raise LedgerError(f"ledger {self._path} is not a file. {LOST}")
        require_own(self._path, LedgerError, private=True)
        # Whoever makes files there can make a journal, which SQLite would play back.
        require_own(self._path.resolve().parent, LedgerError)
        return known

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw", uri=True, timeout=self._timeout, isolation_level=None
        )
        try:
            connection.execute("PRAGMA synchronous=FULL")
            if _application(connection) == _APPLICATION:  # other programs keep their own mode
                connection.execute("PRAGMA journal_mode=DELETE")
        except BaseException:
            connection.close()
            raise
        return connection

    def _read(self, connection: sqlite3.Connection) -> tuple[list[str], list[Head]]:
        """All lines, and the head after each number of them."""
        self._check_schema(connection)
        lines: list[str] = []
        heads = [START]
        rows = connection.execute("SELECT number, line, digest FROM entries ORDER BY number")
        for number, line, digest in rows:
            if not isinstance(line, str):
                raise self._altered()
            head = heads[-1].then(line)
            if number != head.number or digest != head.digest:
                raise self._altered()
            lines.append(line)
            heads.append(head)
        return lines, heads

    def _check_schema(self, connection: sqlite3.Connection) -> None:
        (objects,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        application = _application(connection)
        if (objects, application, self._path.stat().st_size) == (0, 0, 0):
            connection.execute(f"PRAGMA application_id={_APPLICATION}")
            connection.execute(
                "CREATE TABLE entries "
                "(number INTEGER PRIMARY KEY, line TEXT NOT NULL, digest TEXT NOT NULL)"
            )
        elif application != _APPLICATION:
            raise LedgerError(f"{self._path} is another program's file, not a ledger.")

    def _check_heads(self, known: Head, seen: Head | None, heads: Sequence[Head]) -> None:
        if not _holds(heads, known):
            raise LedgerError(f"ledger {self._path} is an old copy, or was altered. {LOST}")
        if self._witness is not None and seen is not None and not _holds(heads, seen):
            raise LedgerError(
                f"ledger {self._path} lacks what its witness {self._witness.path} knows of: it is "
                "an old copy, or another copy of this site is in use. Keep the one that the "
                f"witness fits, and no other. {LOST}"
            )

    def _altered(self) -> LedgerError:
        return LedgerError(f"ledger {self._path} was altered or is damaged. {LOST}")

    def _write_heads(self, head: Head) -> None:
        # SQLite commits by deleting its journal. Heads may say so only once the deletion
        # lasts, or a power cut would leave one that is ahead of its ledger.
        storage.sync_folder(self._path.parent)
        if self._witness is not None:
            self._witness.write(head)
        self._head.write(head)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes the file
            raise LedgerError(self._explain(error)) from None
        except OSError as error:
            raise LedgerError(
                f"cannot use ledger {self._path} with head {self._head.path}: {error.strerror}."
            ) from None

    def _explain(self, error: Exception) -> str:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return f"ledger {self._path} is in use by another program. Close it and try again."
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return f"ledger {self._path} cannot be written. Check its permissions and its folder's."
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return f"ledger {self._path} cannot be written: the disk is full or fails."
        return f"{self._path} is not a ledger, or is damaged. {LOST}"


def _holds(heads: Sequence[Head], head: Head) -> bool:
    return head.number < len(heads) and heads[head.number] == head


def _application(connection: sqlite3.Connection) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    return int(application)
