"""Cards, the consortium's file and its words; what the commands change, and what they refuse."""

import hashlib
import os
import stat

import msgspec
import pytest
from cards import BOSS, World, cards_of, key_of, text_of, three
from commands import complaint, run, words, worked
from refusals import refused

import fedgauge as fg
from fedgauge import storage
from fedgauge.cli import consortium as commands_of
from fedgauge.errors import SiteError
from fedgauge.keys import key_to_text
from fedgauge.site import Card, Consortium, add_trust, card_of, offer, rekey
from fedgauge.site.consortium import _word_list

A, B, C = HOSPITALS = ("hospital-a", "hospital-b", "hospital-c")


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def agreed(tmp_path):
    return three(tmp_path)


def made(letters="abc", key=None, **options):
    key = key or key_of("r")
    return Consortium.sign("stroke", key, Card.sign(BOSS, key), cards_of(letters), **options)


def test_words_are_132_bits_of_the_digest_in_the_list_of_bip_39():
    """The hash of the list as published, so that all versions of all sites have the same words."""
    text = "".join(f"{word}\n" for word in _word_list())
    known = "2f5eed53a4727b4bf8880d8f3f199efc90e58503646d9ff8eff3a2ed3b24dbda"
    assert hashlib.sha256(text.encode()).hexdigest() == known
    file = made()
    bits = f"{int(file.digest, 16):0256b}"[:132]
    assert list(file.words) == [
        _word_list()[int(bits[at : at + 11], 2)] for at in range(0, len(bits), 11)
    ]
    unsigned = msgspec.structs.replace(file, signature=b"")
    signed = b"fedgauge consortium\0" + msgspec.msgpack.encode(unsigned)
    assert file.digest == hashlib.sha256(signed).hexdigest()


def test_four_letters_of_each_word_are_enough_and_fewer_words_are_not():
    assert len({word[:4] for word in _word_list()}) == 2048
    file = made()
    whole = " ".join(file.words)
    short = " ".join(word[:4] for word in file.words)
    numbered = "\n".join(f"{place}. {word}," for place, word in enumerate(file.words, 1))
    for typed in (whole, short, whole.upper(), file.words_in_rows, numbered):
        assert file.says(typed)
    for typed in (
        "",
        " ".join(file.words[:11]),
        f"{whole} zoo",
        " ".join(word[:3] for word in file.words),
        " ".join([*file.words[:11], "zoo"]),
        " ".join(reversed(file.words)),
    ):
        assert not file.says(typed)


def test_each_content_has_one_form_whatever_the_order_of_the_cards():
    key = key_of("r")
    orders = (cards_of("abc"), cards_of("cba"))
    files = [Consortium.sign("stroke", key, Card.sign(BOSS, key), cards) for cards in orders]
    assert files[0] == files[1]
    assert [card.name for card in files[0].sites] == list(HOSPITALS)
    assert Consortium.from_bytes(files[0].to_bytes()) == files[0]


def test_a_coordinator_may_be_a_site_and_nobody_else_has_its_name_or_key():
    key = key_of("r")
    card = Card.sign(BOSS, key)
    assert Consortium.sign("s", key, card, [*cards_of("ab"), card]).version == 1
    for other, told in (
        (Card.sign(BOSS, key_of("x")), "comes twice"),
        (Card.sign("hospital-x", key), "have the same key"),
        (Card.sign("hospital-a", key_of("x")), "comes twice"),
        (Card.sign("HOSPITAL-A", key_of("x")), "comes twice"),
        (Card.sign("hospital-x", key_of("a")), "have the same key"),
    ):
        refused(SiteError, told, Consortium.sign, "s", key, card, [*cards_of("ab"), other])
    refused(SiteError, "no site in it", Consortium.sign, "s", key, card, [])
    refused(
        SiteError, "name of a consortium must", Consortium.sign, "a b", key, card, cards_of("a")
    )


def test_versions_name_all_before_them():
    first = made()
    card, key = first.coordinator, key_of("r")
    second = first.updated(key, card, cards_of("d"), ["hospital-c"])
    third = second.updated(key, card, cards_of("c"), [])
    assert [file.version for file in (first, second, third)] == [1, 2, 3]
    assert third.earlier == (first.digest, second.digest)
    assert [card.name for card in third.sites] == [f"hospital-{x}" for x in "abcd"]
    assert len({first.words, second.words, third.words}) == 3
    refused(SiteError, "no site 'x'", first.updated, key, card, [], ["x"])
    refused(SiteError, "nothing would change", first.updated, key, card, cards_of("ab"), [])


def test_another_key_under_a_known_name_needs_the_old_key_or_a_word():
    first, key = made(), key_of("r")
    card, new = first.coordinator, key_of("n")
    unsigned = Card.sign(B, new)
    refused(SiteError, "--remove hospital-b", first.updated, key, card, [unsigned], [])
    by_stranger = Card.sign(B, new, old=key_of("x"))
    refused(SiteError, "did not sign it", first.updated, key, card, [by_stranger], [])
    assert unsigned in first.updated(key, card, [unsigned], [B]).sites
    signed = Card.sign(B, new, old=key_of("b"))
    assert signed in first.updated(key, card, [signed], []).sites
    # Cards of known keys change nothing, so all cards of a folder can be named again.
    kept = made().updated(key, card, [*cards_of("abcd")], [])
    assert kept.sites[:3] == first.sites


def test_three_commands_at_the_coordinator_and_two_at_each_site(tmp_path):
    init = ("site", "init", "--dataset", "d", "--name")
    for name in (BOSS, *HOSPITALS):
        worked(*init, name, tmp_path / name)
    cards = [tmp_path / name / f"{name}.card" for name in HOSPITALS]
    file, boss = tmp_path / "stroke.fgc", tmp_path / BOSS / "site.toml"
    told = worked("consortium", "create", file, *cards, "--site", boss).stdout
    heard = " ".join(told.splitlines()[-3:])
    for name in HOSPITALS:
        path = tmp_path / name / "site.toml"
        worked("consortium", "accept", file, "--fingerprint", heard, "--site", path)
        site = fg.Site.from_toml(path)
        assert sorted(site.peers.values()) == list(HOSPITALS)
        assert list(site.coordinators.values()) == [BOSS]
    coordinator = fg.Site.from_toml(boss)
    assert {*HOSPITALS} <= {*coordinator.peers.values()}


def test_init_makes_a_card_of_the_sites_key_for_everybody_to_read(world):
    site = world.site(A)
    card = Card.read(world.card(A))
    assert card == Card.sign(A, site.key)
    assert card_of(site) == card
    world.card(A).unlink()
    assert card_of(site) == card
    told = worked("site", "init", "--name", "x", "--dataset", "d", world.folder / "x").stdout
    assert f"Send {world.folder / 'x' / 'x.card'} to the coordinator" in told
    (world.folder / "y").mkdir()
    (world.folder / "y" / "y.card").touch()
    again = run("site", "init", "--name", "y", "--dataset", "d", world.folder / "y")
    assert "y.card exists" in complaint(again)


def test_create_says_who_is_in_it_and_what_to_read_aloud(world):
    told = world.create(*HOSPITALS).stdout
    file = Consortium.read(world.file)
    assert file.words_in_rows in told
    for name in (BOSS, *HOSPITALS):
        assert f"{name}: {key_to_text(world.site(name).key.public)}" in told
    assert "fedgauge consortium accept stroke.fgc" in told
    assert worked("consortium", "show", world.file).stdout.count("ed25519:") == 4
    assert file.words_in_rows in worked("consortium", "show", world.file).stdout
    assert stat.S_IMODE(world.file.stat().st_mode) & 0o044  # for others to read


def test_the_coordinators_own_card_makes_it_a_site(world):
    world.create(A, B, BOSS)
    world.everybody_accepts(A, B)
    assert world.trusted(A) == ({B, BOSS}, {BOSS})
    assert world.trusted(BOSS) == ({A, B}, {BOSS})
    worked("consortium", "update", world.file, "--remove", BOSS, "--site", world.path(BOSS))
    world.everybody_accepts(A, B)
    assert world.trusted(A) == ({B}, {BOSS})


def test_a_file_is_not_written_over_and_few_sites_are_remarked_upon(world):
    result = world.create(A, B)
    assert "at least 3 sites" in result.stderr
    before = world.file.read_bytes()
    again = run("consortium", "create", world.file, world.card(A), "--site", world.path(BOSS))
    assert "consortium update" in complaint(again)
    assert world.file.read_bytes() == before


def test_accept_changes_the_site_file_by_whom_it_trusts_alone(agreed):
    kept = agreed.kept(A)
    assert agreed.trusted(A) == ({B, C}, {BOSS})
    file = Consortium.read(agreed.file)
    assert (kept.consortium.version, kept.consortium.digest) == (1, file.digest)
    assert kept.consortium.sites == (B, C)
    shown = words(worked("site", "show", "--site", agreed.path(A), columns=140).stdout)
    assert "Consortium stroke, version 1, by registry" in shown
    bare = World(agreed.folder / "new")
    fields = ("peers", "coordinators", "consortium")
    before, after = (
        msgspec.structs.replace(each, **dict.fromkeys(fields, None)) for each in
        (bare.kept(A), kept)
    )  # fmt: skip
    assert before == after


def test_accepting_twice_changes_nothing_and_needs_no_words(agreed):
    before = agreed.path(A).read_bytes()
    told = worked("consortium", "accept", agreed.file, "--site", agreed.path(A)).stdout
    assert "Nothing was changed" in told
    assert agreed.path(A).read_bytes() == before


def test_comments_and_partners_added_by_hand_stay(agreed):
    path = agreed.path(A)
    add_trust(path, "peer", "friend", text_of("f"))
    add_trust(path, "coordinator", "other", text_of("o"))
    path.write_text(path.read_text() + "# compared in person\n")
    assert agreed.update(remove=[C]).exit_code == 0
    told = agreed.accept(A).stdout
    assert "- site hospital-c" in told
    assert "added by hand: other, friend" in told
    assert agreed.trusted(A) == ({B, "friend"}, {BOSS, "other"})
    assert path.read_text().count("# compared in person") == 1
    # A comment after a table that goes is the operator's, too.
    text = path.read_text()
    path.write_text(text.replace(f'name = "{B}"', f'# by phone\nname = "{B}"'))
    assert agreed.update(remove=[B]).exit_code == 0
    assert agreed.accept(A).exit_code == 0
    assert "# by phone" in path.read_text()
    assert agreed.trusted(A) == ({"friend"}, {BOSS, "other"})


def test_partners_that_were_added_by_hand_before_are_taken_over(world):
    """Under another name, or with another key, as the operator is shown."""
    path = world.path(A)
    add_trust(path, "peer", "ward-b", key_to_text(world.site(B).key.public))
    add_trust(path, "peer", C, text_of("x"))
    world.create(*HOSPITALS)
    told = world.accept(A).stdout
    assert "+ site hospital-b" in told
    assert "- site ward-b" in told
    assert "! site hospital-c has another key" in told
    assert "NOT signed by its old key" in told
    assert world.trusted(A) == ({B, C}, {BOSS})
    assert world.kept(A).consortium.sites == (B, C)


def test_what_a_new_version_changes_is_shown(agreed):
    agreed.make("hospital-d")
    worked("site", "rekey", "--site", agreed.path(B))
    result = agreed.update(agreed.card("hospital-d"), agreed.card(B), remove=[C])
    told = agreed.accept(A).stdout
    for shown in (result.stdout, told):
        lines = [line.strip() for line in shown.splitlines() if line.strip()[:2] in "+ ! - "]
        assert [line.split(":")[0] for line in lines if line] == [
            "! site hospital-b has another key",
            "+ site hospital-d",
            "- site hospital-c",
        ]
        assert "signed by its old key" in shown
        assert "NOT" not in shown
    assert agreed.trusted(A) == ({B, "hospital-d"}, {BOSS})
    assert agreed.site(B).key.public in agreed.site(A).peers


def test_versions_may_be_skipped(agreed):
    for name in ("d", "e"):
        agreed.make(f"hospital-{name}")
        assert agreed.update(agreed.card(f"hospital-{name}")).exit_code == 0
    agreed.everybody_accepts()
    assert agreed.kept(A).consortium.version == 3
    assert agreed.trusted(A)[0] == {B, C, "hospital-d", "hospital-e"}


def test_a_site_that_left_is_told_so(agreed):
    assert agreed.update(remove=[C]).exit_code == 0
    assert "hospital-c is not in the consortium" in agreed.refusal(C)


def test_words_are_asked_for_where_somebody_is_there(world, monkeypatch):
    world.create(*HOSPITALS)
    accept = ("consortium", "accept", world.file, "--site", world.path(A))
    before = world.path(A).read_bytes()
    nobody = run(*accept)
    assert nobody.exit_code == 2
    assert "--fingerprint" in nobody.stderr
    monkeypatch.setattr(commands_of, "someone_is_there", lambda: True)
    wrong = run(*accept, typed="zoo " * 12 + "\n")
    assert wrong.exit_code == 2
    assert "not the twelve words" in wrong.stderr
    assert world.words not in wrong.output
    assert run(*accept, typed="").exit_code != 0  # ended by the operator
    assert world.path(A).read_bytes() == before
    right = run(*accept, "--quiet", typed=f"{world.words}\n")
    assert right.exit_code == 0
    assert "Accepted" not in right.output
    assert world.trusted(A) == ({B, C}, {BOSS})


def test_a_site_file_that_changes_during_the_call_is_not_overwritten(world):
    world.create(*HOSPITALS)
    offered = offer(world.path(A), Consortium.read(world.file))
    worked("site", "dataset", "week-2", "--site", world.path(A))
    refused(SiteError, "changed meanwhile", offered.accept)
    assert world.site(A).dataset == "week-2"


def test_a_crash_leaves_the_old_site_file_or_the_new_one(world, monkeypatch):
    world.create(*HOSPITALS)
    before, names = world.path(A).read_bytes(), os.listdir(world.folder / A)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage.os, "replace", fail)
    assert "No space left" in world.refusal(A)
    assert world.path(A).read_bytes() == before
    assert sorted(os.listdir(world.folder / A)) == sorted(names)


def test_only_its_coordinator_changes_a_file_and_only_the_latest(agreed):
    result = run("consortium", "update", agreed.file, "--remove", C, "--site", agreed.path(A))
    assert "hospital-a coordinates no consortium" in complaint(result)
    first = agreed.file.read_bytes()
    assert agreed.update(remove=[C]).exit_code == 0
    agreed.file.write_bytes(first)
    told = complaint(agreed.update(remove=[B]))
    assert "version 1" in told
    assert "version 2" in told
    other = agreed.folder / "other.fgc"
    result = run("consortium", "create", other, agreed.card(A), "--site", agreed.path(B))
    assert "hospital-b is a site of 'stroke'" in complaint(result)
    assert not other.exists()


def test_one_that_begins_anew_is_accepted_by_name_only(agreed):
    agreed.file.unlink()
    told = agreed.create(A, B).stderr
    assert "--replace" in told
    assert "signed two" in agreed.refusal(A)
    assert agreed.accept(A, "--replace").exit_code == 0
    assert agreed.trusted(A) == ({B}, {BOSS})
    other = World(agreed.folder / "elsewhere")
    other.file = other.folder / "cancer.fgc"
    other.create(A)
    cards = [agreed.card(A), other.card(B)]
    worked("consortium", "create", agreed.folder / "lung.fgc", *cards, "--site", other.path(BOSS))
    agreed.file = agreed.folder / "lung.fgc"
    assert "another site" in agreed.refusal(A)
    assert agreed.accept(A, "--replace").exit_code == 0
    assert list(agreed.site(A).coordinators) == [other.site(BOSS).key.public]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("site.toml", "not a site's card"),
        ("site.key", "not a site's card"),
        ("stroke.fgc", "not a site's card"),
        ("none.card", "there is no file"),
        ("*.card", "there is no file"),
    ],
)
def test_other_files_than_cards_are_named(agreed, given, told):
    place = agreed.file if given == "stroke.fgc" else agreed.folder / A / given
    result = run(
        "consortium", "create", agreed.folder / "x.fgc", place, "--site", agreed.path(BOSS)
    )
    said = complaint(result)
    assert told in said
    assert str(place) in said
    assert "secret" not in said
    assert not (agreed.folder / "x.fgc").exists()


def test_a_name_of_a_file_that_is_none_for_a_consortium(world):
    file = world.folder / "our stroke.fgc"
    result = run("consortium", "create", file, world.card(A), "--site", world.path(BOSS))
    assert "name of a consortium must be" in complaint(result)
    assert not file.exists()


def test_a_site_file_says_which_version_it_accepted_and_nothing_else(agreed):
    path = agreed.path(A)
    text = path.read_text()
    for old, new, told in (
        ("version = 1", "version = 0", "1 or more"),
        ("version = 1", "version = -4", "1 or more"),
        ('coordinator = "registry"', 'coordinator = "registry"\nsince = 3', "since"),
    ):
        path.write_text(text.replace(old, new))
        refused(SiteError, told, agreed.site, A)


def test_partners_that_are_written_unusually_are_left_alone(world):
    path, own = world.path(A), key_to_text(world.site(A).key.public)
    world.create(*HOSPITALS)
    text = path.read_text()
    for name, public in ((B, text_of("b")), (A, own)):
        in_one_line = f'peers = [{{name = "{name}", key = "{public}"}}]\n'
        path.write_text(text.replace("format = 1\n", f"format = 1\n{in_one_line}"))
        world.site(A)
        if name == B:
            assert "Edit it by hand" in world.refusal(A)
        else:
            before = path.read_bytes()
            refused(SiteError, "Edit it by hand", rekey, path)
            assert path.read_bytes() == before
            assert key_to_text(world.site(A).key.public) == own


def test_a_large_consortium_is_read():
    """The limits leave room for the 20,000 sites of the largest sum."""
    longest = [Card.sign(letter * 64, key_of(letter), old=key_of("x")) for letter in "abc"]
    key = key_of("r")
    two, three = (
        len(Consortium.sign("s", key, Card.sign(BOSS, key), cards).to_bytes())
        for cards in (longest[:2], longest)
    )
    assert two + 20_000 * (three - two) < Consortium.most
    assert len(longest[0].to_bytes()) < Card.most
