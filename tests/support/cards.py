"""A coordinator and sites, each with a card: what they type, and files that somebody forged."""

import msgspec
from commands import run, worked

import fedgauge as fg
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.site import Card, Consortium, create_site
from fedgauge.site.policy import SiteFile

BOSS = "registry"


def key_of(letter):
    return SigningKey.from_bytes(letter.encode() * 32)


def cards_of(letters):
    return [Card.sign(f"hospital-{letter}", key_of(letter)) for letter in letters]


def forged(file, key, **fields):
    """A consortium's file with other fields, rightly signed by a key, whatever is in it."""
    unsigned = msgspec.structs.replace(file, signature=b"", **fields)
    return msgspec.structs.replace(unsigned, signature=key.sign(unsigned._signed()))


class World:
    """The folders of a coordinator and of hospitals, and the file that goes round."""

    def __init__(self, folder, letters="abc"):
        self.folder, self.file = folder, folder / "stroke.fgc"
        self.make(BOSS)
        for letter in letters:
            self.make(f"hospital-{letter}")

    def make(self, name, place=None):
        return create_site(self.folder / (place or name), name=name, dataset="stroke-2026")

    def path(self, name):
        return self.folder / name / "site.toml"

    def site(self, name):
        return fg.Site.from_toml(self.path(name))

    def card(self, name, place=None):
        return self.folder / (place or name) / f"{name}.card"

    def kept(self, name):
        """The site file as written."""
        return SiteFile.from_text(self.path(name).read_text())

    def trusted(self, name):
        """Whom a site trusts, itself left out: sites, then coordinators."""
        site = self.site(name)
        peers = {called for key, called in site.peers.items() if key != site.key.public}
        return peers, set(site.coordinators.values())

    @property
    def words(self):
        return " ".join(Consortium.read(self.file).words)

    def create(self, *names, **options):
        cards = [self.card(name) for name in names]
        return worked(
            "consortium", "create", self.file, *cards, "--site", self.path(BOSS), **options
        )

    def update(self, *cards, remove=()):
        gone = [word for name in remove for word in ("--remove", name)]
        site = ("--site", self.path(BOSS))
        return run("consortium", "update", self.file, *cards, *gone, *site)

    def accept(self, name, *options, words=None):
        told = ("--fingerprint", words or self.words)
        site = ("--site", self.path(name))
        return run("consortium", "accept", self.file, *told, *options, *site)

    def refusal(self, name, *options, words=None):
        """Why a site does not accept the file; nothing of it changes."""
        before = self.path(name).read_bytes()
        result = self.accept(name, *options, words=words)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
        assert self.path(name).read_bytes() == before
        return result.stderr

    def everybody_accepts(self, *names):
        for name in names or ("hospital-a", "hospital-b", "hospital-c"):
            result = self.accept(name)
            assert result.exit_code == 0, result.output


def three(folder):
    """Three hospitals in one consortium, which all of them accepted."""
    world = World(folder)
    world.create("hospital-a", "hospital-b", "hospital-c")
    world.everybody_accepts()
    return world


def text_of(letter):
    return key_to_text(key_of(letter).public)
