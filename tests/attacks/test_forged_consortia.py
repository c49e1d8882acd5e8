"""Whoever wants a site to trust a key that is not its partner's: on the way of a card or of a
consortium's file, with an older file, as a member, or as a coordinator that shows each site another
file. What holds them off are signatures, versions and twelve words heard on the phone."""

import json
import os
from itertools import count

import msgspec
import pytest
from cards import BOSS, World, cards_of, forged, key_of, text_of, three
from commands import complaint, run, words
from plans import noisy_plan
from refusals import refused

from fedgauge.errors import PlanRefused, SiteError
from fedgauge.keys import SigningKey, key_from_text, key_to_text
from fedgauge.site import Card, Consortium, add_approver, add_trust

A, B, C = HOSPITALS = ("hospital-a", "hospital-b", "hospital-c")
MALLORY = SigningKey.from_bytes(b"m" * 32)
WRONG_WORDS = "not the twelve words"


@pytest.fixture
def agreed(folder):
    return three(folder)


@pytest.fixture
def world(folder):
    return World(folder)


def swapped_in(file, name, key):
    """The cards of a file with another key, signed by itself, for one name."""
    card = Card.sign(name, key)
    return tuple(card if each.name == name else each for each in file.sites)


@pytest.mark.parametrize("whose", ["stranger", "member", "accepting site"])
def test_a_file_signed_by_somebody_else_in_the_coordinators_name(agreed, whose):
    keys = {
        "stranger": MALLORY,
        "member": agreed.site(B).key,
        "accepting site": agreed.site(A).key,
    }
    file, key = Consortium.read(agreed.file), keys[whose]
    sites = swapped_in(file, C, MALLORY)
    later = forged(file, key, sites=sites, earlier=(file.digest,))
    agreed.file.write_bytes(later.to_bytes())
    assert "not signed by registry" in agreed.refusal(A, words=" ".join(later.words))


def test_a_file_of_a_coordinator_with_the_same_name(agreed):
    """Well signed in itself, by a key that the site never heard of."""
    file = Consortium.read(agreed.file)
    own = forged(
        file,
        MALLORY,
        coordinator=Card.sign(BOSS, MALLORY),
        sites=swapped_in(file, C, key_of("x")),
        earlier=(file.digest,),
    )
    agreed.file.write_bytes(own.to_bytes())
    assert "signed by another key" in agreed.refusal(A, words=" ".join(own.words))
    # A site that accepted nothing before has the words alone, which the true coordinator reads.
    heard = " ".join(file.words)
    fresh = World(agreed.folder / "fresh", "a")
    card = Card.read(fresh.card(A))
    sites = tuple(card if each.name == A else each for each in own.sites)
    fresh.file.write_bytes(forged(own, MALLORY, sites=sites, earlier=()).to_bytes())
    assert WRONG_WORDS in fresh.refusal(A, words=heard)


def test_every_changed_byte_of_a_file_or_a_card_is_noticed(agreed):
    for data, kind in (
        (agreed.file.read_bytes(), Consortium),
        (agreed.card(A).read_bytes(), Card),
    ):
        for place in range(len(data)):
            before, after = data[:place], data[place + 1 :]
            others = {data[place] ^ 1, data[place] ^ 0x20, 0x20, 0x0A} - {data[place]}
            changed = [before + bytes([other]) + after for other in others]
            for each in (*changed, before + after, before + b" " + data[place:]):
                with pytest.raises(SiteError):
                    kind.from_bytes(each)


def test_one_changed_byte_changes_nothing_at_the_site(agreed):
    data = agreed.file.read_bytes()
    place = data.index(b"hospital-c")
    agreed.file.write_bytes(data[:place] + b"H" + data[place + 1 :])
    agreed.refusal(A, words=" ".join(Consortium.from_bytes(data).words))


@pytest.mark.parametrize("field", ["name", "coordinator", "sites", "earlier"])
def test_each_field_is_signed(agreed, field):
    file = Consortium.read(agreed.file)
    other = {
        "name": "cancer",
        "coordinator": Card.sign(BOSS, MALLORY),
        "sites": file.sites[:-1],
        "earlier": ("0" * 64,),
    }
    for none in ("", "0" * 63, "A" * 64, "0" * 64 + "\n"):
        false = forged(file, agreed.site(BOSS).key, earlier=(none,))
        refused(SiteError, "earlier versions", Consortium.from_bytes, false.to_bytes())
    changed = msgspec.structs.replace(file, **{field: other[field]})
    assert changed.words != file.words
    refused(SiteError, "not signed by registry", Consortium.from_bytes, changed.to_bytes())


def invited(agreed, name, members):
    """What a site says to a plan for these members, from its coordinator."""
    site = agreed.site(name)
    site.judge(
        noisy_plan(bins=8),
        members=members,
        coordinator=agreed.site(BOSS).key.public,
    )


def test_a_member_replaced_in_a_new_version_is_a_stranger_until_that_is_accepted(agreed):
    """The coordinator itself names another key for a hospital, and starts at once."""
    honest = [agreed.site(name).key.public for name in HOSPITALS]
    invited(agreed, A, honest)
    card = agreed.folder / "m.card"
    card.write_bytes(Card.sign(C, MALLORY).to_bytes())
    assert agreed.update(card, remove=[C]).exit_code == 0
    with_mallory = [*honest[:2], MALLORY.public]
    refused(PlanRefused, "not approved here", invited, agreed, A, with_mallory)
    shown = agreed.accept(A, words="zoo " * 12)
    assert shown.exit_code == 2
    assert f"hospital-c has another key: {key_to_text(MALLORY.public)}" in shown.stdout
    assert "NOT signed by its old key: ask hospital-c by phone" in shown.stdout
    refused(PlanRefused, "not approved here", invited, agreed, A, with_mallory)
    invited(agreed, A, honest)
    # And the one that was replaced does not accept: the key is not its own.
    assert "another key for hospital-c than this site's own" in agreed.refusal(C)


def test_a_removed_member_is_a_stranger_once_that_is_accepted(agreed):
    members = [agreed.site(name).key.public for name in HOSPITALS]
    assert agreed.update(remove=[C]).exit_code == 0
    agreed.everybody_accepts(A, B)
    refused(PlanRefused, "not approved here", invited, agreed, A, members)


def test_an_older_version_is_refused_with_its_own_words(agreed):
    """It brings back a member that left, whose key somebody may have by now."""
    old = agreed.file.read_bytes()
    assert agreed.update(remove=[C]).exit_code == 0
    agreed.everybody_accepts(A, B)
    agreed.file.write_bytes(old)
    told = agreed.refusal(A)
    assert "the older version 1" in told
    assert agreed.trusted(A) == ({B}, {BOSS})


def test_two_files_of_one_version_have_other_words_and_do_not_go_together(agreed):
    """The coordinator shows one site members that it made up."""
    first, boss = Consortium.read(agreed.file), agreed.site(BOSS).key
    made_up = forged(first, boss, sites=swapped_in(first, C, MALLORY), earlier=(first.digest,))
    honest = forged(first, boss, sites=first.sites[:2], earlier=(first.digest,))
    assert made_up.version == honest.version == 2
    agreed.file.write_bytes(made_up.to_bytes())
    # In one call, both sites hear the words of the honest file.
    assert WRONG_WORDS in agreed.refusal(A, words=" ".join(honest.words))
    # Read to each site alone, both are accepted; then neither takes what follows from the other's.
    assert agreed.accept(A).exit_code == 0
    agreed.file.write_bytes(honest.to_bytes())
    assert "signed two" in agreed.refusal(A)
    next_one = honest.updated(boss, honest.coordinator, cards_of("d"), [])
    agreed.file.write_bytes(next_one.to_bytes())
    assert "signed two" in agreed.refusal(A)
    assert agreed.accept(B).exit_code == 0


def alike(file, key, word):
    """Another file that begins with the same word: the attacker tries keys until one does."""
    tried = (SigningKey.from_bytes(number.to_bytes(32, "big")) for number in count())
    others = (forged(file, key, sites=swapped_in(file, C, each)) for each in tried)
    return next(other for other in others if other.words[0] == word)


def test_files_made_to_look_alike_differ_in_words_that_are_compared(agreed):
    """One word takes 2,000 tries on average, so all twelve are typed: they take 2^66."""
    file, boss = Consortium.read(agreed.file), agreed.site(BOSS).key
    other = alike(file, boss, file.words[0])
    assert other.words[0] == file.words[0]
    fields = [
        {name: value for name, value in json.loads(each.to_bytes()).items() if name != "signature"}
        for each in (file, other)
    ]
    assert [each.pop("sites")[2]["name"] for each in fields] == [C, C]
    assert fields[0] == fields[1]
    assert not other.says(" ".join(file.words))
    for place in range(12):
        heard = list(other.words)
        heard[place] = file.words[place] if place else "zoo"
        assert not other.says(" ".join(heard))


@pytest.mark.parametrize("name", ["mallory", A])
def test_a_card_of_a_key_that_is_somebody_elses(world, name):
    """The victim's key is public: a card shows that its holder wanted to be called so."""
    victim = Card.read(world.card(B))
    stolen = msgspec.structs.replace(Card.sign(name, MALLORY), key=victim.key)
    renamed = msgspec.structs.replace(victim, name=name)
    card = world.folder / "m.card"
    for false in (stolen, renamed):
        card.write_bytes(false.to_bytes())
        create = ("consortium", "create", world.file, world.card(A), card)
        told = complaint(run(*create, "--site", world.path(BOSS)))
        assert "not signed by the key on it" in told
        assert not world.file.exists()
        assert world.trusted(BOSS) == (set(), set())


def test_a_coordinator_lists_a_key_whose_holder_signed_no_card(agreed):
    """Such as that of a hospital that takes no part: the file is refused, well signed as it is."""
    file, boss = Consortium.read(agreed.file), agreed.site(BOSS).key
    taken = msgspec.structs.replace(Card.sign("hospital-d", MALLORY), key=text_of("v"))
    later = forged(file, boss, sites=(*file.sites, taken), earlier=(file.digest,))
    agreed.file.write_bytes(later.to_bytes())
    told = agreed.refusal(A, words=" ".join(later.words))
    assert "hospital-d is not signed by the key on it" in told


def test_a_card_replaced_on_its_way_to_the_coordinator(world):
    """The one it is about notices, and the words of all sites are those of the false file."""
    world.card(B).rename(world.folder / "true.card")
    world.card(B).write_bytes(Card.sign(B, MALLORY).to_bytes())
    world.create(*HOSPITALS)
    told = world.refusal(B)
    assert "another key for hospital-b than this site's own" in told
    assert "tell the other sites" in told
    (world.folder / "true.card").rename(world.card(B))
    assert world.update(world.card(B), remove=[B]).exit_code == 0
    world.everybody_accepts()


def resigned(card, signer, **fields):
    """A card with other fields, signed by the key on it."""
    card = msgspec.structs.replace(card, **fields)
    return msgspec.structs.replace(card, signature=signer.sign(card._signed()))


@pytest.mark.parametrize("old", ["none", "a stranger", "a member", "forged", "of another card"])
def test_a_new_key_that_the_old_one_did_not_sign(agreed, old):
    b = agreed.site(B).key
    by_stranger = Card.sign(B, MALLORY, old=key_of("x"))
    true = Card.sign(B, key_of("n"), old=b)  # which its owner sends to all partners
    card = {
        "none": Card.sign(B, MALLORY),
        "a stranger": by_stranger,
        "a member": Card.sign(B, MALLORY, old=agreed.site(C).key),
        "forged": resigned(by_stranger, MALLORY, old_key=key_to_text(b.public)),
        "of another card": resigned(true, MALLORY, key=key_to_text(MALLORY.public)),
    }[old]
    path = agreed.folder / "m.card"
    path.write_bytes(card.to_bytes())
    assert "did not sign it" in complaint(agreed.update(path))
    assert Consortium.read(agreed.file).version == 1
    Card.from_bytes(true.to_bytes())


def test_nobody_takes_the_old_key_from_a_card(agreed):
    """So that a new key would look as if the old one was lost."""
    true = Card.sign(B, key_of("n"), old=agreed.site(B).key)
    bare = msgspec.structs.replace(true, old_key=None, old_signature=None)
    refused(SiteError, "not signed by the key on it", Card.from_bytes, bare.to_bytes())
    half = msgspec.structs.replace(true, old_signature=None)
    refused(SiteError, "did not sign it", Card.from_bytes, half.to_bytes())


def test_an_old_card_does_not_bring_back_an_old_key(agreed):
    """Whoever has a key that its site gave up sends the card that was made with it."""
    old = agreed.card(B).read_bytes()
    assert run("site", "rekey", "--site", agreed.path(B)).exit_code == 0
    assert agreed.update(agreed.card(B)).exit_code == 0
    path = agreed.folder / "old.card"
    path.write_bytes(old)
    assert "the old key did not sign it" in complaint(agreed.update(path))


HOSTILE = {
    "a line of ours": "a\nfedgauge: accepted",
    "a cleared screen": "\x1b[2Ja",
    "turned letters": "a\u202eb",
    "nothing to see": "a\u200b",
    "a folder": "../site",
    "a formula": "=1+1",
    "a lone half": "a\ud800",
    "nothing": "",
    "too long": "a" * 65,
}


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())
def test_names_that_would_speak_to_a_terminal_are_refused_and_written_out(agreed, name):
    """Of a card, of a coordinator, of a consortium: signed as if they were good names."""
    card = Card(name="x", key=key_to_text(MALLORY.public), signature=b"")
    card = msgspec.structs.replace(card, name=name)
    file = Consortium.read(agreed.file)
    try:
        card = msgspec.structs.replace(card, signature=MALLORY.sign(card._signed()))
        files = [
            forged(file, MALLORY, coordinator=Card.sign(BOSS, MALLORY), name=name),
            forged(file, MALLORY, coordinator=card),
            forged(file, agreed.site(BOSS).key, sites=(*file.sites, card)),
            card,
        ]
        written = [each.to_bytes() for each in files]
    except UnicodeEncodeError:  # a lone half is in no message, but JSON can spell it
        spelled = agreed.file.read_bytes().replace(b"hospital-c", rb"a\ud800")
        files, written = [file, card], [spelled, spelled]
    for each, data in zip(files, written, strict=True):
        place = agreed.folder / "bad"
        place.write_bytes(data)
        site = ("--site", agreed.path(BOSS))
        results = [
            run("consortium", "show", place),
            run("consortium", "accept", place, "--fingerprint", "x", *site),
        ]
        if isinstance(each, Card):
            results = [run("consortium", "update", agreed.file, place, *site)]
        for result in results:
            told = complaint(result)
            assert all(sign.isprintable() for sign in told.rstrip("\n"))
            assert "\u202e" not in told
    assert agreed.trusted(BOSS) == ({A, B, C}, {BOSS})


@pytest.mark.parametrize("command", ["trust", "site file", "verify", "card"])
def test_a_key_with_one_wrong_letter_is_trusted_nowhere(world, command):
    right = text_of("b")
    place = 20
    wrong = right[:place] + ("A" if right[place] != "A" else "B") + right[place + 1 :]
    path = world.path(A)
    match command:
        case "trust":
            told = complaint(run("site", "trust", B, wrong, "--site", path))
        case "site file":
            path.write_text(path.read_text() + f'\n[[peers]]\nname = "{B}"\nkey = "{wrong}"\n')
            told = complaint(run("site", "show", "--site", path))
        case "verify":
            told = complaint(run("verify", world.folder / "none.json", "--key", wrong))
        case "card":
            data = world.card(B).read_bytes()
            text = key_to_text(world.site(B).key.public)
            other = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
            world.card(B).write_bytes(data.replace(text.encode(), other.encode()))
            create = ("consortium", "create", world.file, world.card(B))
            told = complaint(run(*create, "--site", world.path(BOSS)))
    assert "its checksum differs" in told
    assert "fedgauge site show" in told


def test_keys_that_anybody_can_sign_with_are_in_no_file(agreed):
    """Small points of the curve: a signature by them fits any text, in some libraries."""
    file, boss = Consortium.read(agreed.file), agreed.site(BOSS).key
    for public in (bytes(32), (1).to_bytes(32, "little")):
        false = msgspec.structs.replace(
            Card.sign("hospital-d", MALLORY), key=key_to_text(public), signature=bytes(64)
        )
        later = forged(file, boss, sites=(*file.sites, false), earlier=(file.digest,))
        agreed.file.write_bytes(later.to_bytes())
        assert "anybody can sign with" in agreed.refusal(A, words=" ".join(later.words))
    assert key_from_text(text_of("a"))


def test_the_officers_key_becomes_no_partners(agreed):
    """A coordinator whose key is the approver's could approve of what it asks for."""
    key = agreed.folder / "officer.key"
    add_approver(agreed.path(A), "officer", key)
    officer = SigningKey.load(key)
    file, boss = Consortium.read(agreed.file), agreed.site(BOSS).key
    sites = (*file.sites, Card.sign("hospital-d", officer))
    later = forged(file, boss, sites=sites, earlier=(file.digest,))
    agreed.file.write_bytes(later.to_bytes())
    told = agreed.refusal(A, words="x")  # before anybody is asked for words
    assert "An approval is signed with a key of its own" in told


def test_a_consortium_takes_away_nobody_that_was_trusted_by_hand(agreed):
    """Whoever signs the file speaks for those in it, not for the site's other partners."""
    add_trust(agreed.path(A), "coordinator", "insurer", text_of("i"))
    add_trust(agreed.path(A), "peer", "friend", text_of("f"))
    assert agreed.update(remove=[B, C]).exit_code == 0
    assert agreed.accept(A).exit_code == 0
    assert agreed.trusted(A) == ({"friend"}, {BOSS, "insurer"})


def test_files_that_are_none_or_too_large_are_not_read(agreed):
    card, file = agreed.folder / "x.card", agreed.folder / "x.fgc"
    site = ("--site", agreed.path(BOSS))

    def told():
        shown = complaint(run("consortium", "show", file))
        added = complaint(run("consortium", "update", agreed.file, card, *site))
        return shown, added

    for data in (b"", b"{}", b"[" * 100_000, b'{"a":' * 100_000, b"\xff" * 100, b"null"):
        card.write_bytes(data[:4000])
        file.write_bytes(data)
        assert all("that this fedgauge can read" in each for each in told())
    for path, most in ((card, Card.most), (file, Consortium.most)):
        with path.open("wb") as opened:
            opened.truncate(most + 1)
    assert all("larger than" in each for each in told())
    for path in (card, file):
        path.unlink()
        os.mkfifo(path)
    assert all("a pipe" in each for each in told())
    for path in (card, file):
        path.unlink()
        path.symlink_to(agreed.file)
    assert all("a link" in each for each in told())


def test_accept_says_whom_a_site_would_trust_before_it_asks(agreed):
    """An operator who was talked into the words still sees the names and keys."""
    file, boss = Consortium.read(agreed.file), agreed.site(BOSS).key
    card = Card.sign("hospital-d", MALLORY)
    agreed.file.write_bytes(
        forged(file, boss, sites=(*file.sites, card), earlier=(file.digest,)).to_bytes()
    )
    result = agreed.accept(A, words="x")
    assert result.exit_code == 2
    assert f"+ site hospital-d: {key_to_text(MALLORY.public)}" in words(result.stdout)
