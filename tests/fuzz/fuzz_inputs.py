"""What several targets need: folders, packed parts, signatures made anew."""

import struct
import tempfile
import zlib
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from fedgauge.errors import FedgaugeError
from fedgauge.protocol import Envelope
from fedgauge.vertical.files import covered

pack, unpack = msgspec.msgpack.encode, msgspec.msgpack.decode


def new_folder():
    path = Path(tempfile.mkdtemp())
    made.append(path)
    return path


made: list[Path] = []  # folders, to be removed in the end


@contextmanager
def forgiving(*more):
    """What goes wrong while a mutant is made ready to be read; it is then read as it is."""
    with suppress(
        *more, ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError,
        RecursionError, struct.error, msgspec.MsgspecError, FedgaugeError,
    ):  # fmt: skip
        yield


class Unmade(FedgaugeError):
    """Some bytes are nothing that anybody could send."""


def parts_of(data, *kinds):
    """A list of values of these kinds, packed."""
    try:
        parts = unpack(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise Unmade from None
    fits = isinstance(parts, list) and len(parts) == len(kinds)
    if not fits or not all(map(isinstance, parts, kinds)):
        raise Unmade
    return parts


def signed_again(data, key):
    """An envelope that says the same, rightly signed by `key`; as it is where that cannot be."""
    with forgiving():
        _, session, stage, sender, recipient, body, _ = unpack(data)
        place = {"stage": stage, "sender": sender, "recipient": recipient}
        return Envelope.sealed(key, session=session, body=body, **place).to_bytes()
    return data


def struct_signed_again(data, kind, signed_as, key):
    """The same of a file with a field for its signature."""
    with forgiving():
        found = unpack(data, type=kind)
        signed = msgspec.structs.replace(found, signature=key.sign(covered(found, signed_as)))
        return signed.to_bytes()
    return data


def every(data, number):
    """Whether these bytes are among one in so many, always the same ones: for what takes long."""
    return zlib.crc32(data) % number == 0


def each_alone(*steps):
    for step in steps:
        with suppress(FedgaugeError):
            step()


def part_of(data, steps, number=3):
    """One in so many of the steps, always the same for the same bytes: for what takes long."""
    return steps[zlib.crc32(data) % number :: number]


def write_files(folder, names, contents):
    """Files of these names; those that no folder can hold are left out."""
    folder.mkdir(exist_ok=True)
    for name, content in zip(names, contents, strict=False):
        if isinstance(name, str) and isinstance(content, bytes) and "/" not in name:
            with suppress(OSError, ValueError):
                (folder / name).write_bytes(content)
