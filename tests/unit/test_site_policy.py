"""Every plan outside the site file is refused, and every other charged to the right account."""

import math
import os
import stat

import msgspec
import pytest
from refusals import refused
from sites import BOSS, PEERS, STRANGER, edit, make_site, text_of

from fedgauge import Axis, BinaryTask, Cohort, EvaluationPlan, HistogramRound
from fedgauge.engines.contribution import contribution, count_rows
from fedgauge.errors import BudgetExceeded, PlanRefused, SiteError
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.privacy import DistributedDP, SecureAggregation
from fedgauge.privacy.keystream import Keystream
from fedgauge.site import Account, Cost, Policy, Site, add_trust, create_site
from fedgauge.site.exact_sums import ExactRules
from fedgauge.site.ledger_entries import SumRoster

CLIPPED = Axis.uniform(64, outside="clip")
EXACT, HALF = SecureAggregation(), DistributedDP(0.5)
LEDGER = ["ledger.sqlite", "site.key.head", "site.key.head.lock"]
FILES = sorted([*LEDGER, "hospital-a.card", "site.key", "site.toml"])


@pytest.fixture
def site(tmp_path):
    return make_site(tmp_path / "site")


def members(site):
    return [site.key.public, *(key.public for key in PEERS.values())]


def plan_for(privacy=None, *, axis=CLIPPED, cohort=None, **options):
    return EvaluationPlan.for_histogram(
        axis, cohort or Cohort(4, 1), privacy=privacy or DistributedDP(0.5), **options
    )


def judge(site, plan=None, **changes):
    asked = {"members": members(site), "coordinator": BOSS.public} | changes
    site.judge(plan or plan_for(), **asked)


def clipped(bins):
    return {"axis": Axis.uniform(bins, outside="clip")}


def test_a_plan_within_the_site_file_is_taken(site):
    for privacy, options in (
        (DistributedDP(1.0), {}),
        (DistributedDP(1.0, delta=1e-6, noise="skellam"), {}),
        (DistributedDP(0.5, unit="client", max_per_unit=100), {}),
        (EXACT, {}),
        (EXACT, {"cohort": Cohort(4, 2)}),
        (HALF, {"cohort": Cohort(4, 3)}),
        (EXACT, clipped(4096)),
        (HALF, clipped(4096)),
    ):
        before = sorted(os.listdir(site.folder))
        judge(site, plan_for(privacy, **options))
        assert sorted(os.listdir(site.folder)) == before  # judging writes nothing


def test_a_plan_beyond_the_site_file_is_refused(site):
    for privacy, options, told in (
        (EXACT, {"cohort": Cohort(4, 3)}, "3 of 4 sites collude"),
        (EXACT, {"cohort": Cohort(1, 1)}, "at least 3"),
        (EXACT, {"cohort": Cohort(2, 1)}, "at least 3"),
        (EXACT, {"cohort": Cohort(4, 0)}, "max_colluding"),  # who contributes may read the result
        (HALF, {"cohort": Cohort(4, 0)}, "max_colluding"),
        (DistributedDP(1.0000001), {}, r"epsilon 1\.0000001, this site allows 1\.0"),
        (
            DistributedDP(0.5, delta=2e-6, noise="skellam"),
            {},
            r"delta 2e-06, this site allows 1e-06",
        ),
        (EXACT, clipped(4097), "4,097 bins, this site allows 4,096"),
        (HALF, clipped(4097), "4,097 bins, this site allows 4,096"),
        (EXACT, {"axis": Axis.uniform(64)}, r"outside='clip'"),  # silence would tell of scores
    ):
        refused(PlanRefused, told, judge, site, plan_for(privacy, **options))


def test_a_coordinator_must_be_approved(site):
    with pytest.raises(PlanRefused, match=r"coordinator ed25519:.* not approved.*site.toml"):
        judge(site, coordinator=STRANGER.public)
    with pytest.raises(PlanRefused, match="coordinator"):
        judge(site, coordinator=PEERS["b"].public)  # a peer is no coordinator
    refused(PlanRefused, "malformed", judge, site, coordinator=b"short")


def test_members_are_peers_that_count_once(site):
    puppets = [SigningKey.generate().public for _ in range(3)]
    mine, five = members(site), plan_for(cohort=Cohort(5, 1))
    for plan, invited, told in (
        (None, [*mine, *puppets], f"3 of 9 sites are not approved.*{key_to_text(puppets[0])}"),
        (None, [*mine, b""], r"1 of 7 .*malformed"),
        (None, [*mine, BOSS.public], "1 of 7 sites"),  # a coordinator is no peer
        (None, mine[1:], "not among those invited"),
        (None, [*mine, PEERS["b"].public], "twice"),
        (None, [site.key.public] * 5, "twice"),
        (five, mine[:4], "needs 5 sites but 4 are invited"),
    ):
        refused(PlanRefused, told, judge, site, plan, members=invited)
    judge(site, five, members=mine[:5])


@pytest.mark.parametrize(
    ("limits", "privacy", "options", "taken", "told"),
    [
        (
            {"min_cohort": 5},
            HALF,
            {"cohort": Cohort(4, 1)},
            {"cohort": Cohort(5, 1)},
            r"at least 5 \(min_cohort\)",
        ),
        *(
            (
                {"min_colluding": 2},
                privacy,
                {"cohort": Cohort(4, 1)},
                {"cohort": Cohort(4, 2)},
                r"while 1 sites .* at least 2 \(min_colluding\)",
            )
            for privacy in (EXACT, HALF)
        ),
        (
            {"max_delta": 0.0},
            HALF,
            {"privacy": DistributedDP(0.5, delta=1e-12, noise="skellam")},
            {},
            "max_delta",
        ),
    ],
    ids=range(4),
)
def test_limits_of_the_site_file_hold(tmp_path, limits, privacy, options, taken, told):
    site = make_site(tmp_path, **limits)
    judge(site, plan_for(**{"privacy": privacy} | taken))
    refused(PlanRefused, told, judge, site, plan_for(**{"privacy": privacy} | options))


def test_only_allowed_models(tmp_path):
    site = make_site(tmp_path / "noisy", models=("distributed-dp",))
    judge(site, plan_for(DistributedDP(0.5)))
    with pytest.raises(PlanRefused, match=r"secure-aggregation is not among.*: distributed-dp"):
        judge(site, plan_for(SecureAggregation()))
    site = make_site(tmp_path / "closed", models=())
    refused(PlanRefused, "none", judge, site)


def test_silence_must_not_tell_of_counts(site, tmp_path):
    # A coordinator that lowers the largest count from plan to plan would learn a site's.
    judge(site, plan_for(SecureAggregation(), largest=1_000_000))
    with pytest.raises(PlanRefused, match=r"999,999 rows.*1,000,000 \(rows_per_bin\)"):
        judge(site, plan_for(SecureAggregation(), largest=999_999))
    judge(site, plan_for(DistributedDP(0.5), largest=10))  # clipped, so nobody falls silent
    judge(make_site(tmp_path / "small", rows_per_bin=50), plan_for(SecureAggregation(), largest=50))


@pytest.mark.parametrize("privacy", [SecureAggregation(), DistributedDP(0.5)], ids=str)
def test_score_sums_need_leave(site, tmp_path, privacy):
    plan = plan_for(privacy, score_sums=True)
    refused(PlanRefused, r"this site does not allow \(score_sums\)", judge, site, plan)
    allowing = make_site(tmp_path / "allowing", score_sums=True)
    judge(allowing, plan)
    judge(allowing, plan_for(privacy))


def test_score_sums_loosen_no_other_rule_and_silence_nobody(tmp_path):
    """Its counts fit the plan, and so do its sums: each row adds at most all steps."""
    site = make_site(tmp_path, score_sums=True, rows_per_bin=50)
    plan = plan_for(SecureAggregation(), score_sums=True, largest=50)
    judge(site, plan)
    rows = count_rows(plan, ([1] * 50, [1.0] * 50))
    sent = contribution(plan, rows, Keystream())
    assert sent.max() == 50 * 256 == plan.most_per_count
    site = make_site(tmp_path / "other", score_sums=True)
    exact = SecureAggregation()
    for plan, match in (
        (plan_for(exact, score_sums=True, largest=999_999), "rows_per_bin"),
        (plan_for(exact, score_sums=True, axis=Axis.uniform(4097, outside="clip")), "max_bins"),
        (plan_for(exact, score_sums=True, axis=Axis.uniform(64)), "outside='clip'"),
        (plan_for(exact, score_sums=True, cohort=Cohort(4, 3)), "collude"),
        (plan_for(DistributedDP(1.1), score_sums=True), "max_epsilon"),
    ):
        refused(PlanRefused, match, judge, site, plan)


def test_sums_must_keep_the_promise_too(tmp_path):
    site = make_site(tmp_path, score_sums=True)
    plan = plan_for(DistributedDP(0.5), score_sums=True)
    for noise in (0.11, 1e-300):  # more than is left; too wide to draw
        sums = msgspec.structs.replace(plan.final.sums, noise=noise)
        sent = msgspec.structs.replace(plan.final, sums=sums)
        refused(PlanRefused, "noise", judge, site, msgspec.structs.replace(plan, rounds=(sent,)))


def test_the_cost_of_a_plan_holds_what_rounding_costs(site):
    plain, more = (plan_for(DistributedDP(0.5), score_sums=sums) for sums in (False, True))
    assert site.cost(more).epsilon == site.cost(plain).epsilon == 0.5
    assert more.statement("simulated").delta > plain.statement("simulated").delta
    cost = site.cost(plan_for(DistributedDP(0.5)))
    assert cost.epsilon == 0.5
    assert 0 < cost.delta < 1e-9
    plan = plan_for(DistributedDP(0.5, delta=1e-6, noise="skellam"))
    assert site.cost(plan) == Cost(0.5, plan.statement("enforced").delta)
    assert site.cost(plan).delta >= 1e-6
    assert site.cost(plan_for(SecureAggregation())) == Cost(math.inf, 0.0)


def with_noise(privacy, *noise):
    return EvaluationPlan(
        BinaryTask(), CLIPPED, (64,), privacy, Cohort(4, 1), (HistogramRound((64,), noise),)
    )


@pytest.mark.parametrize(
    "plan",
    {
        "polya with too little noise": with_noise(DistributedDP(0.5), 0.51),
        "skellam with too little noise": with_noise(
            DistributedDP(0.5, delta=1e-6, noise="skellam"), 1.0
        ),
        "too wide to draw": with_noise(DistributedDP(0.5), 1e-300),
        "too wide to account": with_noise(
            DistributedDP(0.5, delta=1e-6, noise="discrete-gaussian"), 1e300
        ),
    }.items(),
    ids=lambda item: item[0],
)  # fmt: skip
def test_a_plan_must_keep_its_promise(site, plan):
    refused(PlanRefused, r"noise|wide", judge, site, plan[1])


@pytest.mark.parametrize(
    ("labels", "positive"),
    [(("1",), None), (("1",), 1), (("1",), "1"), (("yes", "maybe"), "maybe"), (("2",), 2)],
)
def test_a_label_that_a_plan_may_call_positive(tmp_path, labels, positive):
    site = make_site(tmp_path, labels=labels)
    for privacy in (DistributedDP(0.5), SecureAggregation()):
        judge(site, plan_for(privacy, task=BinaryTask(positive=positive)))


@pytest.mark.parametrize(
    ("labels", "positive"), [(("1",), 7), (("1",), "yes"), (("yes",), None), ((), 1)]
)
def test_another_label_is_refused(tmp_path, labels, positive):
    """Which labels a site has would show in whether it falls silent."""
    site = make_site(tmp_path, labels=labels)
    for privacy in (DistributedDP(0.5), SecureAggregation()):
        with pytest.raises(PlanRefused, match=r"the positive label.*\(labels\)"):
            judge(site, plan_for(privacy, task=BinaryTask(positive=positive)))


def test_an_exact_sum_of_a_model_that_is_sent_needs_leave(site, tmp_path):
    closed = make_site(tmp_path / "closed", exact_of_models=False)
    exact = plan_for(SecureAggregation())
    judge(closed, exact)
    judge(closed, of_model=True)
    judge(site, exact, of_model=True)
    refused(PlanRefused, "exact_of_models", judge, closed, exact, of_model=True)


def test_a_result_shows_no_small_cells(tmp_path):
    site = make_site(tmp_path, min_cell=10)
    exact = plan_for(SecureAggregation())
    enough, few = (msgspec.structs.replace(exact, min_cell=cell) for cell in (10, 9))
    judge(site, enough)
    judge(site)  # with noise there is nothing to merge
    refused(PlanRefused, r"fewer than 10 .*\(min_cell\)", judge, site, few)


def test_the_rules_of_exact_sums_are_the_sites(tmp_path):
    strict = make_site(tmp_path / "strict", **msgspec.structs.asdict(Policy()))
    plan = plan_for(SecureAggregation())
    assert strict.rules(plan) == ExactRules(3, False, 3, 100)
    more = plan_for(SecureAggregation(), cohort=Cohort(5, 3))
    assert strict.rules(more).min_cohort == 5  # two honest sites at least
    # Also where the site came to want more after it joined.
    wary = make_site(tmp_path / "wary", min_colluding=2)
    assert wary.rules(plan).min_cohort == 4
    # Else one could be opened for a few colluders, and combined with another, for none.
    site = make_site(tmp_path)
    roster = SumRoster(frozenset(members(site)), len(members(site)))
    one, two = (plan_for(SecureAggregation(), cohort=Cohort(6, colluding)) for colluding in (1, 2))
    site.reserve(bytes(32), two, roster=roster)
    refused(PlanRefused, "of another plan", site.reserve, bytes([1] * 32), one, roster=roster)
    site.reserve(bytes([1] * 32), two, roster=roster)


def test_a_new_site_wants_noise_on_a_sum():
    assert Policy().models == ("distributed-dp",)
    assert not Policy().allows_exact
    assert Policy(models=("secure-aggregation",)).allows_exact


@pytest.mark.parametrize(
    "limits",
    [{"exact_sums": -1}, {"min_cell": -1}, {"min_new_rows": -1}, {"min_bin_width": -0.1},
     {"min_bin_width": math.inf}, {"min_bin_width": math.nan}],
    ids=str,
)  # fmt: skip
def test_limits_of_exact_sums_are_numbers_that_limit(limits):
    refused(SiteError, next(iter(limits)), Policy, **limits)


def test_the_account_of_a_plan(site):
    for privacy, unit, neighbours in (
        (DistributedDP(0.5), "example", "add-remove"),
        (DistributedDP(0.5, neighbours="replace-one"), "example", "replace-one"),
        (DistributedDP(0.5, unit="subject", max_per_unit=3), "subject", "add-remove"),
        (DistributedDP(0.5, unit="client", max_per_unit=3), "client", "zero-out"),
        (SecureAggregation(), "-", "-"),
    ):
        assert site.account(plan_for(privacy)) == Account("stroke", unit, neighbours)


def test_a_plan_is_reserved_under_the_policy(tmp_path):
    site = make_site(tmp_path, budget_epsilon=1.0)
    site.reserve(bytes(32), plan_for(DistributedDP(0.5)))
    site.reserve(bytes([1] * 32), plan_for(DistributedDP(0.5)))
    with pytest.raises(BudgetExceeded, match="limit epsilon 1,"):
        site.reserve(bytes([2] * 32), plan_for(DistributedDP(0.5)))
    roster = SumRoster(frozenset(members(site)), 4)
    with pytest.raises(BudgetExceeded, match="mix_exact"):
        site.reserve(bytes([2] * 32), plan_for(SecureAggregation()), roster=roster)
    mixing = make_site(tmp_path / "mixing", mix_exact=True)
    mixing.reserve(bytes(32), plan_for(DistributedDP(0.5)))
    mixing.reserve(bytes([1] * 32), plan_for(SecureAggregation()), roster=roster)


def test_the_ledger_is_where_the_file_says_and_its_head_beside_the_key(tmp_path):
    site = make_site(tmp_path / "site")
    (tmp_path / "keys").mkdir()
    (tmp_path / "data").mkdir()
    (site.folder / "site.key").rename(tmp_path / "keys" / "a.key")
    (site.folder / "site.key.head").rename(tmp_path / "keys" / "a.key.head")
    (site.folder / "ledger.sqlite").rename(tmp_path / "data" / "budget.sqlite")
    edit(site, '"site.key"', '"../keys/a.key"')
    edit(site, '"ledger.sqlite"', f'"{tmp_path}/data/budget.sqlite"')
    site = Site.from_toml(site.path)
    assert site.ledger is site.ledger
    site.reserve(bytes(32), plan_for())
    assert (tmp_path / "keys" / "a.key.head").read_text().startswith("fedgauge-head/1 1 ")
    assert (tmp_path / "data" / "budget.sqlite").stat().st_size


@pytest.fixture
def site_file(tmp_path):
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
    limits = {"min_cohort": 7, "max_epsilon": 0.1, "max_delta": 1e-12, "max_bins": 50}
    limits |= {"budget_epsilon": 1e-3, "budget_delta": 0.0, "score_sums": True, "mix_exact": True}
    policy = Policy(models=("secure-aggregation",), **limits)
    assert create_site(tmp_path, name="a", dataset="d", policy=policy).policy == policy


@pytest.mark.parametrize("existing", [name for name in FILES if not name.endswith(".lock")])
def test_a_site_is_never_overwritten(tmp_path, existing):
    (tmp_path / existing).write_text("precious")
    refused(SiteError, "exists", create_site, tmp_path, name="hospital-a", dataset="d")
    assert os.listdir(tmp_path) == [existing]
    assert (tmp_path / existing).read_text() == "precious"


NAMES = ["", ".", "..", ".hidden", "-a", "_a", "a/b", "a\\b", "a b", "a\n", "é"]
NAMES += ["a" * 65, 'a"', "a\0"]


@pytest.mark.parametrize("name", NAMES)
def test_names_are_safe_in_file_names(tmp_path, name):
    for names in ({"name": name, "dataset": "d"}, {"name": "a", "dataset": name}):
        refused(SiteError, "64 letters", create_site, tmp_path / "site", **names)
    assert not (tmp_path / "site").exists()


def test_names_that_are_fine_and_a_site_in_place_of_a_file(tmp_path):
    for number, good in enumerate(["a", "A.b-c_d", "9", "a" * 64]):
        assert create_site(tmp_path / str(number), name=good, dataset=good).name == good
    with pytest.raises(SiteError, match="cannot make a site"):  # in place of a file
        create_site(tmp_path / "0" / "site.toml", name="a", dataset="d")


def test_trust_is_added_below_what_is_there(site_file):
    before = site_file.path.read_text()
    after = add_trust(site_file.path, "peer", "hospital-z", text_of(STRANGER))
    assert after.peers[STRANGER.public] == "hospital-z"
    assert STRANGER.public not in after.coordinators
    assert site_file.path.read_text().startswith(before)
    assert Site.from_toml(site_file.path).peers == after.peers
    assert sorted(os.listdir(site_file.folder)) == FILES
    again = add_trust(site_file.path, "coordinator", "hospital-z", text_of(STRANGER))
    assert again.coordinators == {BOSS.public: "consortium", STRANGER.public: "hospital-z"}


def test_trust_is_added_through_a_link_to_a_file_without_a_last_newline(site_file, tmp_path):
    real = tmp_path / "real.toml"
    site_file.path.rename(real)
    site_file.path.symlink_to(real)
    real.write_text(real.read_text().rstrip("\n") + " # the end")
    real.chmod(0o640)
    add_trust(site_file.path, "peer", "hospital-z", text_of(STRANGER))
    assert site_file.path.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert "hospital-z" in real.read_text()


def test_trust_that_makes_no_sense_leaves_the_file_alone(site_file):
    for kind, name, key, match in (
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
    ):
        before = site_file.path.read_bytes()
        refused(SiteError, match, add_trust, site_file.path, kind, name, key)
        assert site_file.path.read_bytes() == before


def test_the_sites_own_key_goes_under_its_own_name(site_file):
    with pytest.raises(SiteError, match="same key"):
        add_trust(site_file.path, "peer", "somebody", text_of(site_file.key))
    after = add_trust(
        site_file.path, "peer", "hospital-a", text_of(site_file.key)
    )  # said twice is fine
    assert after.peers == site_file.peers
    with pytest.raises(SiteError, match="same key"):
        add_trust(site_file.path, "peer", "hospital-a", text_of(site_file.key))


def test_whom_a_site_trusts_is_not_changed_in_memory_and_no_secret_is_shown(site_file):
    with pytest.raises(TypeError):
        site_file.peers[STRANGER.public] = "z"
    with pytest.raises(TypeError):
        site_file.coordinators[STRANGER.public] = "z"
    with pytest.raises(AttributeError):
        site_file.policy = Policy()
    secret = (site_file.folder / "site.key").read_text().strip().removeprefix("ed25519-secret:")
    assert len(secret) == 48
    assert secret not in repr(site_file)
    assert "hospital-a" in repr(site_file)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('name = "hospital-a"', "", "name"),
        ('dataset = "stroke"', "", "dataset"),
        ("format = 1\n", "", "format"),
        ("format = 1\n", "format = 0\n", "format 0, and this fedgauge reads 1"),
        ("format = 1\n", "format = 2\n", "format 2, and this fedgauge reads 1"),
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
def test_a_site_file_is_read_strictly(site_file, old, new, match):
    edit(site_file, old, new)
    with pytest.raises(SiteError, match=match) as caught:
        Site.from_toml(site_file.path)
    assert str(caught.value).startswith(f"site file {site_file.path}")


def test_a_policy_of_numbers_without_a_point_or_of_a_line_less(site_file):
    edit(site_file, "max_epsilon = 1.0", "max_epsilon = 2")
    lines = site_file.path.read_text().splitlines(keepends=True)
    site_file.path.write_text("".join(x for x in lines if not x.startswith("score_sums")))
    policy = Site.from_toml(site_file.path).policy
    assert policy.max_epsilon == 2.0
    assert isinstance(policy.max_epsilon, float)
    assert policy.score_sums is False


def test_site_and_key_files_that_cannot_be_read(site_file, tmp_path):
    (site_file.folder / "site.key").unlink()
    refused(SiteError, "no key file", Site.from_toml, site_file.path)
    refused(SiteError, r"there is no .*fedgauge site init", Site.from_toml, tmp_path / "none.toml")
    refused(SiteError, r"is a folder\. Name the site file in it", Site.from_toml, tmp_path)
    site_file.path.write_bytes(b"\xff\xfe")
    refused(SiteError, "UTF-8", Site.from_toml, site_file.path)
