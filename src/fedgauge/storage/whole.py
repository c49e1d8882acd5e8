"""Files read whole, and written so that a crash never leaves half of one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from fedgauge.errors import RecordError
from fedgauge.storage import durable


def write_whole(path: str | Path, data: bytes, *, follow: bool = True) -> None:
    """Write a file so that a crash leaves the old one or the new one, never half of it.

    Through a link, to the file it names; without `follow` the link itself is replaced.
    """
    with written_whole(path, follow=follow) as file:
        file.write(data)


@contextmanager
def written_whole(path: str | Path, *, follow: bool = True) -> Iterator[BinaryIO]:
    """The same for what is written bit by bit: the file is there when all of it is."""
    target = Path(path).resolve() if follow else Path(path).absolute()
    if target.exists() and not target.is_file():
        raise RecordError(f"cannot write {path}: it is not a file.")
    if not target.parent.is_dir():
        raise RecordError(f"cannot write {path}: make its folder first.")
    try:
        with durable.replacing(target) as (file, temporary):
            yield file
            file.flush()
            os.chmod(temporary, 0o666 & ~_umask())
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror}.") from None


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
