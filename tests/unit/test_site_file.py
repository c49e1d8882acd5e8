"""A site file says whom a site trusts and what it allows, and is read strictly."""

import os
import stat

import pytest
from sites import BOSS, PEERS, STRANGER, edit, make_site, text_of

from fedgauge.errors import SiteError
from fedgauge.site import Policy, Site, add_trust, create_site

FILES = ["ledger.sqlite", "site.key", "site.key.head", "site.key.head.lock", "site.toml"]


@pytest.fixture
def site(tmp_path):
    return make_site(tmp_path / "site", peers="bcd")


def test_a_new_site(tmp_path):
    before = os.umask(0)
    try:
        site = create_site(tmp_path / "new" / "site", name="hospital-a", dataset="stroke-2026")
    finally:
        os.umask(before)
    assert stat.S_IMODE(site.folder.stat().st_mode) == 0o700
    assert sorted(os.listdir(site.folder)) == FILES
    assert {stat.S_IMODE(path.stat().st_mode) for path in site.folder.iterdir()} == {0o600}
    assert (site.name, site.dataset, site.policy) == ("hospital-a", "stroke-2026", Policy())
    assert dict(site.peers) == {site.key.public: "hospital-a"}
    assert dict(site.coordinators) == {}
    assert site.path == tmp_path / "new" / "site" / "site.toml"
    assert site.folder == tmp_path / "new" / "site"


def test_a_policy_is_written_and_read_back(tmp_path):
    policy = Policy(
        models=("secure-aggregation",),
        min_cohort=7,
        max_epsilon=0.1,
        max_delta=1e-12,
        max_bins=50,
        budget_epsilon=1e-3,
        budget_delta=0.0,
        score_sums=True,
        mix_exact=True,
    )
    assert create_site(tmp_path, name="a", dataset="d", policy=policy).policy == policy


@pytest.mark.parametrize("existing", [name for name in FILES if not name.endswith(".lock")])
def test_a_site_is_never_overwritten(tmp_path, existing):
    (tmp_path / existing).write_text("precious")
    with pytest.raises(SiteError, match="exists"):
        create_site(tmp_path, name="a", dataset="d")
    assert os.listdir(tmp_path) == [existing]
    assert (tmp_path / existing).read_text() == "precious"


def test_a_site_in_place_of_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SiteError, match="cannot make a site"):
        create_site(tmp_path / "file", name="a", dataset="d")


NAMES = [
    "",
    ".",
    "..",
    ".hidden",
    "-a",
    "_a",
    "a/b",
    "a\\b",
    "a b",
    "a\n",
    "é",
    "a" * 65,
    'a"',
    "a\0",
]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_safe_in_file_names(tmp_path, name):
    for names in ({"name": name, "dataset": "d"}, {"name": "a", "dataset": name}):
        with pytest.raises(SiteError, match="64 letters"):
            create_site(tmp_path / "site", **names)
    assert not (tmp_path / "site").exists()


def test_names_that_are_fine(tmp_path):
    for number, name in enumerate(["a", "A.b-c_d", "9", "a" * 64]):
        assert create_site(tmp_path / str(number), name=name, dataset=name).name == name


def test_trust_is_added_below_what_is_there(site):
    before = site.path.read_text()
    after = add_trust(site.path, "peer", "hospital-z", text_of(STRANGER))
    assert after.peers[STRANGER.public] == "hospital-z"
    assert STRANGER.public not in after.coordinators
    assert site.path.read_text().startswith(before)
    assert Site.from_toml(site.path).peers == after.peers
    assert sorted(os.listdir(site.folder)) == FILES
    again = add_trust(site.path, "coordinator", "hospital-z", text_of(STRANGER))
    assert again.coordinators == {BOSS.public: "consortium", STRANGER.public: "hospital-z"}


def test_trust_is_added_to_a_file_without_a_last_newline_keeping_its_mode(site):
    site.path.write_text(site.path.read_text().rstrip("\n") + " # the end")
    site.path.chmod(0o640)
    add_trust(site.path, "peer", "hospital-z", text_of(STRANGER))
    assert stat.S_IMODE(site.path.stat().st_mode) == 0o640


def test_trust_is_added_through_a_link(site, tmp_path):
    real = tmp_path / "real.toml"
    site.path.rename(real)
    site.path.symlink_to(real)
    add_trust(site.path, "peer", "hospital-z", text_of(STRANGER))
    assert site.path.is_symlink()
    assert "hospital-z" in real.read_text()


@pytest.mark.parametrize(
    ("kind", "name", "key", "match"),
    [
        ("peer", "b", text_of(STRANGER), "'b' comes twice"),
        ("peer", "B", text_of(STRANGER), "'B' comes twice"),
        ("peer", "hospital-a", text_of(STRANGER), "'hospital-a' comes twice"),
        ("peer", "z", text_of(PEERS["b"]), "same key"),
        ("coordinator", "consortium", text_of(STRANGER), "comes twice"),
        ("coordinator", "z", text_of(BOSS), "same key"),
        ("peer", "a/b", text_of(STRANGER), "64 letters"),
        ("peer", "z", "ed25519:short", "public key"),
        ("peer", "z", text_of(STRANGER) + '"\n', "public key"),
        ("friend", "z", text_of(STRANGER), "peer or coordinator"),
    ],
)
def test_trust_that_makes_no_sense_leaves_the_file_alone(site, kind, name, key, match):
    before = site.path.read_bytes()
    with pytest.raises(SiteError, match=match):
        add_trust(site.path, kind, name, key)
    assert site.path.read_bytes() == before


def test_the_sites_own_key_goes_under_its_own_name(site):
    with pytest.raises(SiteError, match="same key"):
        add_trust(site.path, "peer", "somebody", text_of(site.key))
    after = add_trust(site.path, "peer", "hospital-a", text_of(site.key))  # said twice is fine
    assert after.peers == site.peers
    with pytest.raises(SiteError, match="same key"):
        add_trust(site.path, "peer", "hospital-a", text_of(site.key))


def test_whom_a_site_trusts_cannot_be_changed_in_memory(site):
    with pytest.raises(TypeError):
        site.peers[STRANGER.public] = "z"
    with pytest.raises(TypeError):
        site.coordinators[STRANGER.public] = "z"
    with pytest.raises(AttributeError):
        site.policy = Policy()


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('name = "hospital-a"', "", "name"),
        ('dataset = "stroke"', "", "dataset"),
        ('key = "site.key"', "", "key"),
        ('ledger = "ledger.sqlite"', "", "ledger"),
        ('key = "site.key"', 'key = ""', "path of a file"),
        ('name = "hospital-a"', 'name = "hospital a"', "64 letters"),
        ('name = "hospital-a"', "name = 5", "str"),
        ('name = "hospital-a"', 'name = "hospital-a"\nnick = "a"', "nick"),
        ('name = "hospital-a"', 'name = "hospital-a"\nname = "b"', "TOML|line"),
        ("[policy]", "[policy]\nmax_everything = 1", "max_everything"),
        ("[policy]", "[polcy]", "polcy"),
        ("min_cohort = 3", "min_cohort = 2", "at least 3"),
        ("min_cohort = 3", "min_cohort = 3.5", "int"),
        ("min_cohort = 3", "min_cohort = true", "int"),
        ("min_colluding = 1", "min_colluding = 0", "min_colluding must be at least 1"),
        ("max_epsilon = 1.0", "max_epsilon = 0", "max_epsilon"),
        ("max_epsilon = 1.0", "max_epsilon = -1.0", "max_epsilon"),
        ("max_epsilon = 1.0", "max_epsilon = inf", "max_epsilon"),
        ("max_epsilon = 1.0", "max_epsilon = nan", "max_epsilon"),
        ("max_epsilon = 1.0", 'max_epsilon = "1.0"', "float"),
        ("max_delta = 1e-06", "max_delta = 1.0", "max_delta"),
        ("max_delta = 1e-06", "max_delta = nan", "max_delta"),
        ("budget_epsilon = 10.0", "budget_epsilon = inf", "budget_epsilon"),
        ("budget_delta = 1e-05", "budget_delta = -1.0", "budget_delta"),
        ("max_bins = 4096", "max_bins = 0", "max_bins"),
        ("mix_exact = false", "mix_exact = 0", "bool"),
        ("session_days = 30", "session_days = 0", "session_days must be at least 1"),
        ("session_days = 30", "session_days = 3651", "session_days must be at most 3,650"),
        ("score_sums = false", "score_sums = 256", "bool"),
        ('"distributed-dp"', '"central-dp"', "models must be among"),
        ('name = "c"', 'name = "b"', "comes twice"),
        ('name = "c"\n', "", "name"),
        ('name = "c"', 'name = "c"\nrole = "x"', "role"),
        (text_of(PEERS["c"]), text_of(PEERS["b"]), "same key"),
        (text_of(PEERS["c"]), text_of(PEERS["c"])[:-1], "public key"),
    ],
)
def test_a_site_file_is_read_strictly(site, old, new, match):
    edit(site, old, new)
    with pytest.raises(SiteError, match=match) as caught:
        Site.from_toml(site.path)
    assert str(caught.value).startswith(f"site file {site.path}")


def test_a_policy_of_numbers_without_a_point(site):
    edit(site, "max_epsilon = 1.0", "max_epsilon = 2")
    policy = Site.from_toml(site.path).policy
    assert policy.max_epsilon == 2.0
    assert isinstance(policy.max_epsilon, float)


def test_a_site_file_that_cannot_be_read(tmp_path, site):
    with pytest.raises(SiteError, match=r"there is no .*fedgauge site init"):
        Site.from_toml(tmp_path / "none.toml")
    with pytest.raises(SiteError, match=r"is a folder\. Name the site file in it"):
        Site.from_toml(tmp_path)
    site.path.write_bytes(b"\xff\xfe")
    with pytest.raises(SiteError, match="UTF-8"):
        Site.from_toml(site.path)


@pytest.mark.parametrize("mode", [0o666, 0o660, 0o602])
def test_a_site_file_that_others_can_change_is_refused(site, mode):
    site.path.chmod(mode)
    with pytest.raises(SiteError, match="chmod go-w"):
        Site.from_toml(site.path)
    site.path.chmod(0o644)
    assert Site.from_toml(site.path).name == site.name


def test_a_site_file_in_a_folder_that_is_open_to_all_is_refused(site):
    """Whoever may write there can put another site file, or an old ledger, in place."""
    for mode in (0o777, 0o1777, 0o775):
        site.folder.chmod(mode)
        with pytest.raises(SiteError, match=f"chmod go-w {site.folder}`"):
            Site.from_toml(site.path)
    site.folder.chmod(0o755)
    assert Site.from_toml(site.path).name == site.name


def test_the_key_file_is_checked_too(site):
    (site.folder / "site.key").chmod(0o644)
    with pytest.raises(SiteError, match="chmod 600"):
        Site.from_toml(site.path)
    (site.folder / "site.key").unlink()
    with pytest.raises(SiteError, match="no key file"):
        Site.from_toml(site.path)


def test_a_site_shows_no_secret(site):
    secret = (site.folder / "site.key").read_text().strip().removeprefix("ed25519-secret:")
    assert len(secret) == 43
    assert secret not in repr(site)
    assert "hospital-a" in repr(site)


def test_a_site_file_from_before_score_sums_refuses_them(site):
    lines = site.path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith("score_sums")]
    assert len(kept) == len(lines) - 1
    site.path.write_text("".join(kept))
    assert Site.from_toml(site.path).policy.score_sums is False
