"""A site's files are its owner's: nobody else can read, change or replace them."""

import os
import shlex
import stat
import subprocess

import pytest
from ledgers import spend
from refusals import refused
from sites import make_site
from users import ALICE, MALLORY, as_user, entry, needs_root

from fedgauge.errors import FedgaugeError, SiteError
from fedgauge.keys import SigningKey
from fedgauge.site import Account, Site, create_site

FILES = ["site.toml", "site.key", "ledger.sqlite", "site.key.head"]
FOLDERS = ["sessions", "answers"]


@pytest.fixture
def site(tmp_path):
    made = make_site(tmp_path / "above" / "site", peers="bcd")
    for name in FOLDERS:
        (made.folder / name).mkdir(mode=0o700)
    return made


def use(path):
    """Read a site and its ledger, as every command does."""
    return len(Site.from_toml(path).ledger.entries())


def refusal(path):
    with pytest.raises(FedgaugeError) as told:
        use(path)
    assert "\n" not in str(told.value)
    return str(told.value)


def follow(told):
    subprocess.run(shlex.split(told.split("`")[1]), check=True)


OPEN = [
    # Sticky or not: whoever may make files in it can make those that are read next.
    *((".", mode, "go-w") for mode in (0o775, 0o770, 0o777, 0o1777, 0o757, 0o2775)),
    # Whoever can rename the folder puts another one, with an old ledger, in its place.
    *(("..", mode, "go-w") for mode in (0o777, 0o757, 0o775, 0o770)),
    *((name, mode, None) for name in FILES for mode in (0o666, 0o660, 0o602, 0o620)),
    *((name, mode, "600") for name in FILES[1:] for mode in (0o644, 0o640, 0o604)),
    *((name, mode, "700") for name in FOLDERS for mode in (0o755, 0o750, 0o777, 0o701)),
]


@pytest.mark.parametrize(("name", "mode", "remedy"), OPEN)
def test_what_others_can_write_or_look_into(site, name, mode, remedy):
    place = (site.folder / name).resolve()
    place.chmod(mode)
    told = refusal(site.path)
    assert (f"`chmod {remedy} {place}`" if remedy else "`chmod ") in told
    follow(told)
    assert use(site.path) == 0


@pytest.mark.parametrize("mode", [0o1777, 0o1775, 0o755, 0o711, 0o700])
def test_a_folder_above_where_others_touch_only_their_own(site, mode):
    site.folder.parent.chmod(mode)
    assert use(site.path) == 0


def test_a_site_file_may_be_read_and_a_ledger_elsewhere_is_its_owners_too(site, tmp_path):
    site.path.chmod(0o644)
    site.folder.chmod(0o755)
    assert use(site.path) == 0
    elsewhere = tmp_path / "a disk" / "ledger"
    elsewhere.mkdir(parents=True)
    site.ledger_path.rename(elsewhere / "l.sqlite")
    text = site.path.read_text().replace('"ledger.sqlite"', f'"{elsewhere}/l.sqlite"')
    site.path.write_text(text)
    assert use(site.path) == 0
    for folder in (elsewhere, elsewhere.parent):
        folder.chmod(0o777)
        told = refusal(site.path)
        assert f"`chmod go-w '{folder}'`" in told  # as a shell takes it
        follow(told)
    assert use(site.path) == 0


def test_links_are_checked_and_where_they_lead(site, tmp_path):
    link = tmp_path / "links" / "site.toml"
    link.parent.mkdir()
    link.symlink_to(site.path)
    assert Site.from_toml(link.resolve()).name == site.name
    site.folder.parent.chmod(0o777)
    refused(SiteError, f"chmod go-w {site.folder.parent}`", Site.from_toml, link)
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    refused(SiteError, "cannot read site file", Site.from_toml, tmp_path / "a" / "site.toml")


def test_the_way_of_a_link_is_checked_too(tmp_path, site):
    """Whoever can change a link along the way chooses what is read."""
    assert site.folder == tmp_path / "above" / "site"
    middle = tmp_path / "middle"
    middle.mkdir()
    (middle / "folder").symlink_to("../above")
    link = tmp_path / "by-link"
    link.symlink_to("middle/folder/site")
    assert use(link / "site.toml") == 0
    middle.chmod(0o777)
    assert f"`chmod go-w {middle}`" in refusal(link / "site.toml")


@needs_root
@pytest.mark.parametrize("name", [*FILES, *FOLDERS, ".", ".."])
def test_what_another_user_owns(site, name):
    place = (site.folder / name).resolve()
    os.chown(place, MALLORY, -1)
    told = refusal(site.path)
    assert f"{place} belongs to " in told
    assert f"`chown root {place}`" in told
    follow(told)
    assert use(site.path) == 0


@needs_root
def test_a_link_or_a_file_that_another_user_owns(site, tmp_path):
    """In a folder as /tmp it is for its owner to say where it leads."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o1777)
    link = tmp_path / "shared" / "site"
    link.symlink_to(site.folder)
    assert use(link / "site.toml") == 0
    os.chown(link, MALLORY, -1, follow_symlinks=False)
    assert f"`chown -h root {link}`" in refusal(link / "site.toml")
    os.chown(site.path, 47_999, -1)
    assert "belongs to 47999" in refusal(site.path)


@needs_root
def test_a_user_uses_its_own_files_and_those_of_root(home):
    def made():
        return create_site(home / "site", name="a", dataset="d").name

    assert as_user(ALICE, made) == "a"
    path = home / "site" / "site.toml"
    assert as_user(ALICE, lambda: use(path)) == "0"
    os.chown(path, 0, 0)
    path.chmod(0o644)
    assert as_user(ALICE, lambda: use(path)) == "0"
    os.chown(path, MALLORY, MALLORY)
    told = as_user(ALICE, lambda: use(path))
    assert "belongs to mallory" in told
    assert f"`chown alice {path}`" in told


@needs_root
def test_root_does_not_use_files_of_a_user(home):
    """Who runs it as root by mistake would leave files that the owner cannot use."""
    as_user(ALICE, lambda: create_site(home / "site", name="a", dataset="d"))
    told = refusal(home / "site" / "site.toml")
    assert "belongs to alice" in told
    assert "Run this as alice" in told


@needs_root
def test_a_user_with_a_group_of_its_own_and_umask_002(home):
    """Folders that such a user makes are writable for a group that nobody else is in."""

    def made():
        (home / "work").mkdir()
        create_site(home / "work" / "new" / "site", name="a", dataset="d")
        (home / "work" / "empty").mkdir()
        create_site(home / "work" / "empty", name="b", dataset="d")
        for folder in (home / "work" / "new" / "site", home / "work" / "empty"):
            use(folder / "site.toml")
        SigningKey.generate().save(home / "work" / "officer.key")
        SigningKey.load(home / "work" / "officer.key")
        return "well"

    assert as_user(ALICE, made, umask=0o002) == "well"
    assert stat.S_IMODE((home / "work").stat().st_mode) == 0o775
    assert stat.S_IMODE((home / "work" / "empty").stat().st_mode) == 0o700


SHARED = {
    "members": lambda people: people.groups.update({ALICE: ("alice", ["mallory"])}),
    "primary": lambda people: people.users.append(entry("mallory", MALLORY, ALICE)),
    "other name": lambda people: people.groups.update({ALICE: ("users", [])}),
    "no group": lambda people: people.groups.pop(ALICE),
}


@needs_root
@pytest.mark.parametrize("shared", SHARED)
def test_a_group_that_others_may_be_in(home, people, shared):
    work = home / "work"

    def made():
        work.mkdir(mode=0o755)
        return create_site(work / "site", name="a", dataset="d").name

    assert as_user(ALICE, made) == "a"
    work.chmod(0o775)
    assert as_user(ALICE, lambda: use(work / "site" / "site.toml")) == "0"
    SHARED[shared](people)
    told = as_user(ALICE, lambda: use(work / "site" / "site.toml"))
    assert f"`chmod go-w {work}`" in told


@needs_root
def test_a_list_of_further_writers_is_not_overlooked(home, monkeypatch):
    """With an access control list, the mode of the group is what others named in it may do."""
    work = home / "work"
    as_user(ALICE, lambda: create_site(work / "site", name="a", dataset="d"))
    work.chmod(0o775)
    monkeypatch.setattr(os, "getxattr", lambda *_, **__: b"list", raising=False)
    told = as_user(ALICE, lambda: use(work / "site" / "site.toml"))
    assert f"`chmod go-w {work}`" in told


@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_no_site_is_made_where_others_could_change_it(tmp_path, mode):
    folder = tmp_path / "full"
    folder.mkdir()
    (folder / "rows.csv").write_text("")
    folder.chmod(mode)
    refused(SiteError, f"chmod go-w {folder}`", create_site, folder, name="a", dataset="d")
    assert os.listdir(folder) == ["rows.csv"]
    folder.chmod(0o755)
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(0o777)
    refused(SiteError, f"chmod go-w {above}`", create_site, above / "site", name="a", dataset="d")
    assert list(above.iterdir()) == []


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_a_site_is_made_with_the_right_modes(tmp_path, umask):
    before = os.umask(umask)
    try:
        site = create_site(tmp_path / "new" / "site", name="a", dataset="d")
        spend(site.ledger, 1, 0.1, Account("d", "example", "add-remove"))
    finally:
        os.umask(before)
    assert use(site.path) == 2
    for place in (site.folder.parent, site.folder, *site.folder.iterdir()):
        assert not place.stat().st_mode & 0o022
