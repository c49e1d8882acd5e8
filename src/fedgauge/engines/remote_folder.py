"""A folder on a server or in a bucket, at an address that fsspec knows.

Objects are written once, under a name that nothing has yet. Nothing is replaced, renamed, locked or
removed, and a listing may be old. What is damaged, or another's, stays where it is, and the right
bytes go beside it under a name of their own.

Drivers put addresses, headers and passwords into their errors, so no text of theirs is passed on.
"""

import fnmatch
import functools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Any, Final, TypeVar

from fedgauge.engines.folder import Folder, InTheWay, beside
from fedgauge.errors import ExchangeError, FedgaugeError, InputError
from fedgauge.escaping import in_one_line

_LOCAL: Final = ("file", "local")
_PACKAGES: Final = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "az": "adlfs",
    "sftp": "paramiko",
    "ssh": "paramiko",
}
_SECONDS: Final = 60  # after which a server that says nothing is given up
_REASONS: Final = (
    (PermissionError, "the server does not allow it"),
    (TimeoutError, "the server did not answer in time"),
    (ConnectionError, "there is no connection to the server"),
)
_REMEDY: Final = (
    "Try again; if that does not help, check the address, and the credentials in the environment "
    "or in fsspec's own configuration"
)
T = TypeVar("T")


class _Unfit(ExchangeError):
    """What is there is not the file, and to ask again would not help."""


class RemoteFolder(Folder):
    """A folder at an address such as ``sftp://server/srv/run-1``."""

    def __init__(self, url: str) -> None:
        self._url = _checked(url).rstrip("/")

    def __str__(self) -> str:
        return self._url

    def place(self, name: str) -> str:
        """A file in words: where people find it."""
        return f"{self._url}/{name}"

    def missing(self) -> str | None:
        """Why there is no such folder, in words; None where there is one."""
        try:
            found = self._call(f"find {self}", lambda fs, path: fs.info(path))
        except FileNotFoundError:
            return f"there is no folder {self}"
        return None if found["type"] == "directory" else f"{self} is no folder"

    def names(self, pattern: str = "*") -> list[str]:
        """Whatever is listed and fits a pattern, sorted."""
        files = [name for name, kind in self._listed() if kind != "directory"]
        return sorted(each for each in files if fnmatch.fnmatchcase(each, pattern))

    def folders(self) -> list[str]:
        """The names of folders in it, sorted; those that no address can have are left out."""
        found = []
        for name, kind in self._listed():
            if kind == "directory":
                with suppress(InputError):
                    self.folder(name)
                    found.append(name)
        return sorted(found)

    def folder(self, name: str) -> "RemoteFolder":
        """A folder in it, which need not be there."""
        return RemoteFolder(self.place(name))

    def holds(self, name: str) -> bool:
        """Whether there is any version of a file."""
        return self._size(name) is not None or any(self._beside(name))

    def read(self, name: str, most: int) -> bytes:
        """The bytes of an object of at most so many."""
        try:
            return self._read(name, most)
        except FileNotFoundError:
            raise _Unfit(f"there is no file {self.place(name)}.") from None

    def versions(self, name: str, most: int) -> Iterator[tuple[str, bytes]]:
        """A file, and those beside it: anybody may have taken its name."""
        refused: FedgaugeError | None = None
        found = False
        for each in chain((name,), self._beside(name)):
            try:
                data = self.read(each, most)
            except ExchangeError as error:
                refused = refused or error
            else:
                found = True
                yield each, data
        if refused is not None and not found:
            raise refused

    def make(self) -> None:
        """Nothing: buckets have no folders, and a server's is made with the first file in it."""

    def write_new(self, name: str, data: bytes) -> None:
        """Write an object; FileExistsError if there is one by then."""
        if self._size(name) is not None:
            raise FileExistsError
        doing = f"write {self.place(name)}"
        try:
            is_new = self._call(doing, lambda fs, path: _create(fs, path, data), name)
        except FileNotFoundError:
            raise ExchangeError(
                f"cannot write {self.place(name)}: there is no folder or bucket to make {self} in. "
                "Make it first."
            ) from None
        except ExchangeError:
            # It may have arrived all the same, or another's just before it.
            there = self._holds(name, data)
            if there is None:
                raise
            is_new = there
        if not is_new:
            raise FileExistsError

    def write(self, name: str, data: bytes, *, for_good: bool = False) -> str:
        """Write an object, unless it is there already; the name it has, which may be another."""
        del for_good  # there is no other way
        for each in (name, beside(name, data), beside(name, os.urandom(16))):
            there = self._holds(each, data)
            if there is None:
                try:
                    self.write_new(each, data)
                except FileExistsError:
                    continue
                return each
            if there:
                return each
        raise InTheWay(
            f"cannot write {self.place(name)}: other objects are in its place. Remove them."
        )

    def _holds(self, name: str, data: bytes) -> bool | None:
        """Whether an object has these bytes; None where there is none."""
        try:
            return self._read(name, len(data)) == data
        except FileNotFoundError:
            return None
        except _Unfit:
            return False

    def _beside(self, name: str) -> Iterator[str]:
        """The names that :func:`beside` gave to versions of a file."""
        *stem, kind, ending = name.split(".")
        parts = [*map(re.escape, stem), "[0-9a-f]{16}", re.escape(kind), re.escape(ending)]
        made = re.compile(r"\.".join(parts))
        yield from filter(made.fullmatch, self.names())

    def _size(self, name: str) -> int | None:
        """How many bytes an object has; None where there is none, and -1 for what is no object."""
        try:
            found = self._call(f"read {self.place(name)}", lambda fs, path: fs.info(path), name)
        except FileNotFoundError:
            return None
        return -1 if found["type"] == "directory" else int(found["size"])

    def _read(self, name: str, most: int) -> bytes:
        """The same; FileNotFoundError where there is no object."""
        place, size = self.place(name), self._size(name)
        if size is None:
            raise FileNotFoundError
        if size < 0:
            raise _Unfit(f"{place} is not a file but a folder. Remove {place}.")
        if size > most:
            raise _Unfit(f"{place} is larger than {most:,} bytes. Remove {place}.")
        if not size:
            return b""  # pipes and devices on a server say so too, and are not opened
        data = self._call(f"read {place}", lambda fs, path: fs.cat_file(path, end=size), name)
        if len(data) != size:
            raise _Unfit(f"{place} was cut short while it was read. Try again.")
        return bytes(data)

    def _listed(self) -> list[tuple[str, str]]:
        """Names in the folder, and what they are of; nothing where there is no folder."""

        def listed(fs: Any, path: str) -> list[tuple[str, str]]:
            found = []
            for each in fs.ls(path, detail=True):
                where, _, name = each["name"].rstrip("/").rpartition("/")
                if where.strip("/") == path.strip("/") and name not in ("", ".", ".."):
                    found.append((name, each["type"]))
            return found

        try:
            return self._call(f"list {self}", listed)
        except FileNotFoundError:
            return []

    def _call(self, doing: str, action: Callable[[Any, str], T], name: str = "") -> T:
        """What a driver says of an object, or of the folder; its errors without their words."""
        try:
            fs = _opened(self._url)
            fs.invalidate_cache()
            return action(fs, fs._strip_protocol(self.place(name) if name else self._url))
        except FedgaugeError:
            raise
        except FileNotFoundError:
            raise FileNotFoundError from None
        except Exception as error:
            _forget(self._url)
            raise ExchangeError(f"cannot {doing}: {_reason(error)}. {_REMEDY}.") from None


def _checked(url: str) -> str:
    """An address without anything secret in it; an error does not repeat it."""
    kind, _, rest = url.partition("://")
    told = None
    if ":" in rest.rpartition("@")[0]:
        told = "it holds a password, which would end up in logs and in the shell's history"
    elif "?" in url or "#" in url:
        told = "it has a ? or #, behind which are access tokens or options"
    elif "::" in url or kind.lower() in _LOCAL:
        told = "it is a chain of addresses, or names a folder of this machine"
    elif url != in_one_line(url):
        told = "it is too long, or has characters that do not print"
    if told is None:
        return url
    raise InputError(
        f"the address of the folder cannot be used: {told}. Write it as sftp://USER@HOST/PATH or "
        "s3://BUCKET/PATH, keep credentials in the environment or in fsspec's own configuration, "
        "and name a folder of this machine by its path."
    )


def _opened(url: str) -> Any:
    """The driver of an address, connected."""
    fs_class = _driver(url.partition("://")[0])
    return fs_class(**fs_class._get_kwargs_from_urls(url))


def _forget(url: str) -> None:
    """Connect anew next time: what is broken stays so."""
    try:
        _driver(url.partition("://")[0]).clear_instance_cache()
    except ExchangeError:
        return


def _driver(kind: str) -> Any:
    """The class that reads and writes at addresses of a kind."""
    package = _PACKAGES.get(kind)
    try:
        import fsspec

        found = fsspec.get_filesystem_class(kind)
    except ImportError:
        needs = "'fedgauge[remote]'" + (f" {package}" if package else " and the driver for it")
        raise ExchangeError(f"{kind}:// needs more packages: pip install {needs}.") from None
    except ValueError:
        raise InputError(
            f"no folder is at {kind}://. Use an address that fsspec knows, such as s3:// or "
            "sftp://, or the path of a folder."
        ) from None
    if found.__module__ == "fsspec.implementations.sftp":
        return _known_hosts_sftp()
    return found


@functools.cache
def _known_hosts_sftp() -> Any:
    from fsspec.implementations.sftp import SFTPFileSystem

    return type("KnownHostsSFTP", (SFTPFileSystem,), {"_connect": _connect, "pipe_file": _pipe})


def _connect(sftp: Any) -> None:
    """As the driver does, which would take any server for the right one and wait for ever."""
    import paramiko

    client = paramiko.SSHClient()
    client.load_system_host_keys()
    client.set_missing_host_key_policy(paramiko.RejectPolicy())
    waits = dict.fromkeys(("timeout", "banner_timeout", "auth_timeout"), _SECONDS)
    client.connect(sftp.host, **waits | sftp.ssh_kwargs)
    sftp.client, sftp.ftp = client, client.open_sftp()
    sftp.ftp.get_channel().settimeout(_SECONDS)


def _pipe(sftp: Any, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
    """As the driver does, but in one step: between two, another could write."""
    with sftp.ftp.open(path, "wxb" if mode == "create" else "wb") as file:
        file.set_pipelined(True)
        file.write(value)


def _create(fs: Any, path: str, data: bytes) -> bool:
    """Make an object and, if need be, its folder; whether there was none."""
    try:
        fs.pipe_file(path, data, mode="create")
    except FileExistsError:
        return False
    except FileNotFoundError:
        _make(fs, path.rpartition("/")[0])
        fs.pipe_file(path, data, mode="create")
    return True


def _make(fs: Any, folder: str) -> None:
    """Make a folder and those it is in, but no bucket, which would be made by mistake."""
    parent, slash, _ = folder.rpartition("/")
    if not slash:
        raise FileNotFoundError
    with suppress(FileExistsError):  # another party was faster
        try:
            fs.mkdir(folder, create_parents=False)
        except FileNotFoundError:
            _make(fs, parent)
            fs.mkdir(folder, create_parents=False)


def _reason(error: Exception) -> str:
    """Why a driver failed, by the kind of its error alone."""
    for kind, told in _REASONS:
        if isinstance(error, kind):
            return told
    return f"its driver failed ({type(error).__name__})"
