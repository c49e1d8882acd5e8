"""The server's side of local reports: takes each one once, keeps only sums, survives a crash."""

import hashlib
import sqlite3
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fedgauge import storage
from fedgauge.arrays import Floats
from fedgauge.errors import FedgaugeError, IntakeError, LedgerError, PlanError, ReportRefused
from fedgauge.local.messages import LevelReports, Reason, ReportFormat
from fedgauge.plan import EvaluationPlan
from fedgauge.privacy.oracles import Tallies, debias_drawn
from fedgauge.storage import require_local

FILE_NAME: Final = "reports.sqlite"
SECOND_NAME: Final = "second.sqlite"  # of a second round, in the folder of its first or another
_APPLICATION: Final = 0x66675231  # "fgR1", which tells an intake from other SQLite files
_TOGETHER: Final = 1 << 22  # bytes of messages, or one more, that are stored by one sync
_WAIT_SECONDS: Final = 60.0
_MARK_BYTES: Final = 16


class Receipt(NamedTuple):
    """How many reports were accepted, and by reason how many reports or messages were refused."""

    accepted: int
    refused: Mapping[str, int]


class _Marks(NamedTuple):
    """What is kept of a report: digests of its id, and of all of it, which hide both."""

    id: bytes
    report: bytes


class ReportCounts(NamedTuple):
    """Unbiased counts by channel and node of each level, the variance of one node, and reports."""

    levels: list[Floats]
    variances: tuple[float, ...]
    reports: int


class ReportServer:
    """Takes local reports in any order, from any transport, and adds them up.

    A report counts once, however often it comes: two digests of it are remembered, from which it
    cannot be read. Another one under its id counts too, or whoever knows the id could keep it out
    by being faster; `conflicts` says how many there are. What :meth:`accept` has returned survives
    the end of the process and of the machine, where there is a folder. Several threads and
    processes can share one.

    Of two rounds each has a server, under the plan of that round. The first takes no more after
    :meth:`close_round`. No id is of both, so neither needs to know what the other took in.

    Memory holds one message and the sums of each level. The digests are on disk; without a folder
    they are in memory too, about 60 bytes for each report.

    Parameters
    ----------
    plan
        A plan for local reports.
    folder
        Where to keep sums and ids, on a local disk; made if need be. Without one all is lost with
        the object.

    Examples
    --------
    >>> plan = fg.EvaluationPlan.for_reports(fg.Axis.uniform(64, outside="clip"), fg.LocalDP(1.0))
    >>> (message,) = fg.encode_rows(plan, ([0, 1], [0.2, 0.7]))
    >>> with fg.ReportServer(plan) as server:
    ...     server.accept(message).accepted, server.accept(message).accepted, server.reports
    (2, 0, 2)
    """

    def __init__(self, plan: EvaluationPlan, folder: str | Path | None = None) -> None:
        self._plan = plan
        self._format = ReportFormat(plan)
        name = FILE_NAME if plan.found is None else SECOND_NAME
        self._path = None if folder is None else Path(folder) / name
        self._alone = threading.Lock()
        with self._errors():
            if self._path is not None:
                _prepare(self._path)
            self._connection = self._connect()
            try:
                with self._transaction():
                    self._check_schema()
            except BaseException:
                self._connection.close()
                raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files; everything accepted is in them."""
        self._connection.close()

    @property
    def plan(self) -> EvaluationPlan:
        """What is measured."""
        return self._plan

    @property
    def form(self) -> ReportFormat:
        """The form of the reports."""
        return self._format

    @property
    def reports(self) -> int:
        """Reports accepted."""
        return sum(count for count, _ in self._levels())

    @property
    def refused(self) -> Mapping[str, int]:
        """Refusals by reason: reports that came twice, and messages refused whole."""
        with self._errors(), self._alone:
            return MappingProxyType(self._read_refused())

    @property
    def conflicts(self) -> int:
        """Reports that came under the id of another one; all of them count."""
        with self._errors(), self._alone:
            (found,) = self._connection.execute("SELECT count(*) FROM conflicts").fetchone()
            return int(found)

    def accept(self, message: bytes) -> Receipt:
        """Take the reports of one message; on return they are stored for good."""
        return self._store([message])

    def accept_all(self, messages: Iterable[bytes]) -> Receipt:
        """Take many messages, with one sync of the disk for every few of them."""
        accepted, refused = 0, Counter[str]()
        for some in _together(messages):
            receipt = self._store(some)
            accepted += receipt.accepted
            refused.update(receipt.refused)
        return Receipt(accepted, MappingProxyType(dict(refused)))

    @property
    def is_closed(self) -> bool:
        """Whether this is a first round, and over."""
        with self._errors(), self._alone:
            return self._closed_with() is not None

    def close_round(self, make: Callable[[ReportCounts], bytes]) -> bytes:
        """End the first of two rounds; what is made of its counts, which is published.

        It is made once: all further calls return the same bytes, also after a crash, so that nobody
        sees two second rounds. No report is counted that came later.
        """
        if not self._plan.is_search:
            raise PlanError("only the first of two rounds is closed to find bins.")
        with self._errors(), self._alone, self._transaction():
            before = self._closed_with()
            if before is not None:
                return before
            made = make(self._counts(self._read_levels()))
            self._connection.execute("INSERT INTO closed VALUES (?)", (made,))
        return made

    def _closed_with(self) -> bytes | None:
        if not self._plan.is_search:
            return None
        row = self._connection.execute("SELECT content FROM closed").fetchone()
        if row is not None and not isinstance(row[0], bytes):
            raise _damaged()
        return None if row is None else row[0]

    def counts(self) -> ReportCounts:
        """What all reports accepted so far add up to."""
        return self._counts(self._levels())

    def _counts(self, by_level: list[tuple[int, Tallies]]) -> ReportCounts:
        reports, tallies = zip(*by_level, strict=True)
        blocks = self._plan.reported.by_block(self._plan.terms)
        levels = debias_drawn(blocks, tallies, reports, self._plan.task.layout.sizes)
        return ReportCounts(levels, self._plan.noise_variances(sum(reports)), sum(reports))

    def _store(self, messages: Sequence[bytes]) -> Receipt:
        refused = Counter[str]()
        read: list[list[LevelReports]] = []
        for message in messages:
            try:
                read.append(self._format.read(message))
            except ReportRefused as error:
                refused[str(error)] += 1
        with self._errors(), self._alone, self._transaction():
            accepted = 0
            if read and self._closed_with() is not None:
                for late in read:
                    refused.update(self._why_late(late))
                read = []
            for level, parts in enumerate(zip(*read, strict=True)):
                fresh = self._remember([marks for part in parts for marks in _marks(level, part)])
                self._add(level, np.concatenate([part.payloads for part in parts])[fresh])
                accepted += int(np.count_nonzero(fresh))
                refused[Reason.DUPLICATE] += len(fresh) - int(np.count_nonzero(fresh))
            refused = +refused
            self._connection.executemany(
                "INSERT INTO refused VALUES (?, ?) "
                "ON CONFLICT (reason) DO UPDATE SET count = count + excluded.count",
                [(str(reason), count) for reason, count in refused.items()],
            )
        plain = {str(reason): count for reason, count in refused.items()}
        return Receipt(accepted, MappingProxyType(plain))

    def _why_late(self, levels: list[LevelReports]) -> Mapping[Reason, int]:
        """Why a message is refused after the round: of reports that came before nothing is lost."""
        reports = [marks for level, part in enumerate(levels) for marks in _marks(level, part)]
        known = all(self._connection.execute(_KNOWN, marks).fetchone() for marks in reports)
        return {Reason.DUPLICATE: len(reports)} if known else {Reason.CLOSED: 1}

    def _remember(self, reports: list[_Marks]) -> NDArray[np.bool_]:
        """Note reports; which of them are new."""
        before = self._connection.total_changes
        self._connection.execute("SAVEPOINT ids")
        # In order, so that neighbours share pages.
        self._connection.executemany(_NEW_ID, sorted(reports))
        if self._connection.total_changes - before == len(reports):
            return np.ones(len(reports), dtype=bool)
        self._connection.execute("ROLLBACK TO ids")
        return np.array([self._is_new(marks) for marks in reports], dtype=bool)

    def _is_new(self, marks: _Marks) -> bool:
        if self._connection.execute(_NEW_ID, marks).rowcount == 1:
            return True
        if self._connection.execute(_KNOWN, marks).fetchone():
            return False
        self._connection.execute("INSERT INTO conflicts VALUES (?)", (marks.report,))
        return True

    def _add(self, level: int, payloads: NDArray[np.uint8]) -> None:
        # Read and written in one transaction, so that processes do not undo each other's sums.
        _, tallies = self._read_level(level)
        self._format.oracles[level].add(tallies, payloads)
        self._connection.execute(
            "UPDATE levels SET reports = reports + ?, tallies = ? WHERE level = ?",
            (len(payloads), tallies.astype("<i8").tobytes(), level),
        )

    def _levels(self) -> list[tuple[int, Tallies]]:
        with self._errors(), self._alone:
            return self._read_levels()

    def _read_levels(self) -> list[tuple[int, Tallies]]:
        return [self._read_level(level) for level in range(len(self._format.oracles))]

    def _read_level(self, level: int) -> tuple[int, Tallies]:
        # SQLite keeps what it is given, whatever a column is declared as.
        about = "SELECT reports, tallies FROM levels WHERE level = ?"
        match self._connection.execute(about, (level,)).fetchone():
            case (int(reports), bytes(data)) if reports >= 0:
                if len(data) == 8 * self._format.oracles[level].tallies:
                    return reports, np.frombuffer(data, "<i8").astype(np.int64)
        raise _damaged()

    def _read_refused(self) -> dict[str, int]:
        found = self._connection.execute("SELECT reason, count FROM refused ORDER BY reason")
        rows = found.fetchall()
        if not all(isinstance(count, int) for _, count in rows):
            raise _damaged()
        return dict(rows)

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            ":memory:" if self._path is None else f"{self._path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=_WAIT_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            _check_owner(connection, self._path)  # other programs keep their own mode
            connection.execute("PRAGMA journal_mode=WAL")
            # Every commit is on the disk before it returns; in this mode by one sync.
            connection.execute("PRAGMA synchronous=FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _check_schema(self) -> None:
        """Make the tables in a new file; refuse one of another plan."""
        if _check_owner(self._connection, self._path):
            self._make_schema()
            return
        row = self._connection.execute("SELECT content FROM plan").fetchone()
        if row is None:
            raise _damaged()
        if row != (self._plan.to_bytes(),):
            raise IntakeError(
                f"{self._path} takes reports of another plan. Use a folder for each plan."
            )
        self._read_levels()
        self._read_refused()

    def _make_schema(self) -> None:
        for statement in (*_SCHEMA, _CLOSED) if self._plan.is_search else _SCHEMA:
            self._connection.execute(statement)
        self._connection.execute("INSERT INTO plan VALUES (?)", (self._plan.to_bytes(),))
        self._connection.executemany(
            "INSERT INTO levels VALUES (?, 0, ?)",
            [
                (level, np.zeros(oracle.tallies, dtype="<i8").tobytes())
                for level, oracle in enumerate(self._format.oracles)
            ],
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FedgaugeError:
            raise
        except (sqlite3.Error, UnicodeDecodeError) as error:  # SQLite quotes the file
            raise IntakeError(_explain(error, self._path)) from None
        except OSError as error:
            raise IntakeError(f"cannot use the intake {self._path}: {error.strerror}.") from None


_NEW_ID: Final = "INSERT OR IGNORE INTO seen VALUES (?, ?)"
_KNOWN: Final = (
    "SELECT 1 FROM seen WHERE id = ?1 AND report = ?2 "
    "UNION ALL SELECT 1 FROM conflicts WHERE report = ?2"
)
_SCHEMA: Final = (
    f"PRAGMA application_id={_APPLICATION}",
    "CREATE TABLE plan (content BLOB NOT NULL)",
    "CREATE TABLE levels "
    "(level INTEGER PRIMARY KEY, reports INTEGER NOT NULL, tallies BLOB NOT NULL)",
    "CREATE TABLE seen (id BLOB PRIMARY KEY, report BLOB NOT NULL) WITHOUT ROWID",
    "CREATE TABLE conflicts (report BLOB PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE refused (reason TEXT PRIMARY KEY, count INTEGER NOT NULL)",
)
_CLOSED: Final = "CREATE TABLE closed (content BLOB NOT NULL)"


def _marks(level: int, part: LevelReports) -> Iterator[_Marks]:
    about = struct.pack("<I", level)
    for row, payload in zip(map(bytes, part.ids), map(bytes, part.payloads), strict=True):
        # Payloads are short, and could be guessed from a digest beside a bare id.
        yield _Marks(_mark(row), _mark(row + about + payload))


def _mark(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_MARK_BYTES).digest()


def _together(messages: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Messages in groups whose size is bounded, as memory is."""
    some: list[bytes] = []
    size = 0
    for message in messages:
        some.append(message)
        size += len(message)
        if size >= _TOGETHER:
            yield some
            some, size = [], 0
    if some:
        yield some


def _check_owner(connection: sqlite3.Connection, path: Path | None) -> bool:
    """Whether the file is new; refuses one of another program."""
    # One statement, so one state of the file: another process may be making it.
    application, objects = connection.execute(
        "SELECT application_id, (SELECT count(*) FROM sqlite_master) FROM pragma_application_id"
    ).fetchone()
    if (application, objects) == (0, 0):
        return True
    if application != _APPLICATION:
        raise IntakeError(f"{path} is another program's file, not an intake.")
    return False


def _prepare(path: Path) -> None:
    """Make the folder and an empty file that only its owner can read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        require_local(path)
    except LedgerError:
        raise IntakeError(
            f"{path} is on a filesystem shared between machines, where nothing is stored for "
            "good when a call returns. Use a folder on a local disk."
        ) from None
    if path.exists() and not path.is_file():
        raise IntakeError(f"the intake {path} is not a file. Use another folder.")
    if not path.exists():
        with suppress(FileExistsError):  # another process was faster
            storage.write_new(path, b"")


def _damaged() -> sqlite3.Error:
    """What SQLite would say, had it looked at values."""
    return sqlite3.DatabaseError("damaged")


def _explain(error: Exception, path: Path | None) -> str:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"the intake {path} is in use by another program. Close it and try again."
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return f"the intake {path} cannot be written. Check its permissions and its folder's."
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return f"the intake {path} cannot be written: the disk is full or fails."
    return f"{path} is not an intake, or is damaged. Start a new folder with all reports."
