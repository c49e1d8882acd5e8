"""Regular files of bounded size read whole; files written so that a crash never leaves half."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from fedgauge.errors import FedgaugeError, RecordError
from fedgauge.storage import durable

# What Windows lacks, it has no need of.
_UNFOLLOWED: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
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


def open_regular(path: str | Path) -> BinaryIO:
    """Open a file to read; OSError for all else, and at once.

    A pipe makes its reader wait for ever, and a device need not end. What is asked is the open
    file, so that nobody can put another in its place after the question.
    """
    handle = os.open(path, os.O_RDONLY | _WAITS_FOR_NOBODY | _BINARY)
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

    Through a link, to the file it names; without `follow` the link itself is replaced, as is
    anything else but a folder. One that is to be `new` replaces nothing: FileExistsError.
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
        with durable.replacing(target, new=new) as (file, temporary):
            yield file
            file.flush()
            durable.set_mode(file, temporary, 0o666 & ~_umask())
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
    """The bytes of a regular file of at most so many, by an error of a class what else is there.

    For folders that others write to: no link is followed, and no pipe or device is waited for.
    """
    try:
        kind = kind_of(path)
        if kind is not None:
            raise error(f"{path} is not a file but {kind}. Remove {path}.")
        # What is checked is what is read: others may have put another thing there since.
        with os.fdopen(os.open(path, os.O_RDONLY | _UNFOLLOWED), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise error(f"{path} is not a file. Remove {path}.")
            data = file.read(most + 1) if found.st_size <= most else None
    except FileNotFoundError:
        raise error(f"there is no file {path}. Check its name and folder.") from None
    except OSError as failed:
        raise error(f"cannot read {path}: {failed.strerror}. Remove {path}.") from None
    if data is None or len(data) > most:
        raise error(f"{path} is larger than {most:,} bytes. Remove {path}.")
    return data


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_whole(path: str | Path) -> bytes:
    """The bytes of a saved result."""
    try:
        return read_bounded(path, MOST_RESULT)
    except (FileNotFoundError, IsADirectoryError) as error:
        what = "it is a folder" if isinstance(error, IsADirectoryError) else "there is no such file"
        raise RecordError(
            f"cannot read {path}: {what}. Name the JSON file of a result, such as `fedgauge "
            "evaluate --json` and `fedgauge exchange advance` save."
        ) from None
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}.") from None
