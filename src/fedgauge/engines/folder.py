"""The folder that the files of an evaluation pass through, on this machine or mounted on it.

Several parties read and write it, and none of them trusts the others: every file is judged by
whoever reads it.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from fedgauge import storage
from fedgauge.errors import ExchangeError, RecordError
from fedgauge.storage import kind_of, read_regular, write_whole


class InTheWay(ExchangeError):
    """Something of another's is where a file was to go, and cannot be replaced."""


class Folder(ABC):
    """What an exchange needs of a folder. Its files are named without any folder.

    A listing may be old: what it lacks may be there, and what it has may be gone.
    """

    @abstractmethod
    def __str__(self) -> str:
        """As its user named it."""

    @abstractmethod
    def place(self, name: str) -> str:
        """A file in words: where people find it."""

    @abstractmethod
    def missing(self) -> str | None:
        """Why there is no such folder, in words; None where there is one."""

    @abstractmethod
    def names(self, pattern: str = "*") -> list[str]:
        """Whatever is listed and fits a pattern such as ``*.fgx``, sorted."""

    @abstractmethod
    def folders(self) -> list[str]:
        """The names of folders in it, sorted; ExchangeError where they cannot be listed."""

    @abstractmethod
    def folder(self, name: str) -> "Folder":
        """A folder in it, which need not be there."""

    @abstractmethod
    def holds(self, name: str) -> bool:
        """Whether anything of that name is there, file or not."""

    @abstractmethod
    def read(self, name: str, most: int) -> bytes:
        """The bytes of a file of at most so many; ExchangeError for what is no such file."""

    def versions(self, name: str, most: int) -> Iterator[tuple[str, bytes]]:
        """The same where there may be several files of a name, each with the name it has.

        At least one, or ExchangeError.
        """
        yield name, self.read(name, most)

    @abstractmethod
    def make(self) -> None:
        """Make the folder, if there is none."""

    @abstractmethod
    def write_new(self, name: str, data: bytes) -> None:
        """Write a file; FileExistsError if there is one by then."""

    @abstractmethod
    def write(self, name: str, data: bytes, *, for_good: bool = False) -> str:
        """Write a file, unless it is there already; the name it has.

        InTheWay if something else is in its place. With `for_good` it outlives a power cut.
        """


def open_folder(where: str | Path | Folder) -> Folder:
    """The folder that a user named: by its path, or by an address such as ``s3://bucket/run-1``."""
    if isinstance(where, Folder):
        return where
    if isinstance(where, str) and is_remote(where):
        from fedgauge.engines.remote_folder import RemoteFolder  # imports this file

        return RemoteFolder(where)
    return LocalFolder(Path(where))


def is_remote(where: str) -> bool:
    """Whether a folder is named by an address, such as ``s3://bucket/run-1``."""
    return "://" in where


def beside(name: str, data: bytes) -> str:
    """Another name for a file, where something is in the way of it."""
    *stem, kind, ending = name.split(".")
    return ".".join([*stem, sha256(data).hexdigest()[:16], kind, ending])


class LocalFolder(Folder):
    """A folder on this machine, or mounted on it.

    Others may write to it, too: a link of theirs must not lead to a file of this party, nor may
    what they put there keep a file from being written. `within` says that it lies in a folder of
    that kind, so that others may have put a link in its place.
    """

    def __init__(self, path: Path, *, within: bool = False) -> None:
        self._path = path
        self._within = within

    def __str__(self) -> str:
        return str(self._path)

    def place(self, name: str) -> str:
        """A file in words: where people find it."""
        return str(self._path / name)

    def missing(self) -> str | None:
        """Why there is no such folder, in words; None where there is one."""
        if os.path.isdir(self._path):  # False also where nobody may look
            return None
        if os.path.exists(self._path):
            return f"{self._path} is no folder"
        return f"there is no folder {self._path}"

    def names(self, pattern: str = "*") -> list[str]:
        """Whatever is listed and fits a pattern, sorted."""
        return [path.name for path in sorted(self._path.glob(pattern))]

    def folders(self) -> list[str]:
        """The names of folders in it; no link is followed."""
        try:
            with os.scandir(self._path) as found:
                return sorted(each.name for each in found if each.is_dir(follow_symlinks=False))
        except OSError as error:
            raise ExchangeError(f"cannot look into {self}: {error.strerror}.") from None

    def folder(self, name: str) -> "LocalFolder":
        """A folder in it, which need not be there."""
        return LocalFolder(self._path / name, within=True)

    def holds(self, name: str) -> bool:
        """Whether anything of that name is there, file or not."""
        if self._within and os.path.islink(self._path):
            return False
        return os.path.lexists(self._path / name)

    def read(self, name: str, most: int) -> bytes:
        """The bytes of a regular file of at most so many."""
        return read_regular(self._path / name, most, ExchangeError)

    def make(self) -> None:
        """Make the folder, if there is none; a link in its place would lead elsewhere."""
        try:
            if self._within and os.path.lexists(self._path):
                kind = kind_of(self._path)
                if kind != "a folder":
                    raise ExchangeError(
                        f"{self} is {kind or 'a file'}. It must be a folder: remove it."
                    )
            self._path.mkdir(parents=not self._within, exist_ok=True)
        except OSError as error:
            raise ExchangeError(f"cannot make folder {self}: {error.strerror}.") from None

    def write_new(self, name: str, data: bytes) -> None:
        """Write a file; FileExistsError if there is one by then."""
        path = self._path / name
        try:
            write_whole(path, data, follow=False, new=True)
        except RecordError as error:
            if not os.path.lexists(path):
                raise
            raise FileExistsError(str(path)) from error

    def write(self, name: str, data: bytes, *, for_good: bool = False) -> str:
        """Write a file, in the place of what this party may replace; the name it has."""
        path = self._path / name
        if for_good:
            try:
                storage.replace(path, data, mode=0o644)
            except OSError as error:
                raise self._in_the_way(path) or ExchangeError(
                    f"cannot write {path}: {error.strerror}."
                ) from None
            return name
        with suppress(ExchangeError):
            if read_regular(path, len(data), ExchangeError) == data:
                storage.remove_dead(path)
                return name
        try:
            write_whole(path, data, follow=False)
        except RecordError as error:
            raise self._in_the_way(path) or error from None
        return name

    def _in_the_way(self, path: Path) -> InTheWay | None:
        """What is there, unless it could be replaced: then something else went wrong."""
        try:
            is_mine = path.lstat().st_uid == os.geteuid()
        except OSError:
            return None
        kind = kind_of(path)
        if is_mine and kind != "a folder":
            return None
        return InTheWay(
            f"cannot write {path}: {kind or 'a file of another user'} is in its place. "
            f"Remove {path}."
        )
