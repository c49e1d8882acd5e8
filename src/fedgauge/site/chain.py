"""Lines of text that can only be added to: SQLite, a hash chain, and the head kept elsewhere."""

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from fedgauge.errors import LedgerError
from fedgauge.storage import durable
from fedgauge.storage.mounts import require_local

_APPLICATION: Final = 0x66674C31  # "fgL1", which tells a ledger from other SQLite files
_GENESIS: Final = hashlib.sha256(b"fedgauge-ledger/1").hexdigest()
_HEAD: Final = re.compile(r"fedgauge-head/1 (0|[1-9][0-9]{0,17}) ([0-9a-f]{64})\n")
_LOST: Final = (
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


_START: Final = Head(0, _GENESIS)


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

    Every line is hashed together with the hash before it. The last hash is also written to a
    head file elsewhere: a chain that does not hold it is an old copy or was altered. This
    finds mistakes, restored backups and edits of one file, not an owner who rewrites or puts
    back both.

    Parameters
    ----------
    path
        The SQLite file.
    head
        The head file. A lock file lies beside it.
    timeout
        Seconds to wait for other processes.
    """

    def __init__(self, path: Path, head: Path, *, timeout: float) -> None:
        self._path, self._head, self._timeout = path.absolute(), head.absolute(), timeout

    @contextmanager
    def open(self) -> Iterator[Pages]:
        """Check the whole chain, give its lines, then add what was appended: all or nothing."""
        with (
            self._errors(),
            durable.locked(self._head.with_name(f"{self._head.name}.lock"), self._timeout),
        ):
            require_local(self._path)
            known = self._prepare()
            with closing(self._connect()) as connection:
                connection.execute("BEGIN IMMEDIATE")
                lines, heads = self._read(connection)
                self._check_head(known, heads)
                if known != heads[-1]:  # ended between COMMIT and the writing of the head
                    self._write_head(heads[-1])
                pages = Pages(lines)
                yield pages
                if pages.added:
                    head = _insert(connection, heads[-1], pages.added)
                    connection.execute("COMMIT")
                    self._write_head(head)

    def _prepare(self) -> Head | None:
        """The head, after making a new chain where there is none."""
        known = self._read_head()
        if self._path.exists():
            return known
        if known is not None and known.number:
            raise LedgerError(f"ledger {self._path} is gone. {_LOST}")
        # The head comes first: entries without a head are then never the trace of a crash.
        self._write_head(_START, folder=False)
        durable.write_new(self._path, b"")
        return _START

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self._path.as_uri()}?mode=rw",
            uri=True,
            timeout=self._timeout,
            isolation_level=None,
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
        heads = [_START]
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

    def _check_head(self, known: Head | None, heads: Sequence[Head]) -> None:
        if known is None and len(heads) > 1:
            raise LedgerError(
                f"the head {self._head} of ledger {self._path} is gone, so nobody can tell "
                "whether the ledger is the latest. Put the head back from a copy made with it."
            )
        if known is not None and (known.number >= len(heads) or heads[known.number] != known):
            raise LedgerError(f"ledger {self._path} is an old copy, or was altered. {_LOST}")

    def _altered(self) -> LedgerError:
        return LedgerError(f"ledger {self._path} was altered or is damaged. {_LOST}")

    def _read_head(self) -> Head | None:
        try:
            text = self._head.read_bytes().decode("ascii", errors="replace")
        except FileNotFoundError:
            return None
        match = _HEAD.fullmatch(text)
        if match is None:
            raise LedgerError(f"the head {self._head} of the ledger is damaged. {_LOST}")
        return Head(int(match[1]), match[2])

    def _write_head(self, head: Head, *, folder: bool = True) -> None:
        if folder:
            # SQLite commits by deleting its journal. The head may say so only once the deletion
            # lasts, or a power cut would leave a head that is ahead of its ledger.
            durable.sync_folder(self._path.parent)
        durable.replace(self._head, f"fedgauge-head/1 {head.number} {head.digest}\n".encode())

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise LedgerError(self._explain(error)) from None
        except OSError as error:
            raise LedgerError(
                f"cannot use ledger {self._path} with head {self._head}: {error.strerror}."
            ) from None

    def _explain(self, error: sqlite3.Error) -> str:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return f"ledger {self._path} is in use by another program. Close it and try again."
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            return f"ledger {self._path} cannot be written. Check its permissions and its folder's."
        if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            return f"ledger {self._path} cannot be written: the disk is full or fails."
        return f"{self._path} is not a ledger, or is damaged. {_LOST}"


def _application(connection: sqlite3.Connection) -> int:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    return int(application)


def _insert(connection: sqlite3.Connection, head: Head, lines: Sequence[str]) -> Head:
    for line in lines:
        head = head.then(line)
        connection.execute("INSERT INTO entries VALUES (?, ?, ?)", (head.number, line, head.digest))
    return head
