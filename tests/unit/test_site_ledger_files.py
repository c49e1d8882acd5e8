"""Nobody alters a ledger, deletes one or puts an old one back unnoticed; a crash loses nothing."""

import errno
import os
import sqlite3
import stat

import pytest
from ledgers import (
    EXAMPLES,
    alter,
    every_call_fails,
    make_ledger,
    open_ledger,
    reserve,
    session,
    spend,
)

from fedgauge.errors import LedgerError
from fedgauge.site import Cost, Ledger
from fedgauge.storage import durable

# The files


def test_only_the_owner_reads_the_files(tmp_path):
    before = os.umask(0)
    try:
        reserve(make_ledger(tmp_path), 1, 0.1)
    finally:
        os.umask(before)
    files = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert files == {
        "ledger.sqlite": 0o600,
        "site.key.head": 0o600,
        "site.key.head.lock": 0o600,
    }


def test_making_a_ledger_object_touches_nothing(tmp_path):
    assert "ledger.sqlite" in repr(open_ledger(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_odd_file_names_work(tmp_path):
    folder = tmp_path / "a b?mode=ro#%41"
    folder.mkdir()
    ledger = Ledger.create(folder / "l?e d%ger.sqlite", head=folder / "he?ad")
    spend(ledger, 1, 0.1)
    assert ledger.status(session(1)) == "committed"
    assert (folder / "l?e d%ger.sqlite").exists()


def test_relative_paths_work_and_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = Ledger.create("ledger.sqlite", head="head")
    spend(ledger, 1, 0.1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert ledger.status(session(1)) == "committed"


def test_the_database_is_durable(ledger, tmp_path):
    reserve(ledger, 1, 0.1)
    with ledger._chain.open(), pytest.raises(LedgerError):
        open_ledger(tmp_path, timeout=0.05).status(session(1))
    connection = ledger._chain._connect()
    try:
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
    finally:
        connection.close()


def test_a_ledger_that_another_program_switched_to_a_write_ahead_log_is_switched_back(
    used, tmp_path
):
    alter(tmp_path, "PRAGMA journal_mode = WAL")
    spend(used, 3, 0.5)
    assert read(tmp_path, "PRAGMA journal_mode") == ("delete",)
    assert sorted(os.listdir(tmp_path)) == ["ledger.sqlite", "site.key.head", "site.key.head.lock"]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
@pytest.mark.parametrize("name", ["ledger.sqlite", "site.key.head"])
def test_files_that_others_can_change_are_refused(used, tmp_path, name, mode):
    (tmp_path / name).chmod(mode)
    every_call_fails(used, f"others than its owner can .*change .*`chmod 600 {tmp_path / name}`")
    (tmp_path / name).chmod(0o600)
    assert used.status(session(1)) == "committed"


@pytest.mark.parametrize("name", ["ledger", "key"])
def test_folders_where_anybody_can_replace_files_are_refused(tmp_path, name):
    for folder in ("ledger", "key"):
        (tmp_path / folder).mkdir()
    ledger = Ledger.create(tmp_path / "ledger" / "l.sqlite", head=tmp_path / "key" / "head")
    (tmp_path / name).chmod(0o777)
    every_call_fails(ledger, f"others .*can (replace|change) .*`chmod go-w {tmp_path / name}`")
    (tmp_path / name).chmod(0o755)
    assert ledger.entries() == []


# Old copies and altered ones


def test_an_old_copy_is_refused(used, tmp_path):
    old = (tmp_path / "ledger.sqlite").read_bytes()
    spend(used, 3, 0.5)
    new = (tmp_path / "ledger.sqlite").read_bytes()
    (tmp_path / "ledger.sqlite").write_bytes(old)
    every_call_fails(used, "old copy")
    (tmp_path / "ledger.sqlite").write_bytes(new)
    assert used.status(session(3)) == "committed"


def test_an_old_copy_that_went_on_is_refused(used, tmp_path):
    old, head = (tmp_path / "ledger.sqlite").read_bytes(), (tmp_path / "site.key.head").read_bytes()
    spend(used, 3, 0.5)
    later = (tmp_path / "site.key.head").read_bytes()
    (tmp_path / "ledger.sqlite").write_bytes(old)
    (tmp_path / "site.key.head").write_bytes(head)
    for number in (4, 5, 6):
        spend(used, number, 0.5)
    (tmp_path / "site.key.head").write_bytes(later)
    every_call_fails(used, "old copy")


def test_a_deleted_ledger_is_not_replaced_by_a_new_one(used, tmp_path):
    (tmp_path / "ledger.sqlite").unlink()
    every_call_fails(used, "is gone.*latest ledger back")
    assert not (tmp_path / "ledger.sqlite").exists()


def test_an_emptied_ledger_is_refused(used, tmp_path):
    (tmp_path / "ledger.sqlite").write_bytes(b"")
    every_call_fails(used, "old copy")


@pytest.mark.usefixtures("used")
@pytest.mark.parametrize("gone", [(), ("ledger.sqlite",), ("site.key.head",)])
def test_a_ledger_is_never_made_anew_over_one(tmp_path, gone):
    for name in gone:
        (tmp_path / name).unlink()
    files = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(LedgerError, match="ever made anew"):
        make_ledger(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == files


@pytest.mark.parametrize("gone", ["ledger.sqlite", "site.key.head"])
def test_a_new_ledger_is_not_made_by_using_it(ledger, tmp_path, gone):
    (tmp_path / gone).unlink()
    every_call_fails(ledger, "is gone")
    for path in tmp_path.iterdir():
        path.unlink()
    every_call_fails(ledger, "neither a ledger .* nor its head.*`fedgauge ledger new --site FILE`")
    assert os.listdir(tmp_path) == ["site.key.head.lock"]


def test_a_deleted_head_is_refused(used, tmp_path):
    (tmp_path / "site.key.head").unlink()
    every_call_fails(used, "head .* is gone")


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"fedgauge-head/1 5\n", b"fedgauge-head/1 5 " + b"0" * 63 + b"\n", b"x" * 9999],
)
def test_a_damaged_head_is_refused(used, tmp_path, content):
    (tmp_path / "site.key.head").write_bytes(content)
    every_call_fails(used, "head .* damaged")


def test_another_ledger_is_refused(used, tmp_path):
    folder = tmp_path / "other"
    folder.mkdir()
    other = make_ledger(folder)
    for number in range(10):
        spend(other, number, 0.01)
    (folder / "ledger.sqlite").replace(tmp_path / "ledger.sqlite")
    every_call_fails(used, "old copy")


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
@pytest.mark.parametrize("number", [1, 3, 5])
def test_no_character_can_be_changed(used, tmp_path, column, number):
    (text,) = read(tmp_path, f"SELECT {column} FROM entries WHERE number = {number}")  # noqa: S608
    update = f"UPDATE entries SET {column} = ? WHERE number = {number}"  # noqa: S608
    for place in range(0, len(text), 3):
        alter(tmp_path, update, text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :])
        with pytest.raises(LedgerError, match="altered"):
            used.entries()
    alter(tmp_path, update, text)
    assert len(used.entries()) == 5


def read(folder, query):
    connection = sqlite3.connect(folder / "ledger.sqlite")
    row = connection.execute(query).fetchone()
    connection.close()
    return row


def test_a_chain_that_was_written_anew_is_refused(used, tmp_path):
    folder = tmp_path / "forged"
    folder.mkdir()
    forged = make_ledger(folder)
    forged.set_limit(EXAMPLES, Cost(5.0, 1e-6))
    for number in (1, 2):
        spend(forged, number, 0.25)
    (folder / "ledger.sqlite").replace(tmp_path / "ledger.sqlite")
    every_call_fails(used, "old copy, or was altered")


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


# After a crash


def test_a_ledger_ahead_of_its_head_brings_it_up_to_date(used, tmp_path):
    old = (tmp_path / "site.key.head").read_bytes()
    spend(used, 3, 0.5)
    new = (tmp_path / "site.key.head").read_bytes()
    (tmp_path / "site.key.head").write_bytes(old)
    assert used.status(session(3)) == "committed"
    assert (tmp_path / "site.key.head").read_bytes() == new


def test_making_a_ledger_is_taken_up_after_a_crash(ledger, tmp_path):
    """The head is made first, and says that nothing was spent."""
    (tmp_path / "ledger.sqlite").unlink()
    every_call_fails(ledger, "is gone")
    spend(make_ledger(tmp_path), 1, 0.1)
    assert len(ledger.entries()) == 2


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_full_disk_after_the_commit_is_told_and_can_be_repeated(used, monkeypatch, failing):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(durable.os, failing, fail)
        with pytest.raises(LedgerError, match="No space left"):
            reserve(used, 3, 0.5)
    reserve(used, 3, 0.5)
    assert [entry.session for entry in used.entries()].count(session(3)) == 1
    assert not list(used._path.parent.glob(".*"))
