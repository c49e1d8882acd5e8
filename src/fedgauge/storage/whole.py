"""Files read whole, and written so that a crash never leaves half of one."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

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
    target = Path(path).resolve() if follow else Path(path).absolute()
    kind = kind_of(target)
    if kind is not None and (follow or kind == "a folder"):
        raise RecordError(f"cannot write {path}: it is not a file.")
    if not target.parent.is_dir():
        raise RecordError(f"cannot write {path}: make its folder first.")
    try:
        with durable.replacing(target, new=new) as (file, temporary):
            yield file
            file.flush()
            os.chmod(temporary, 0o666 & ~_umask())
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
        return Path(path).read_bytes()
    except (FileNotFoundError, IsADirectoryError) as error:
        what = "it is a folder" if isinstance(error, IsADirectoryError) else "there is no such file"
        raise RecordError(
            f"cannot read {path}: {what}. Name the JSON file of a result, such as `fedgauge "
            "evaluate --json` and `fedgauge exchange advance` save."
        ) from None
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}.") from None
