"""Files that parties send each other: read whole, in the one form they are written in."""

from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from fedgauge.errors import InputError
from fedgauge.storage.whole import MALFORMED, read_bounded

MOST_BYTES: Final = 1 << 30  # ids of some tens of millions of examples


class Formatted(Protocol):
    """A file that names its format."""

    @property
    def format(self) -> str:
        """The format's name."""


F = TypeVar("F", bound=Formatted)


def read_file(path: str | Path) -> bytes:
    """A file that another party sent, unless it is too large to be one."""
    try:
        return read_bounded(path, MOST_BYTES)
    except OSError as error:
        raise InputError(f"cannot read the file: {error.strerror}.") from None


def decoded(kind: type[F], data: bytes, wanted: str) -> F | None:
    """What a file says; None where it is not of this kind and format, in its one form.

    In two forms one file would have two digests, and two signatures.
    """
    try:
        file = msgspec.msgpack.decode(data, type=kind)
    except MALFORMED:
        return None
    return file if file.format == wanted and msgspec.msgpack.encode(file) == data else None


def covered(file: msgspec.Struct, signed_as: bytes) -> bytes:
    """What the party that a file names signs: all of it but the signature."""
    return signed_as + msgspec.msgpack.encode(msgspec.structs.replace(file, signature=b""))
