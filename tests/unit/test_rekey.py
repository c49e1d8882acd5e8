"""A new key of a site: what stays, who signs it, and what a crash leaves."""

import os
import shutil
import stat
from itertools import count
from pathlib import Path

import pytest
from cards import BOSS, World, text_of, three
from commands import complaint, run, worked
from ledgers import EXAMPLES, LIMIT, spend
from refusals import refused

import fedgauge as fg
from fedgauge.data.fingerprint import Fingerprinter
from fedgauge.errors import PlanRefused, SiteError
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.site import Card, Consortium, add_approver, add_trust, rekey
from fedgauge.site.exact_sums import ExactRules, ExactSum, check_data

A, B, C = HOSPITALS = ("hospital-a", "hospital-b", "hospital-c")


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def agreed(tmp_path):
    return three(tmp_path)


def rekeyed(world, name, *options, **more):
    return worked("site", "rekey", "--site", world.path(name), *options, **more).stdout


def test_all_but_the_key_stays(agreed):
    path, before = agreed.path(A), agreed.site(A)
    add_approver(path, "officer", agreed.folder / "officer.key")
    before = agreed.site(A)
    before.ledger.set_limit(EXAMPLES, LIMIT)
    spend(before.ledger, 1, 0.5)
    text, entries = path.read_bytes(), before.ledger.entries()
    told = rekeyed(agreed, A)
    after = agreed.site(A)
    assert after.key.public != before.key.public
    assert path.read_bytes() == text
    assert after.ledger.entries() == entries
    assert after.policy == before.policy
    others = {key: name for key, name in before.peers.items() if name != A}
    assert {key: name for key, name in after.peers.items() if name != A} == others
    assert (after.coordinators, after.approvers) == (before.coordinators, before.approvers)
    assert stat.S_IMODE(after.key_path.stat().st_mode) == 0o600
    assert f"fedgauge site trust hospital-a {key_to_text(after.key.public)} --replace" in told
    assert not list((agreed.folder / A).glob("*.new"))
    worked("doctor", "--site", path)


def test_the_old_key_signs_the_new_card_and_is_gone(agreed):
    old = agreed.site(A).key
    assert "signed by its old key" in rekeyed(agreed, A)
    site, card = agreed.site(A), Card.read(agreed.card(A))
    assert card.party.public == site.key.public
    assert card.old_key == key_to_text(old.public)
    secret = key_to_text(old._private.private_bytes_raw()).removeprefix("ed25519:")[:40]
    for file in (agreed.folder / A).iterdir():
        assert secret.encode() not in file.read_bytes()


def test_a_lost_key_is_replaced_without_its_signature(agreed):
    agreed.site(A).key_path.unlink()
    assert "not signed by its old key" in rekeyed(agreed, A)
    assert Card.read(agreed.card(A)).old_key is None
    told = complaint(agreed.update(agreed.card(A)))
    assert "by phone" in told
    assert "--remove hospital-a" in told
    assert agreed.update(agreed.card(A), remove=[A]).exit_code == 0
    assert "NOT signed by its old key: ask hospital-a by phone" in agreed.accept(B).stdout
    agreed.everybody_accepts(A, B, C)
    assert agreed.site(A).key.public in agreed.site(B).peers


def test_partners_see_that_it_was_replaced(agreed):
    rekeyed(agreed, A)
    assert agreed.update(agreed.card(A)).exit_code == 0
    told = agreed.accept(B).stdout
    assert "! site hospital-a has another key" in told
    assert "signed by its old key" in told
    agreed.everybody_accepts(A, C)
    for name in HOSPITALS:
        assert set(agreed.site(name).peers) == {agreed.site(each).key.public for each in HOSPITALS}


@pytest.mark.parametrize("lost", [False, True])
def test_a_coordinator_gets_a_new_key(agreed, lost):
    if lost:
        agreed.site(BOSS).key_path.unlink()
    told = rekeyed(agreed, BOSS)
    assert "fedgauge consortium update" in told
    assert agreed.update().exit_code == 0
    if lost:
        told = agreed.refusal(A)
        assert "another key" in told
        assert "by phone" in told
        assert agreed.accept(A, "--replace").exit_code == 0
    else:
        assert agreed.accept(A).exit_code == 0
    boss = agreed.site(BOSS)
    for name in (A, BOSS):
        assert list(agreed.site(name).coordinators) == [boss.key.public]
    agreed.make("hospital-d")  # and it goes on from there
    assert agreed.update(agreed.card("hospital-d")).exit_code == 0
    assert agreed.accept(A).exit_code == 0


def test_a_coordinator_with_data_has_one_new_key_in_both_roles(tmp_path):
    world = World(tmp_path)
    world.create(A, B, BOSS)
    world.everybody_accepts(A, B)
    rekeyed(world, BOSS)
    assert world.update().exit_code == 0
    file = Consortium.read(world.file)
    assert file.coordinator in file.sites
    assert world.accept(A).exit_code == 0
    assert world.trusted(A) == ({B, BOSS}, {BOSS})


def test_a_site_that_lists_itself_is_mended(tmp_path):
    world = World(tmp_path, "a")
    path = world.path(A)
    own = key_to_text(world.site(A).key.public)
    add_trust(path, "coordinator", A, own)
    add_trust(path, "coordinator", "other", text_of("o"))
    path.write_text(path.read_text() + f'\n[[peers]]\nname = "{A}"\nkey = "{own}"\n')
    world.site(A)
    rekeyed(world, A)
    site = world.site(A)
    assert set(site.coordinators.values()) == {A, "other"}
    assert site.key.public in site.coordinators
    assert own not in path.read_text()


class Killed(BaseException):
    pass


def dying(original, steps):
    def step(*arguments, **options):
        if not steps:
            raise Killed
        steps.pop()
        return original(*arguments, **options)

    return step


def test_killed_anywhere_it_has_one_key_and_goes_on(tmp_path, monkeypatch):
    """At each call that changes a file: the site has its old key or the new, and its old key signed
    whatever card there is. Run again, it has one new key and a card of it."""
    world = World(tmp_path, "a")
    path = world.path(A)
    old = world.site(A).key.public
    add_trust(path, "coordinator", A, key_to_text(old))
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / A, kept)
    steps = []

    for survived in count():
        shutil.rmtree(tmp_path / A)
        shutil.copytree(kept, tmp_path / A)
        steps[:] = [None] * survived
        with monkeypatch.context() as patched:
            for name in ("replace", "fsync", "link"):
                original = getattr(os, name)
                patched.setattr(os, name, dying(original, steps))
            try:
                rekey(path)
                finished = True
            except Killed:
                finished = False
        key = SigningKey.load(tmp_path / A / "site.key")
        card = Card.read(world.card(A))
        assert key.public == old or card.party.public == key.public
        assert card.party.public == old or card.old_key == key_to_text(old)
        if finished:
            break
        if key.public == old:
            rekey(path)
        site = world.site(A)
        assert Card.read(world.card(A)).party.public == site.key.public
        assert Card.read(world.card(A)).old_key == key_to_text(old)
        assert list(site.coordinators) == [site.key.public]
        assert not list((tmp_path / A).glob("*.new"))
    assert survived >= 4


def test_half_a_new_key_is_made_anew(agreed):
    old = agreed.site(A).key
    coming = agreed.folder / A / "site.key.new"
    for left in (b"", b"ed25519-secret:AAAA"):
        coming.write_bytes(left)
        rekeyed(agreed, A)
        assert not coming.exists()
        assert agreed.site(A).key.public not in (old.public, b"")


def test_a_key_that_cannot_be_used_is_not_taken_for_lost(agreed):
    path = agreed.site(A).key_path
    whole = path.read_bytes()
    path.write_bytes(whole[:-6])
    result = run("site", "rekey", "--site", agreed.path(A))
    assert "not a site's private key" in complaint(result)
    path.write_bytes(whole)
    path.chmod(0o644)
    assert "chmod 600" in complaint(run("site", "rekey", "--site", agreed.path(A)))
    path.chmod(0o600)
    assert path.read_bytes() == whole
    assert agreed.site(A).peers


def test_a_site_file_that_is_wrong_is_refused_before_anything_is_made(agreed):
    path = agreed.path(A)
    path.write_text(path.read_text().replace("min_cohort = 3", "min_cohort = 2"))
    before = sorted(os.listdir(agreed.folder / A))
    assert "min_cohort" in complaint(run("site", "rekey", "--site", path))
    refused(SiteError, "no site file", rekey, agreed.folder / "none.toml")
    assert sorted(os.listdir(agreed.folder / A)) == before


def test_exact_sums_of_rows_that_had_some_are_refused_under_a_new_key(agreed):
    """The digests of rows cannot be compared any more: rows count as changed, under each name."""
    before = agreed.site(A)
    rekeyed(agreed, A)
    after = agreed.site(A)

    def of(site):
        taken = Fingerprinter(site.fingerprint_key)
        taken.add(fg.Examples([0, 1, 1], [0.1, 0.6, 0.7]))
        return taken.fingerprint()

    rules = ExactRules(3, False, 3, 100)
    sums = [ExactSum(None, "plan", data=of(before))]
    check_data(of(before), sums, [], rules)
    refused(PlanRefused, "not those of the earlier", check_data, of(after), sums, [], rules)
    refused(PlanRefused, "nearly as many rows", check_data, of(after), [], [of(before)], rules)


def test_it_asks_where_evaluations_are_under_way(agreed):
    site = agreed.site(A)
    site.ledger.reserve(bytes(32), EXAMPLES, LIMIT, default_limit=LIMIT)
    result = run("site", "rekey", "--site", agreed.path(A))
    assert result.exit_code != 0
    assert "--yes" in result.stderr
    assert agreed.site(A).key.public == site.key.public
    rekeyed(agreed, A, "--yes")
    assert agreed.site(A).key.public != site.key.public


def test_a_key_in_another_folder_is_replaced_there(tmp_path):
    world = World(tmp_path, "a")
    elsewhere = Path(tmp_path, "keys")
    elsewhere.mkdir(mode=0o700)
    for name in ("site.key", "site.key.head"):
        shutil.move(tmp_path / A / name, elsewhere / name)
    path = world.path(A)
    path.write_text(path.read_text().replace('"site.key"', f'"{elsewhere / "site.key"}"'))
    old = world.site(A).key.public
    rekeyed(world, A)
    assert world.site(A).key.public != old
    assert sorted(os.listdir(elsewhere))[0] == "site.key"
