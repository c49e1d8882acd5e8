"""Files that survive a crash, are read within a limit, and belong to their owner."""

import errno
import functools
import os
import re
import shlex
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Final

import msgspec

from fedgauge.errors import FedgaugeError, LedgerError, RecordError

WAIT_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.005
_OWN: Final = 0o600  # as temporary files are made
_SUFFIX: Final = ".fgtmp"  # so that nobody's files are taken for ours


def write_new(path: Path, data: bytes) -> None:
    """Make a file that only its owner can read; FileExistsError when there is one."""
    # The mode is set when the file is made, so that it is never open to others, not even empty.
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)
    except BaseException:
        path.unlink()
        raise


def replace(path: Path, data: bytes, *, mode: int = _OWN) -> None:
    """Replace a file so that a crash leaves the old one or the new one, on disk too."""
    with replacing(path) as (file, temporary):
        file.write(data)
        file.flush()
        if mode != _OWN:  # sticks and shares without modes refuse to set one
            set_mode(file, temporary, mode)
        os.fsync(file.fileno())
    sync_folder(path.parent)


@contextmanager
def replacing(path: Path, *, new: bool = False) -> Iterator[tuple[BinaryIO, str]]:
    """A temporary file and its name; it takes the place of `path` when this ends well.

    With `new` FileExistsError if there is one by then. The file is locked while in use, so that the
    next writer knows what a killed process left, and removes it.
    """
    remove_dead(path)
    handle, temporary = _temporary(path)
    lock = os.dup(handle)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file, temporary
        (_put_new if new else os.replace)(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    finally:
        os.close(lock)


def _put_new(temporary: str, path: Path) -> None:
    """Give a file its name, unless there is one of that name."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a disk without links: the name is taken first, then filled
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWN))
        os.replace(temporary, path)
    else:
        os.unlink(temporary)


def remove_dead(path: Path) -> None:
    """Delete what killed processes left that were writing a file; what is in use stays."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}{re.escape(_SUFFIX)}")
    with suppress(OSError):  # of folders that cannot be listed, or are not there
        for name in filter(pattern.fullmatch, os.listdir(path.parent)):
            with suppress(OSError):  # another's, in use, or on a disk without locks
                _remove_dead(path.with_name(name))


def _remove_dead(left: Path) -> None:
    found = left.lstat()
    if os.name != "posix" or not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        return
    handle = os.open(left, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        _lock(handle)
        left.unlink()
    finally:
        os.close(handle)


def _temporary(path: Path) -> tuple[int, str]:
    """A new file beside another one, locked where the disk has locks."""
    while True:
        handle, name = tempfile.mkstemp(_SUFFIX, f".{path.name}.", path.parent)
        try:
            _lock(handle)
        except BlockingIOError:  # taken for dead before it was locked: it is about to go
            os.close(handle)
            Path(name).unlink(missing_ok=True)
            continue
        except OSError:
            return handle, name
        if os.fstat(handle).st_nlink:
            return handle, name
        os.close(handle)


def set_mode(file: BinaryIO, name: str, mode: int) -> None:
    """Set the mode of an open file, whose name others may have given to another by now."""
    os.chmod(file.fileno() if os.chmod in os.supports_fd else name, mode)


def _lock(handle: int) -> None:
    """Lock an open file, or raise OSError."""
    try:
        import fcntl
    except ImportError:
        raise OSError("no locks") from None
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def remove_leftovers(path: Path) -> None:
    """Delete what a killed :func:`replace` of a file left; only while nobody else replaces it."""
    for leftover in path.parent.glob(f".{path.name}.*"):
        leftover.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, timeout: float = WAIT_SECONDS) -> Iterator[None]:
    """Hold a lock file; waits for another process that does."""
    try:
        import fcntl
    except ImportError:
        raise LedgerError(
            "a site needs file locks that this system does not have. Use Linux or macOS."
        ) from None
    deadline = time.monotonic() + timeout
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LedgerError(
                        f"another process holds {path}. Wait for it to end, and try again."
                    ) from None
            time.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            # Closing would not do where a fork of this process still holds the file.
            fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Make what was created, renamed or deleted in a folder last."""
    if os.name != "posix":  # elsewhere folders cannot be opened, nor need they be
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}

# What decoders raise of bytes that are not of the kind, however they are damaged or made up.
MALFORMED: Final = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError)
NOT_REGULAR: Final = "it is a pipe, a device or a socket, not a file"
MOST_RESULT: Final = 1 << 28  # bytes: a hundred times what a large result takes
MOST_STATE: Final = 1 << 32  # of an exchange that is under way
_WAITS_FOR_NOBODY: Final = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_BINARY: Final = getattr(os, "O_BINARY", 0)
_NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)


def open_regular(path: str | Path, *, follow: bool = True) -> BinaryIO:
    """Open a regular file to read; OSError for all else, and at once.

    A pipe makes its reader wait for ever, and a device need not end. The open file is examined, so
    nobody can swap it after the check. Without `follow` a link is refused too.
    """
    handle = os.open(path, os.O_RDONLY | _WAITS_FOR_NOBODY | _BINARY | (0 if follow else _NO_LINK))
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, NOT_REGULAR)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_bounded(path: str | Path, most: int) -> bytes:
    """The bytes of a file of at most so many; OSError for a larger one, which is not read."""
    with open_regular(path) as file:
        return bounded(file, most)


def bounded(file: BinaryIO, most: int) -> bytes:
    """The same of an open file."""
    size = os.fstat(file.fileno()).st_size
    # One byte more shows a file that grows while it is read.
    if size > most or len(data := file.read(size + 1)) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most:,} bytes")
    return data


def write_whole(path: str | Path, data: bytes, *, follow: bool = True, new: bool = False) -> None:
    """Write a file so that a crash leaves the old one or the new one, never half of it.

    A link is followed; without `follow` it is replaced. With `new` nothing is: FileExistsError.
    """
    with written_whole(path, follow=follow, new=new) as file:
        file.write(data)


@contextmanager
def written_whole(
    path: str | Path, *, follow: bool = True, new: bool = False
) -> Iterator[BinaryIO]:
    """The same for what is written bit by bit: the file is there when all of it is."""
    try:
        target = Path(os.path.realpath(path)) if follow else Path(path).absolute()
        kind = kind_of(target)
        if kind is not None and (follow or kind == "a folder"):
            raise RecordError(f"cannot write {path}: it is not a file.")
        if not target.parent.is_dir():
            raise RecordError(f"cannot write {path}: make its folder first.")
        with replacing(target, new=new) as (file, temporary):
            yield file
            file.flush()
            set_mode(file, temporary, 0o666 & ~_umask())
    except FileExistsError:
        raise
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror}.") from None


def kind_of(path: Path) -> str | None:
    """What is there instead of a regular file, in words; None for such a file, or for nothing."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None
    return None if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "a device")


def read_regular(path: Path, most: int, error: type[FedgaugeError]) -> bytes:
    """The bytes of a regular file of at most so many; all else is an error of that class.

    For folders that others write to: no link is followed, and no pipe or device is waited for.
    """
    kind = kind_of(path)
    if kind is not None:
        raise error(f"{path} is not a file but {kind}. Remove {path}.")
    try:
        with open_regular(path, follow=False) as file:
            return bounded(file, most)
    except FileNotFoundError:
        raise error(f"there is no file {path}. Check its name and folder.") from None
    except OSError as failed:
        if failed.errno == errno.EFBIG:
            raise error(f"{path} is larger than {most:,} bytes. Remove {path}.") from None
        raise error(f"cannot read {path}: {failed.strerror}. Remove {path}.") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class NoSuchResult(RecordError):
    """A name that is not that of a file: whoever typed it can mend it, so commands end with 2."""

    exit_code = 2


def read_whole(path: str | Path) -> bytes:
    """The bytes of a saved result."""
    try:
        return read_bounded(path, MOST_RESULT)
    except (FileNotFoundError, IsADirectoryError) as error:
        what = "it is a folder" if isinstance(error, IsADirectoryError) else "there is no such file"
        raise NoSuchResult(
            f"cannot read {path}: {what}. Name the JSON file of a result, such as `fedgauge "
            "evaluate --json` and `fedgauge exchange advance` save."
        ) from None
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}.") from None


_MOUNTS: Final = Path("/proc/self/mountinfo")

# Filesystems shared between machines: locks and syncs on them may mean nothing.
_NETWORK: Final = re.compile(
    "9p|acfs|afs|beegfs|ceph|cifs|coda|davfs|gfs|gfs2|glusterfs|gpfs|kafs|lustre|mfs|ncpfs?|"
    "nfs[34]?|ocfs2|orangefs|panfs|prl_fs|pvfs2|smb.*|vboxsf|virtiofs|vmhgfs|wekafs"
)

# Any program can be behind a FUSE mount, so all are refused but those known to be local.
_FUSE: Final = re.compile(r"fuse(\..*)?")
_LOCAL_FUSE: Final = re.compile(
    r"fuse\.(bindfs|cryfs|encfs|fuse-overlayfs|gocryptfs|mergerfs|securefs)"
)


@functools.lru_cache(256)
def filesystem_type(path: PurePosixPath, mountinfo: str) -> str | None:
    r"""The type of the filesystem that holds an absolute path without links.

    `mountinfo` is text in the form of ``/proc/self/mountinfo``.

    >>> mounts = "21 1 8:1 / / rw - ext4 /dev/sda rw\n22 21 0:9 / /data rw - nfs4 nas:/ rw"
    >>> filesystem_type(PurePosixPath("/data/ledger.sqlite"), mounts)
    'nfs4'
    """
    kind, depth = None, 0
    for line in mountinfo.split("\n"):
        # id, parent, device, root, mount point, options, optional fields, "-", type, ...
        before, dash, after = line.partition(" - ")
        fields = before.split(" ")
        if not dash or len(fields) < 6:
            continue
        # Spaces, tabs, newlines and backslashes are written as three octal digits.
        unescaped = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), fields[4])
        point = PurePosixPath(unescaped)
        # Of two mounts at one point the later lies on top.
        if len(point.parts) >= depth and path.is_relative_to(point):
            kind, depth = after.split(" ")[0], len(point.parts)
    return kind


def is_shared(kind: str) -> bool:
    """Whether a type of filesystem, such as ``nfs4``, may be shared between machines."""
    if _FUSE.fullmatch(kind):
        return _LOCAL_FUSE.fullmatch(kind) is None
    return _NETWORK.fullmatch(kind) is not None


def require_local(path: Path) -> None:
    """Refuse a ledger on a filesystem shared between machines."""
    try:
        mountinfo = os.fsdecode(_MOUNTS.read_bytes())
    except OSError:
        return  # not Linux: nothing to go by
    kind = filesystem_type(PurePosixPath(os.path.realpath(path)), mountinfo)
    if kind is not None and is_shared(kind):
        raise LedgerError(
            f"ledger {path} is on a filesystem shared between machines ({kind}), where locks "
            "cannot be relied on. Keep it on a local disk: change `ledger` in the site file."
        )


_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_MOST_LINKS: Final = 40  # as Linux follows
_ACCESS_LIST: Final = "system.posix_acl_access"


def require_own(
    path: Path,
    error: type[FedgaugeError],
    *,
    opened: os.stat_result | None = None,
    private: bool = False,
    then: str = "check what it says",
) -> None:
    """Refuse, by an error of a class, what others can change, or with `private` what they can read.

    `opened` is what an open file says of itself, so that what is checked is what is read. `then` is
    what to do once others are kept out.
    """
    for told in faults(path, opened=opened, private=private, then=then):
        raise error(told)


def faults(
    path: Path,
    *,
    opened: os.stat_result | None = None,
    private: bool = False,
    then: str = "check what it says",
) -> Iterator[str]:
    """Each thing that is wrong with a file, or the way to it, with the command that mends it."""
    if os.name != "posix":
        return
    *above, place = _way(path.absolute())
    itself = opened or _seen(place)
    if itself is not None:
        yield from _of_another(place, itself)
    if itself is not None and itself.st_mode & (_OTHERS if private else _OTHERS_WRITE):
        is_folder = stat.S_ISDIR(itself.st_mode)
        if is_folder and not private:
            yield _shared(place)
        else:
            mode = ("700" if is_folder else "600") if private else "go-w"
            can = "read or change" if private else "change"
            yield (
                f"others than its owner can {can} {place}. Run `chmod {mode} {_quoted(place)}`, "
                f"and {then}."
            )
    for passed in above:
        yield from _of_folder(passed)


def _of_folder(passed: Path) -> Iterator[str]:
    """What is wrong with a folder, or a link, on the way."""
    found = _seen(passed)
    if found is None:
        return
    yield from _of_another(passed, found)
    is_shared = bool(found.st_mode & _OTHERS_WRITE) and not stat.S_ISLNK(found.st_mode)
    if is_shared and not (found.st_mode & stat.S_ISVTX or _for_its_owner_alone(passed, found)):
        yield _shared(passed)


def _shared(folder: Path) -> str:
    return (
        f"others can replace what is in {folder}. Run `chmod go-w {_quoted(folder)}`, and check "
        "what is in it."
    )


def _of_another(place: Path, found: os.stat_result) -> Iterator[str]:
    me, owner = os.geteuid(), found.st_uid
    if owner in (me, 0):
        return
    command = "chown -h" if stat.S_ISLNK(found.st_mode) else "chown"
    yield (
        f"{place} belongs to {_name(owner)}, and this is run by {_name(me)}. Run this as "
        f"{_name(owner)}, or check what is there and run `{command} {_name(me)} {_quoted(place)}`."
    )


def _way(path: Path) -> Iterator[Path]:
    """Every folder and link that a path leads through, and last what it names."""
    here, ahead, links = Path(path.anchor), [*reversed(path.parts[1:])], 0
    while ahead:
        name = ahead.pop()
        yield here
        if name == os.pardir:
            here = here.parent
            continue
        place = here / name
        if not place.is_symlink():
            here = place
            continue
        yield place
        links += 1
        if links > _MOST_LINKS:
            raise OSError(f"too many links on the way to {path}")
        target = place.readlink()
        ahead += reversed(target.parts[1:] if target.is_absolute() else target.parts)
        here = Path(target.anchor) if target.is_absolute() else here
    yield here


def _for_its_owner_alone(folder: Path, found: os.stat_result) -> bool:
    """Whether a group that may write is its owner's own, and not root's, which containers share."""
    import grp
    import pwd

    if found.st_mode & stat.S_IWOTH or not found.st_uid or _has_access_list(folder):
        return False
    try:
        owner, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    others = chain(
        group.gr_mem, (each.pw_name for each in pwd.getpwall() if each.pw_gid == found.st_gid)
    )
    # By its name: where accounts come from a directory, not all members can be listed.
    return group.gr_name == owner.pw_name and {*others} <= {owner.pw_name}


def _has_access_list(folder: Path) -> bool:
    """Whether a list says who else may write: the mode of the group is then the most of it."""
    try:
        return bool(os.getxattr(folder, _ACCESS_LIST))
    except (OSError, AttributeError):
        return False


def _seen(place: Path) -> os.stat_result | None:
    try:
        return place.lstat()
    except FileNotFoundError:
        return None


def _name(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _quoted(place: Path) -> str:
    return shlex.quote(str(place))
