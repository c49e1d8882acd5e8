"""Who takes part: public cards of sites, the coordinator's signed list of them, its fingerprint."""

import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final, Self

import msgspec

from fedgauge import storage
from fedgauge.errors import SiteError, located
from fedgauge.keys import SigningKey, key_from_text, key_to_text, verify
from fedgauge.site.policy import Party, by_key, check_name
from fedgauge.storage import MALFORMED

# No message of a protocol, result or approval begins like these.
_CARD: Final = b"fedgauge card\0"
_CONSORTIUM: Final = b"fedgauge consortium\0"
_DIGEST: Final = re.compile("[0-9a-f]{64}")
_LETTERS: Final = re.compile("[a-z]+")
WORDS: Final = 12
_BITS: Final = 11  # of one word: 132 in all, so that two files with the same words take 2^66 tries
_ENOUGH: Final = 4  # letters, by which all words of the list differ
_IN_A_ROW: Final = 4


class _SignedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """JSON that has one form, so that every changed byte is noticed."""

    kind: ClassVar[str]
    most: ClassVar[int]  # bytes

    def to_bytes(self) -> bytes:
        """The file's content."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a file, and check all signatures in it."""
        data = storage.read_regular(Path(path), cls.most, SiteError)
        with located(str(path)):
            return cls.from_bytes(data)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The same of the content of a file."""
        try:
            file = msgspec.json.decode(data, type=cls)
        except MALFORMED:
            raise SiteError(
                f"this is not {cls.kind} that this fedgauge can read. Check the name, and use the "
                "latest version."
            ) from None
        if file.to_bytes() != data:
            raise SiteError(
                "it was changed after it was made, perhaps on the way. Ask for it again, as an "
                "attachment or in an archive."
            )
        file.check()
        return file

    def check(self) -> None:
        """Refuse what is not signed as it must be."""
        raise NotImplementedError


class Card(_SignedFile, frozen=True, tag="fedgauge-card/1", tag_field="format", omit_defaults=True):
    """The name and the public key of a site, signed with that key.

    Parameters
    ----------
    name, key
        The site's name and its key as text.
    signature
        By that key.
    old_key, old_signature
        The key that this one replaces, and its signature; None for the first, or a lost one.

    Examples
    --------
    >>> card = Card.sign("hospital-a", SigningKey.generate())
    >>> Card.from_bytes(card.to_bytes()) == card
    True
    """

    kind: ClassVar[str] = "a site's card"
    most: ClassVar[int] = 1 << 16

    name: str
    key: str
    signature: bytes
    old_key: str | None = None
    old_signature: bytes | None = None

    @classmethod
    def sign(cls, name: str, key: SigningKey, *, old: SigningKey | None = None) -> Self:
        """The card of the holder of a key, who may also hold the one that it replaces."""
        unsigned = cls(
            name=name,
            key=key_to_text(key.public),
            old_key=None if old is None else key_to_text(old.public),
            signature=b"",
        )
        return msgspec.structs.replace(
            unsigned,
            signature=key.sign(unsigned._signed()),
            old_signature=None if old is None else old.sign(unsigned._signed()),
        )

    @property
    def party(self) -> Party:
        """Whom a site trusts that takes this card for true."""
        return Party(self.name, self.key)

    def check(self) -> None:
        """Refuse a card that the holder of its key did not sign."""
        if not verify(self.party.public, self._signed(), self.signature):
            raise SiteError(
                f"the card of {self.name} is not signed by the key on it, so nobody shows that the "
                "key is theirs. Ask for the card that `fedgauge site init` made."
            )
        old = b"" if self.old_key is None else key_from_text(self.old_key)
        if old and not verify(old, self._signed(), self.old_signature or b""):
            raise SiteError(
                f"the card of {self.name} names an old key that did not sign it. Ask for the card "
                "that `fedgauge site rekey` made."
            )

    def _signed(self) -> bytes:
        return _CARD + msgspec.msgpack.encode((self.name, self.key, self.old_key))


class Consortium(_SignedFile, frozen=True, tag="fedgauge-consortium/1", tag_field="format"):
    """The sites that evaluate together, as their coordinator signed it.

    Parameters
    ----------
    name
        Its name.
    coordinator
        The card of who signs the file and starts evaluations.
    sites
        The cards of the sites with data, by name. The coordinator may be one of them.
    earlier
        The digests of all earlier versions, the first one first.
    signature
        By the coordinator's key.

    Examples
    --------
    >>> boss, site = SigningKey.generate(), SigningKey.generate()
    >>> cards = [Card.sign("hospital-a", site)]
    >>> made = Consortium.sign("stroke", boss, Card.sign("registry", boss), cards)
    >>> made.version, len(made.words), made.says(" ".join(made.words))
    (1, 12, True)
    """

    kind: ClassVar[str] = "a consortium's file"
    most: ClassVar[int] = 1 << 24  # tens of thousands of cards

    name: str
    coordinator: Card
    sites: tuple[Card, ...]
    earlier: tuple[str, ...]
    signature: bytes

    @classmethod
    def sign(
        cls,
        name: str,
        key: SigningKey,
        coordinator: Card,
        sites: Iterable[Card],
        *,
        earlier: Sequence[str] = (),
    ) -> Self:
        """The file that a coordinator signs; SiteError where its readers would refuse it."""
        unsigned = cls(
            name=name,
            coordinator=coordinator,
            sites=tuple(sorted(sites, key=lambda card: card.name)),
            earlier=tuple(earlier),
            signature=b"",
        )
        made = msgspec.structs.replace(unsigned, signature=key.sign(unsigned._signed()))
        made.check()
        return made

    def updated(
        self, key: SigningKey, coordinator: Card, cards: Iterable[Card], remove: Iterable[str]
    ) -> Self:
        """The next version: without some sites, and with others or their new keys.

        A card with another key for a known name must be signed by the key that is known, or the
        name be among those removed.
        """
        sites = {card.name: card for card in self.sites}
        for name in remove:
            if sites.pop(name, None) is None:
                raise SiteError(f"there is no site {name!r} in it to be removed.")
        for card in cards:
            known = sites.get(card.name)
            if known is None or card.old_key == known.key:
                sites[card.name] = card
            elif card.key != known.key:
                raise SiteError(
                    f"the card of {card.name} has another key than so far, and the old key did not "
                    f"sign it. Ask {card.name} by phone whether it made a new key. If so, add "
                    f"--remove {card.name} to replace it."
                )
        if coordinator.name in sites:
            sites[coordinator.name] = coordinator
        if (coordinator, *sites.values()) == (self.coordinator, *self.sites):
            raise SiteError("nothing would change. Name the cards of new sites, or --remove NAME.")
        return self.sign(
            self.name, key, coordinator, sites.values(), earlier=(*self.earlier, self.digest)
        )

    @property
    def version(self) -> int:
        """Its number, from 1."""
        return len(self.earlier) + 1

    @property
    def digest(self) -> str:
        """The SHA-256 of what is signed."""
        return hashlib.sha256(self._signed()).hexdigest()

    @property
    def words(self) -> tuple[str, ...]:
        """The first 132 bits of the digest, in words of the list of BIP-39."""
        number = int(self.digest, 16) >> (256 - WORDS * _BITS)
        mask = (1 << _BITS) - 1
        return tuple(_word_list()[number >> _BITS * at & mask] for at in reversed(range(WORDS)))

    @property
    def words_in_rows(self) -> str:
        """The words, a few on each line, to be read aloud."""
        rows = (self.words[at : at + _IN_A_ROW] for at in range(0, WORDS, _IN_A_ROW))
        return "\n".join(f"  {' '.join(row)}" for row in rows)

    def says(self, typed: str) -> bool:
        """Whether these are its words; the first four letters of each are enough."""
        words = _LETTERS.findall(typed.lower())
        return len(words) == WORDS and all(
            told in (word, word[:_ENOUGH]) for told, word in zip(words, self.words, strict=True)
        )

    def check(self) -> None:
        """Refuse what its coordinator did not sign, or what no site could use."""
        check_name("the name of a consortium", self.name)
        if not self.sites:
            raise SiteError("there is no site in it. Name the cards of the sites.")
        # The coordinator may be one of the sites; nobody else has its name or its key.
        takes_part = self.coordinator in self.sites
        everybody = self.sites if takes_part else (self.coordinator, *self.sites)
        for card in everybody:
            card.check()
        by_key("sites", tuple(card.party for card in everybody))
        if not all(map(_DIGEST.fullmatch, self.earlier)):
            raise SiteError("the digests of its earlier versions are none.")
        if not verify(self.coordinator.party.public, self._signed(), self.signature):
            raise SiteError(
                f"it is not signed by {self.coordinator.name}, whom it names as the coordinator: "
                "it was changed, or made up. Ask the coordinator for it."
            )

    def _signed(self) -> bytes:
        unsigned: Any = msgspec.structs.replace(self, signature=b"")
        return _CONSORTIUM + msgspec.msgpack.encode(unsigned)


@cache
def _word_list() -> Sequence[str]:
    from mnemonic import Mnemonic  # a list that only these commands read

    return Mnemonic("english").wordlist
