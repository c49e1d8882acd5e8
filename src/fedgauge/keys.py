"""Ed25519 keys: what a site and a coordinator sign with, and the text form they are shared in."""

import base64
import binascii
import hashlib
import hmac
import os
import re
from pathlib import Path
from typing import Final, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from fedgauge import storage
from fedgauge.errors import SiteError
from fedgauge.storage import open_regular, require_own

_PUBLIC: Final = "ed25519:"
_SECRET: Final = "ed25519-secret:"  # noqa: S105  (a prefix)
_CHECKSUM_BYTES: Final = 4
_WRITTEN: Final = re.compile(r"[\w-]{48}", re.ASCII)  # 36 bytes in Base64
KEY_BYTES: Final = 32
_LONGEST_FILE: Final = 200
_IF_READ: Final = "make a new key if somebody may have read it"
_FIELD: Final = 2**255 - 19
_ORDER_8: Final = 0x05FC536D880238B13933C6D305ACDFD5F098EFF289F4C345B027B2C28F95E826
_SMALL_ORDER: Final = frozenset({0, 1, _FIELD - 1, _ORDER_8, _FIELD - _ORDER_8})


class SigningKey:
    """A private Ed25519 key; its `repr` shows the public key.

    >>> key = SigningKey.generate()
    >>> verify(key.public, b"a plan", key.sign(b"a plan"))
    True
    """

    __slots__ = ("_private", "_public")

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self._public = private.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> Self:
        """A new key from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, raw: bytes) -> Self:
        """The key with these 32 secret bytes."""
        if len(raw) != KEY_BYTES:
            raise SiteError(f"a private key has {KEY_BYTES} bytes, got {len(raw)}.")
        return cls(Ed25519PrivateKey.from_private_bytes(raw))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a key file, unless others than its owner may use it."""
        path = Path(path)
        try:
            if not path.is_file():
                raise SiteError(
                    f"there is no key file {path}. Check its name and folder. `fedgauge site init` "
                    "makes a site's, `fedgauge site approver` an approver's."
                )
            with open_regular(path) as file:
                # Asked of the open file: what is checked is what is read.
                opened = os.fstat(file.fileno())
                text = file.read(_LONGEST_FILE)
            require_own(path, SiteError, opened=opened, private=True, then=_IF_READ)
        except OSError as error:
            raise SiteError(f"cannot read key {path}: {error.strerror}.") from None
        raw = _decode(_SECRET, text.decode("ascii", errors="replace").removesuffix("\n"))
        if raw is None:
            raise SiteError(f"{path} is not a site's private key. Restore it from a copy.")
        return cls.from_bytes(raw)

    def save(self, path: str | Path) -> None:
        """Write the key to a new file that only its owner can read; never overwrites."""
        text = _encode(_SECRET, self._private.private_bytes_raw())
        try:
            storage.write_new(Path(path), f"{text}\n".encode("ascii"))
        except FileExistsError:
            raise SiteError(f"{path} exists, and a key is never overwritten.") from None
        except OSError as error:
            raise SiteError(f"cannot write key {path}: {error.strerror}.") from None

    @property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return self._public

    def derive(self, purpose: bytes) -> bytes:
        """Secret bytes for another purpose, which say nothing about the key."""
        return hmac.digest(self._private.private_bytes_raw(), b"fedgauge " + purpose, "sha256")

    def sign(self, message: bytes) -> bytes:
        """The signature of a message, 64 bytes."""
        return self._private.sign(message)

    def __repr__(self) -> str:
        return f"SigningKey(public={key_to_text(self._public)!r})"


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Whether a signature of a message is by the holder of a public key; False for junk."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


def key_to_text(public: bytes) -> str:
    """A public key as text: ``ed25519:`` and Base64 of the key and a checksum."""
    if len(public) != KEY_BYTES:
        raise SiteError(f"a public key has {KEY_BYTES} bytes, got {len(public)}.")
    return _encode(_PUBLIC, public)


def key_from_text(text: str) -> bytes:
    """The public key that a text stands for; each key has one text.

    The checksum finds a wrong letter, or two that changed places, but once in 4 billion times.
    """
    public = _decode(_PUBLIC, text)
    if public is not None:
        return public
    copy = "Copy the whole line that `fedgauge site show` prints."
    if text.startswith(_PUBLIC) and _WRITTEN.fullmatch(text.removeprefix(_PUBLIC)):
        raise SiteError(f"a letter of the public key {text} is wrong: its checksum differs. {copy}")
    raise SiteError(f"a public key is {_PUBLIC!r} and 48 letters, digits, - or _. {copy}")


def is_anybodys(public: bytes) -> bool:
    """Whether a public key is a point of small order, for which signatures need no secret."""
    # The sign of x is the highest bit, and says nothing about the order.
    y = int.from_bytes(public, "little") & ~(1 << 255)
    return y % _FIELD in _SMALL_ORDER


def _encode(prefix: str, raw: bytes) -> str:
    return prefix + base64.urlsafe_b64encode(raw + _checksum(prefix, raw)).decode("ascii")


def _decode(prefix: str, text: str) -> bytes | None:
    try:
        raw = base64.urlsafe_b64decode(text.removeprefix(prefix))[:-_CHECKSUM_BYTES]
    except (binascii.Error, ValueError):
        return None
    # Base64 readers skip what they do not know: only the one way to write a key is taken.
    return raw if len(raw) == KEY_BYTES and _encode(prefix, raw) == text else None


def _checksum(prefix: str, raw: bytes) -> bytes:
    return hashlib.sha256(prefix.encode("ascii") + raw).digest()[:_CHECKSUM_BYTES]
