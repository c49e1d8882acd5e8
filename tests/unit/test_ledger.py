"""What a site's ledger lets its data cost, and in which order things may happen."""

import errno
import fcntl
import math
import os
import sqlite3
import stat
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import PurePosixPath

import ledgers
import pytest
from ledgers import EXAMPLES, RULES, alter, every_call_fails, make_ledger, open_ledger, session
from refusals import refused

from fedgauge import storage
from fedgauge.errors import BudgetExceeded, LedgerError, PlanRefused
from fedgauge.site import Account, Cost, Ledger, ledger_file
from fedgauge.site.exact_sums import ExactSum
from fedgauge.site.ledger_entries import SumRoster

SUBJECTS = Account("stroke", "subject", "add-remove")
OTHER = Account("heart", "example", "add-remove")
SUMS = Account("stroke", "-", "-")
EXACT = Cost(math.inf, 0.0)
LIMIT = Cost(1.0, 1e-5)
reserve = partial(ledgers.reserve, limit=LIMIT)
spend = partial(ledgers.spend, limit=LIMIT)


def sites(*numbers):
    return [session(1000 + number) for number in numbers]


def over(*numbers):
    return ExactSum(SumRoster(frozenset(sites(*numbers)), len({*numbers})), "plan")


def test_a_refusal_says_what_was_asked_and_what_to_do_and_changes_nothing(ledger):
    spend(ledger, 1, 0.75)
    with pytest.raises(BudgetExceeded) as caught:
        reserve(ledger, 2, Cost(0.5, 1e-6))
    for part in (
        "stroke (all plans)",
        "limit epsilon 1, delta 1e-05",
        "spent or reserved epsilon 0.75, delta 0",
        "asked epsilon 0.5, delta 1e-06",
        "`fedgauge ledger set-limit`",
    ):
        assert part in str(caught.value)
    assert ledger.status(session(2)) is None
    assert len(ledger.entries()) == 2
    ledger.set_limit(EXAMPLES, Cost(0.5, 0.0))
    with pytest.raises(BudgetExceeded, match=r"stroke \(example, add-remove\).*limit epsilon 0\.5"):
        reserve(ledger, 1000, 0.1)
    reserve(ledger, 2, 0.2, SUBJECTS)
    refused(LedgerError, "new session", reserve, ledger, 2, 0.2)


STEPS = {
    "reserve": lambda ledger: reserve(ledger, 1, 0.1),
    "commit": lambda ledger: ledger.commit(session(1)),
    "release": lambda ledger: ledger.release(session(1)),
    "survive": lambda ledger: ledger.record_survivors(session(1), sites(1, 2, 3), rules=RULES),
}


@pytest.mark.parametrize(
    ("before", "step", "told"),
    [
        *((f"reserve {end}", "reserve", "new session") for end in ("commit", "release")),
        ("reserve commit", "release", "given back"),
        ("reserve release", "commit", "released"),
        *(("", step, "not in the ledger") for step in ("commit", "release", "survive")),
        *((begun, "survive", "has to be committed") for begun in ("reserve", "reserve release")),
    ],
)
def test_a_step_in_the_wrong_state_is_refused_and_changes_nothing(ledger, before, step, told):
    for each in before.split():
        STEPS[each](ledger)
    status = ledger.status(session(1))
    refused(LedgerError, told, STEPS[step], ledger)
    assert ledger.status(session(1)) == status


@pytest.mark.parametrize("bad", [b"", bytes(31), bytes(33), "0" * 32])
def test_a_session_id_is_32_bytes(ledger, bad):
    for call in (ledger.commit, ledger.release, ledger.status):
        refused(LedgerError, "32 bytes", call, bad)
    with pytest.raises(LedgerError, match="32 bytes"):
        ledger.reserve(bad, EXAMPLES, Cost(0.1, 0.0), default_limit=LIMIT)


@pytest.mark.parametrize("end", [None, "commit"])
@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ((0.1, SUBJECTS), (EXACT, SUMS), r"with noise was begun on.*void that promise"),
        ((EXACT, SUMS), (0.1, EXAMPLES), r"exact sum was begun on.*voids any promise"),
        ((EXACT, SUMS), (0.1, SUBJECTS), r"exact sum was begun on.*voids any promise"),
    ],
)
def test_exact_sums_and_promises_do_not_mix_on_one_dataset(ledger, end, first, second, told):
    reserve(ledger, 1, *first)
    if end:
        ledger.commit(session(1))
    refused(BudgetExceeded, rf"{told}.*mix_exact = true", reserve, ledger, 2, *second)
    reserve(ledger, 3, second[0], OTHER if second[1] != SUMS else Account("heart", "-", "-"))
    reserve(ledger, 2, *second, mix_exact=True)


def survive(ledger, number, *survivors, cost=EXACT, account=SUMS, min_cohort=3):
    """Take part in a sum to which others were invited who never came."""
    rules = RULES._replace(min_cohort=min_cohort)
    invited = over(*survivors, *range(100 * number, 100 * number + 6))
    spend(ledger, number, cost, account, mix_exact=True, exact=invited, rules=rules)
    ledger.record_survivors(session(number), sites(*survivors), rules=rules)


def test_survivors_are_recorded_once_and_a_refused_set_stays_spent(ledger):
    survive(ledger, 1, 1, 2, 3, 4)
    ledger.record_survivors(session(1), sites(4, 3, 2, 1), rules=RULES)
    with pytest.raises(LedgerError, match="other survivors"):
        ledger.record_survivors(session(1), sites(11, 12, 13), rules=RULES)
    with pytest.raises(PlanRefused):
        survive(ledger, 2, 1, 2, 3)
    assert ledger.status(session(2)) == "committed"
    assert [entry.session for entry in ledger.entries() if entry.survivors] == [session(1)]
    with pytest.raises(LedgerError, match="32 bytes"):
        ledger.record_survivors(session(2), [b"a", b"b", b"c"], rules=RULES)
    ledger.record_survivors(session(2), sites(1, 2, 3, 4), rules=RULES)
    with pytest.raises(PlanRefused, match="over 2 sites"):
        survive(ledger, 3, 1, 2, 2, 1)  # a site named twice counts once


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(-0.1, 0), (math.nan, 0), (0.1, -1e-9), (0.1, 1.1), (0.1, math.nan), (True, 0), ("1", 0),
     (None, 0), (0.1, math.inf), (10**400, 0)],
)  # fmt: skip
def test_a_cost_is_two_numbers(epsilon, delta):
    refused(LedgerError, r"epsilon|delta", Cost, epsilon, delta)


def test_a_limit_is_finite(ledger):
    refused(LedgerError, "finite", ledger.set_limit, EXAMPLES, EXACT)
    refused(LedgerError, "finite", reserve, ledger, 1, 0.1, limit=EXACT)


def test_entries_tell_everything(ledger):
    before = datetime.now(UTC) - timedelta(seconds=2)
    ledger.set_limit(SUMS, Cost(3.0, 1e-7))
    survive(ledger, 1, 3, 1, 2)
    limit, reserved, committed, recorded = entries = ledger.entries()
    assert [entry.number for entry in entries] == [1, 2, 3, 4]
    assert all(before < entry.time <= datetime.now(UTC) for entry in entries)
    assert (limit.kind, limit.account, limit.cost) == ("limit", SUMS, Cost(3.0, 1e-7))
    assert (reserved.kind, reserved.session) == ("reserve", session(1))
    assert (reserved.account, reserved.cost) == (SUMS, EXACT)
    assert reserved.roster == SumRoster(frozenset(sites(1, 2, 3, *range(100, 106))), 9)
    assert (committed.kind, committed.session, committed.cost) == ("commit", session(1), None)
    assert recorded.survivors == frozenset(sites(1, 2, 3))


@pytest.mark.parametrize("epsilon", [0.1, 1e-300, 5e-324, 1 / 3, 1e22, 123456.789])
def test_costs_and_odd_names_read_back_as_written(ledger, epsilon):
    account, cost = Account('a"\n\\ü\0', "-", ""), Cost(epsilon, 1 / 7)
    reserve(ledger, 1, cost, account, limit=Cost(1e300, 1.0))
    assert ledger.entries()[0].cost == cost
    assert ledger.balances()[0].account == account


def test_only_the_owner_reads_the_files_which_are_made_on_first_use(tmp_path):
    assert "ledger.sqlite" in repr(open_ledger(tmp_path))
    assert list(tmp_path.iterdir()) == []
    before = os.umask(0)
    try:
        ledgers.reserve(make_ledger(tmp_path), 1, 0.1)
    finally:
        os.umask(before)
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert files == {"ledger.sqlite": 0o600, "site.key.head": 0o600, "site.key.head.lock": 0o600}


def test_odd_file_names_work_and_the_database_is_durable(ledger, tmp_path, monkeypatch):
    ledgers.reserve(ledger, 1, 0.1)
    with ledger._chain.open(), pytest.raises(LedgerError):
        open_ledger(tmp_path, timeout=0.05).status(session(1))
    with closing(ledger._chain._connect()) as connection:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    folder = tmp_path / "a b?mode=ro#%41"
    folder.mkdir()
    monkeypatch.chdir(folder)
    ledger = Ledger.create("l?e d%ger.sqlite", head="he?ad")
    ledgers.spend(ledger, 1, 0.1)
    monkeypatch.chdir(tmp_path)
    assert ledger.status(session(1)) == "committed"
    assert (folder / "l?e d%ger.sqlite").exists()


def test_a_ledger_that_another_program_switched_to_a_write_ahead_log_is_switched_back(
    used, tmp_path
):
    alter(tmp_path, "PRAGMA journal_mode = WAL")
    ledgers.spend(used, 3, 0.5)
    assert read(tmp_path, "PRAGMA journal_mode") == ("delete",)
    assert sorted(os.listdir(tmp_path)) == ["ledger.sqlite", "site.key.head", "site.key.head.lock"]


def test_an_old_copy_is_refused_also_where_it_went_on(used, tmp_path):
    ledger, place = tmp_path / "ledger.sqlite", tmp_path / "site.key.head"
    old, head = ledger.read_bytes(), place.read_bytes()
    ledgers.spend(used, 3, 0.5)
    new, later = ledger.read_bytes(), place.read_bytes()
    ledger.write_bytes(old)
    every_call_fails(used, "old copy")
    place.write_bytes(head)
    for number in (4, 5, 6):
        ledgers.spend(used, number, 0.5)
    place.write_bytes(later)
    every_call_fails(used, "old copy")
    ledger.write_bytes(new)
    assert used.status(session(3)) == "committed"


@pytest.mark.usefixtures("used")
@pytest.mark.parametrize("gone", [(), ("ledger.sqlite",), ("site.key.head",)])
def test_a_ledger_is_never_made_anew_over_one(tmp_path, gone):
    for name in gone:
        (tmp_path / name).unlink()
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    refused(LedgerError, "ever created again", make_ledger, tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files


@pytest.mark.parametrize("gone", ["ledger.sqlite", "site.key.head"])
def test_a_new_ledger_is_not_made_by_using_it(ledger, tmp_path, gone):
    (tmp_path / gone).unlink()
    every_call_fails(ledger, "is gone" if gone == "ledger.sqlite" else "head .* is gone")
    for path in tmp_path.iterdir():
        path.unlink()
    every_call_fails(ledger, "neither a ledger .* nor its head.*: put both back")
    assert os.listdir(tmp_path) == ["site.key.head.lock"]


def test_a_deleted_or_emptied_ledger_is_not_replaced_by_a_new_one(used, tmp_path):
    (tmp_path / "ledger.sqlite").write_bytes(b"")
    every_call_fails(used, "old copy")
    (tmp_path / "ledger.sqlite").unlink()
    every_call_fails(used, "is gone.*latest ledger back")
    assert not (tmp_path / "ledger.sqlite").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"fedgauge-head/1 5\n", b"fedgauge-head/1 5 " + b"0" * 63 + b"\n", b"x" * 9999],
)
def test_a_damaged_head_is_refused(used, tmp_path, content):
    (tmp_path / "site.key.head").write_bytes(content)
    every_call_fails(used, "head .* damaged")


@pytest.mark.parametrize("longer", [False, True])
def test_another_ledger_is_refused(used, tmp_path, longer):
    folder = tmp_path / "other"
    folder.mkdir()
    other = make_ledger(folder)
    other.set_limit(EXAMPLES, Cost(5.0, 1e-6))
    for number in range(1, 10 if longer else 3):
        ledgers.spend(other, number, 0.25)
    (folder / "ledger.sqlite").replace(tmp_path / "ledger.sqlite")
    every_call_fails(used, "old copy, or was altered")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM entries WHERE number = 5",
        "DELETE FROM entries WHERE number = 3",
        "DELETE FROM entries WHERE number = 1",
        "DELETE FROM entries",
        "DROP TABLE entries",
        "UPDATE entries SET number = 6 WHERE number = 5",
        "UPDATE entries SET number = 0 WHERE number = 1",
        "UPDATE entries SET number = -number",
        "UPDATE entries SET line = CAST(line AS BLOB) WHERE number = 2",
        "UPDATE entries SET digest = CAST(digest AS BLOB) WHERE number = 2",
        "UPDATE entries SET digest = upper(digest) WHERE number = 2",
        "UPDATE entries SET line = (SELECT line FROM entries WHERE number = 4) WHERE number = 2",
        "UPDATE entries SET line = CAST(X'ff' AS TEXT) WHERE number = 2",
        "UPDATE entries SET line = replace(line, '0.5', '0.4') WHERE number = 2",
        "UPDATE entries SET line = line || ' ' WHERE number = 5",
        "PRAGMA application_id = 0",
        "PRAGMA application_id = 7",
    ],
)
def test_an_altered_ledger_is_refused(used, tmp_path, statement):
    alter(tmp_path, statement)
    every_call_fails(used, "altered|old copy|not a ledger")


@pytest.mark.parametrize("column", ["line", "digest"])
def test_no_character_can_be_changed(used, tmp_path, column):
    for number in (1, 3, 5):
        (text,) = read(tmp_path, f"SELECT {column} FROM entries WHERE number = {number}")  # noqa: S608
        update = f"UPDATE entries SET {column} = ? WHERE number = {number}"  # noqa: S608
        for place in range(0, len(text), 3):
            alter(tmp_path, update, text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :])
            refused(LedgerError, "altered", used.entries)
        alter(tmp_path, update, text)
    assert len(used.entries()) == 5


def read(folder, query):
    with closing(sqlite3.connect(folder / "ledger.sqlite")) as connection:
        return connection.execute(query).fetchone()


def test_every_bit_of_the_file_matters_or_changes_nothing(used, tmp_path):
    path = tmp_path / "ledger.sqlite"
    good, before = path.read_bytes(), used.entries()
    refused = 0
    for place in range(0, len(good), 97):
        changed = bytearray(good)
        changed[place] ^= 0x41
        path.write_bytes(changed)
        try:
            assert used.entries() == before
        except LedgerError:
            refused += 1
    assert refused > 5
    path.write_bytes(good)
    assert used.entries() == before


def test_a_ledger_ahead_of_its_head_brings_it_up_to_date(used, tmp_path):
    old = (tmp_path / "site.key.head").read_bytes()
    ledgers.spend(used, 3, 0.5)
    new = (tmp_path / "site.key.head").read_bytes()
    (tmp_path / "site.key.head").write_bytes(old)
    assert used.status(session(3)) == "committed"
    assert (tmp_path / "site.key.head").read_bytes() == new


def test_making_a_ledger_is_taken_up_after_a_crash(ledger, tmp_path):
    """The head is made first, and says that nothing was spent."""
    (tmp_path / "ledger.sqlite").unlink()
    every_call_fails(ledger, "is gone")
    ledgers.spend(make_ledger(tmp_path), 1, 0.1)
    assert len(ledger.entries()) == 2


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_full_disk_after_the_commit_is_told_and_can_be_repeated(used, monkeypatch, failing):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storage.os, failing, fail)
        refused(LedgerError, "No space left", ledgers.reserve, used, 3, 0.5)
    ledgers.reserve(used, 3, 0.5)
    assert [entry.session for entry in used.entries()].count(session(3)) == 1
    assert not list(used._path.parent.glob(".*"))


@pytest.mark.parametrize(
    "content",
    [
        lambda _: b"x",
        lambda _: b"not a database" * 1000,
        lambda _: b"SQLite format 3\0" + bytes(99),
        lambda good: good[:-4096],
    ],
)
def test_other_files_are_refused(used, tmp_path, content):
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(content(path.read_bytes()))
    before = path.read_bytes()
    every_call_fails(used, "not a ledger|damaged|altered")
    assert path.read_bytes() == before


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_another_programs_database_is_refused_and_left_alone(ledger, tmp_path, mode):
    alter(tmp_path, f"PRAGMA journal_mode = {mode}")
    alter(tmp_path, "CREATE TABLE patients (name)")
    before = (tmp_path / "ledger.sqlite").read_bytes()
    every_call_fails(ledger, "another program")
    assert (tmp_path / "ledger.sqlite").read_bytes() == before


def test_a_ledger_whose_schema_is_damaged_is_refused(used, tmp_path):
    """SQLite quotes the schema, and Python cannot read the quotation."""
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET name = CAST(x'ff' AS TEXT), sql = 'CREATE'")
    every_call_fails(used, "not a ledger, or is damaged")


def test_a_ledger_in_use_or_without_file_locks(used, tmp_path, ledger, monkeypatch):
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerError, match="in use by another program"):
            open_ledger(tmp_path, timeout=0.1).balances()
    with (tmp_path / "site.key.head.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        refused(LedgerError, "another process", open_ledger(tmp_path, timeout=0.1).balances)
    assert len(used.entries()) == 5
    monkeypatch.setitem(sys.modules, "fcntl", None)
    every_call_fails(ledger, "Linux or macOS")


def test_a_missing_folder_or_one_in_place_of_a_file(tmp_path):
    every_call_fails(open_ledger(tmp_path / "none"), "No such file")
    with pytest.raises(LedgerError, match="No such file"):
        Ledger.create(tmp_path / "none" / "ledger.sqlite", head=tmp_path / "head")
    make_ledger(tmp_path)
    (tmp_path / "ledger.sqlite").unlink()
    (tmp_path / "ledger.sqlite").mkdir(mode=0o700)
    every_call_fails(open_ledger(tmp_path), "is not a file")
    (tmp_path / "site.key.head").unlink()
    (tmp_path / "site.key.head").mkdir()
    every_call_fails(open_ledger(tmp_path), "Is a directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(used, tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(LedgerError):
            ledgers.spend(used, 9, 0.1)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("code", "match"),
    [
        (sqlite3.SQLITE_READONLY, "permissions"),
        (sqlite3.SQLITE_CANTOPEN, "permissions"),
        (sqlite3.SQLITE_FULL, "disk is full"),
        (sqlite3.SQLITE_IOERR | 3 << 8, "disk is full or fails"),
        (sqlite3.SQLITE_CORRUPT, "damaged"),
        (sqlite3.SQLITE_BUSY, "in use"),
    ],
)
def test_the_database_errors_are_told_in_words(used, monkeypatch, code, match):
    class Failing(sqlite3.Connection):
        def execute(self, statement, *values):
            if statement == "COMMIT":
                error = sqlite3.OperationalError("raw message")
                error.sqlite_errorcode = code
                raise error
            return super().execute(statement, *values)

    connect = sqlite3.connect
    with monkeypatch.context() as patch:
        patch.setattr(
            ledger_file.sqlite3, "connect", lambda *a, **k: connect(*a, **k, factory=Failing)
        )
        with pytest.raises(LedgerError, match=match) as caught:
            ledgers.reserve(used, 9, 0.1)
    assert "raw message" not in str(caught.value)
    assert used.status(session(9)) is None


def test_a_lock_ends_with_the_call_even_where_a_fork_keeps_the_file(tmp_path):
    # A process forked meanwhile shares the open lock file; dup stands for it here.
    copies = []
    with storage.locked(tmp_path / "lock", 1.0):
        for name in os.listdir("/proc/self/fd"):
            if os.path.realpath(f"/proc/self/fd/{name}") == str(tmp_path / "lock"):
                copies.append(os.dup(int(name)))
    try:
        with storage.locked(tmp_path / "lock", 0.1):
            pass
    finally:
        for copy in copies:
            os.close(copy)
    assert copies


MOUNTS = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 27 0:31 / /home rw,relatime shared:7 master:1 - nfs4 nas:/home rw,vers=4.2
31 30 8:2 / /home/local rw - xfs /dev/sdb rw
32 27 0:33 / /mnt/with\040space rw - cifs //nas/share rw
33 27 0:34 / /mnt/back\134slash rw - fuse.sshfs me@host: rw
34 27 0:35 / /over rw - ext4 /dev/sdc rw
35 34 0:36 / /over rw - ceph mon:/ rw
36 27 0:37 / /auto rw - autofs systemd-1 rw
37 36 0:38 / /auto rw - nfs nas:/auto rw
38 27 0:39 / /windows rw - fuseblk /dev/sdd rw
broken line
"""


PLACES = "/ledger ext4; /home/a/ledger nfs4; /home nfs4; /homes/ledger ext4; /home/local/l xfs; "
PLACES += r"/home/localhost/l nfs4; /mnt/with\040space/l cifs; /mnt/with/l ext4; /auto/x/l nfs; "
PLACES += r"/mnt/back\134slash/l fuse.sshfs; /over/l ceph; /windows/l fuseblk"
SHARED = (
    "nfs nfs3 nfs4 cifs smbfs smb2 smb3 9p afs ceph glusterfs lustre gpfs beegfs virtiofs vboxsf "
    "fuse fuse.sshfs fuse.glusterfs fuse.rclone fuse.s3fs fuse.unheard-of"
)
LOCAL = "ext4 xfs btrfs zfs tmpfs overlay apfs fuseblk fuse.gocryptfs nfsd ext2 f2fs"


def test_shared_and_local_filesystems():
    for place in PLACES.replace(r"\040", "\0").replace(r"\134", "\\").split("; "):
        path, kind = place.split()
        path = PurePosixPath(path.replace("\0", " "))
        assert storage.filesystem_type(path, MOUNTS) == kind
        assert storage.filesystem_type(path, "") is None
    assert all(map(storage.is_shared, SHARED.split()))
    assert not any(map(storage.is_shared, LOCAL.split()))


def test_a_ledger_on_a_shared_filesystem_is_refused(ledger, tmp_path, monkeypatch):
    table = tmp_path / "mountinfo"
    monkeypatch.setattr(storage, "_MOUNTS", table)
    table.write_text(
        f"27 1 254:0 / / rw - ext4 /dev/vda rw\n30 27 0:31 / {tmp_path} rw - nfs4 n: rw\n"
    )
    every_call_fails(ledger, "shared between machines .nfs4.*local disk")
    (tmp_path / "other").mkdir()
    refused(LedgerError, "shared between machines", make_ledger, tmp_path / "other")
    assert not (tmp_path / "other" / "ledger.sqlite").exists()
    table.write_text("27 1 254:0 / / rw - ext4 /dev/vda rw\n")
    ledgers.spend(ledger, 1, 0.1)
    table.unlink()  # not Linux
    ledgers.spend(ledger, 2, 0.1)


def test_a_link_to_a_shared_filesystem_is_followed(tmp_path, monkeypatch):
    (tmp_path / "nas").mkdir()
    (tmp_path / "ledger.sqlite").symlink_to(tmp_path / "nas" / "ledger.sqlite")
    table = tmp_path / "mountinfo"
    table.write_text(f"30 27 0:31 / {tmp_path}/nas rw - nfs4 n: rw\n")
    monkeypatch.setattr(storage, "_MOUNTS", table)
    every_call_fails(open_ledger(tmp_path), "shared between machines")
