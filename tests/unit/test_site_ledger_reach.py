"""A ledger that is not one, is held by another program, or lies where locks mean nothing."""

import fcntl
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import PurePosixPath

import pytest
from ledgers import alter, every_call_fails, make_ledger, open_ledger, reserve, session, spend

from fedgauge.errors import LedgerError
from fedgauge.site import Ledger, chain
from fedgauge.storage import durable, mounts

# What is not a ledger, or not within reach


@pytest.mark.parametrize(
    "content", [b"x", b"not a database" * 1000, b"SQLite format 3\0" + bytes(99)]
)
def test_other_files_are_refused(ledger, tmp_path, content):
    (tmp_path / "ledger.sqlite").write_bytes(content)
    every_call_fails(ledger, "not a ledger|damaged")
    assert (tmp_path / "ledger.sqlite").read_bytes() == content


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
def test_another_programs_database_is_refused_and_left_alone(ledger, tmp_path, mode):
    alter(tmp_path, f"PRAGMA journal_mode = {mode}")
    alter(tmp_path, "CREATE TABLE patients (name)")
    before = (tmp_path / "ledger.sqlite").read_bytes()
    every_call_fails(ledger, "another program")
    assert (tmp_path / "ledger.sqlite").read_bytes() == before


def test_a_truncated_ledger_is_refused(used, tmp_path):
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(path.read_bytes()[:-4096])
    every_call_fails(used, "damaged|altered")


def test_a_ledger_whose_schema_is_damaged_is_refused(used, tmp_path):
    """SQLite quotes the schema, and Python cannot read the quotation."""
    with closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET name = CAST(x'ff' AS TEXT), sql = 'CREATE'")
    every_call_fails(used, "not a ledger, or is damaged")


def test_a_ledger_in_use_by_another_program(used, tmp_path):
    connection = sqlite3.connect(tmp_path / "ledger.sqlite", isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        with pytest.raises(LedgerError, match="in use by another program"):
            open_ledger(tmp_path, timeout=0.1).balances()
    finally:
        connection.close()
    assert len(used.entries()) == 5


def test_a_lock_that_is_not_given_up(used, tmp_path):
    with (tmp_path / "site.key.head.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(LedgerError, match="another process"):
            open_ledger(tmp_path, timeout=0.1).balances()
    assert len(used.entries()) == 5


def test_a_missing_folder(tmp_path):
    every_call_fails(open_ledger(tmp_path / "none"), "No such file")
    with pytest.raises(LedgerError, match="No such file"):
        Ledger.create(tmp_path / "none" / "ledger.sqlite", head=tmp_path / "head")


def test_a_folder_in_place_of_a_file(tmp_path):
    make_ledger(tmp_path)
    (tmp_path / "ledger.sqlite").unlink()
    (tmp_path / "ledger.sqlite").mkdir(mode=0o700)
    every_call_fails(open_ledger(tmp_path), "cannot be written")
    (tmp_path / "site.key.head").unlink()
    (tmp_path / "site.key.head").mkdir()
    every_call_fails(open_ledger(tmp_path), "Is a directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder(used, tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(LedgerError):
            spend(used, 9, 0.1)
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
        patch.setattr(chain.sqlite3, "connect", lambda *a, **k: connect(*a, **k, factory=Failing))
        with pytest.raises(LedgerError, match=match) as caught:
            reserve(used, 9, 0.1)
    assert "raw message" not in str(caught.value)
    assert used.status(session(9)) is None


def test_a_system_without_file_locks(ledger, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    every_call_fails(ledger, "Linux or macOS")


def test_a_lock_ends_with_the_call_even_where_a_fork_keeps_the_file(tmp_path):
    # A process forked meanwhile shares the open lock file; dup stands for it here.
    copies = []
    with durable.locked(tmp_path / "lock", 1.0):
        for name in os.listdir("/proc/self/fd"):
            if os.path.realpath(f"/proc/self/fd/{name}") == str(tmp_path / "lock"):
                copies.append(os.dup(int(name)))
    try:
        with durable.locked(tmp_path / "lock", 0.1):
            pass
    finally:
        for copy in copies:
            os.close(copy)
    assert copies


# Shared filesystems

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


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/ledger.sqlite", "ext4"),
        ("/home/a/ledger.sqlite", "nfs4"),
        ("/home", "nfs4"),
        ("/homes/ledger.sqlite", "ext4"),
        ("/home/local/ledger.sqlite", "xfs"),
        ("/home/localhost/ledger.sqlite", "nfs4"),
        ("/mnt/with space/ledger.sqlite", "cifs"),
        ("/mnt/with/ledger.sqlite", "ext4"),
        ("/mnt/back\\slash/ledger.sqlite", "fuse.sshfs"),
        ("/over/ledger.sqlite", "ceph"),
        ("/auto/x/ledger.sqlite", "nfs"),
        ("/windows/ledger.sqlite", "fuseblk"),
    ],
)
def test_the_filesystem_of_a_path(path, kind):
    assert mounts.filesystem_type(PurePosixPath(path), MOUNTS) == kind


def test_no_mounts_no_type():
    assert mounts.filesystem_type(PurePosixPath("/a"), "") is None


@pytest.mark.parametrize(
    "kind",
    [
        "nfs",
        "nfs3",
        "nfs4",
        "cifs",
        "smbfs",
        "smb2",
        "smb3",
        "9p",
        "afs",
        "ceph",
        "glusterfs",
        "lustre",
        "gpfs",
        "beegfs",
        "virtiofs",
        "vboxsf",
        "fuse",
        "fuse.sshfs",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.unheard-of",
    ],
)
def test_shared_filesystems(kind):
    assert mounts.is_shared(kind)


@pytest.mark.parametrize(
    "kind",
    [
        "ext4",
        "xfs",
        "btrfs",
        "zfs",
        "tmpfs",
        "overlay",
        "apfs",
        "fuseblk",
        "fuse.gocryptfs",
        "nfsd",
        "ext2",
        "f2fs",
    ],
)
def test_local_filesystems(kind):
    assert not mounts.is_shared(kind)


def test_a_ledger_on_a_shared_filesystem_is_refused(ledger, tmp_path, monkeypatch):
    table = tmp_path / "mountinfo"
    monkeypatch.setattr(mounts, "_MOUNTS", table)
    table.write_text(
        f"27 1 254:0 / / rw - ext4 /dev/vda rw\n30 27 0:31 / {tmp_path} rw - nfs4 n: rw\n"
    )
    every_call_fails(ledger, "shared between machines .nfs4.*local disk")
    (tmp_path / "other").mkdir()
    with pytest.raises(LedgerError, match="shared between machines"):
        make_ledger(tmp_path / "other")
    assert not (tmp_path / "other" / "ledger.sqlite").exists()
    table.write_text("27 1 254:0 / / rw - ext4 /dev/vda rw\n")
    spend(ledger, 1, 0.1)
    table.unlink()  # not Linux
    spend(ledger, 2, 0.1)


def test_a_link_to_a_shared_filesystem_is_followed(tmp_path, monkeypatch):
    (tmp_path / "nas").mkdir()
    (tmp_path / "ledger.sqlite").symlink_to(tmp_path / "nas" / "ledger.sqlite")
    table = tmp_path / "mountinfo"
    table.write_text(f"30 27 0:31 / {tmp_path}/nas rw - nfs4 n: rw\n")
    monkeypatch.setattr(mounts, "_MOUNTS", table)
    every_call_fails(open_ledger(tmp_path), "shared between machines")
