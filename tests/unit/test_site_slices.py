"""Labels in a site's ledger: all plans are charged to them, and flips of them once."""

import math

import commands
import ledgers
import mpmath
import pytest
from ledgers import EXAMPLES, LIMIT, SUBMITTED, session, spend
from plans import exact_plan, noisy_plan, report_plan
from refusals import refused
from sites import BOSS, PEERS, make_site

import fedgauge as fg
from fedgauge import Axis, BinaryTask, Cohort, EvaluationPlan, MulticlassTask, MultilabelTask
from fedgauge.errors import BudgetExceeded, LedgerError, PlanRefused, SiteError
from fedgauge.keys import SigningKey
from fedgauge.plan.task import LabelTask
from fedgauge.privacy import DistributedDP, LocalDP, SecureAggregation
from fedgauge.site import Account, Cost, Policy, create_site
from fedgauge.site.ledger_entries import Asked, Departure
from fedgauge.site.log import what_left
from fedgauge.vertical.flips import Flips

LABELS = Account.labels("stroke")
WHOLE = Account.whole("stroke")
NOTHING, NO_DELTA = Cost(0.0, 0.0), 1e-12  # a protocol that ran has a delta of its own
ONE, OTHER = "1" * 64, "2" * 64
AXIS = fg.Axis.from_values(range(8), outside="clip")
EXACT_SLICES, NOISY = SecureAggregation(), DistributedDP(0.5)
CLASSES = MulticlassTask(labels=["cat", "dog", "owl"])
MODELS = BinaryTask(models=("new", "old"))
PAIR = BinaryTask(models=("new", "old"), pairs=[("new", "old")])
WOMEN = BinaryTask(groups={"sex": ["women", "men"]})


@pytest.fixture
def site(tmp_path):
    return create_site(tmp_path / "shop", name="shop", dataset="stroke")


def flips_plan(epsilon=1.0):
    return fg.EvaluationPlan.for_flips(AXIS, fg.LocalDP(epsilon, unit="label"))


def label_plan(epsilon=1.0):
    privacy = fg.DistributedDP(epsilon, unit="label", neighbours="flip")
    return fg.EvaluationPlan.under(privacy, AXIS, cohort=fg.Cohort(3, 1), task=LabelTask())


def reserve_flips(ledger, number, flips=ONE, epsilon=1.0, **options):
    ledgers.reserve(ledger, number, epsilon, LABELS, flips=flips, **options)


def spent(ledger, account=WHOLE):
    balances = (*ledger.totals(default_limit=LIMIT), *ledger.balances())
    return next(b.spent.epsilon + b.reserved.epsilon for b in balances if b.account == account)


@pytest.mark.parametrize(
    ("privacy", "steps"),
    [
        (fg.DistributedDP(0.5), 2),
        (fg.DistributedDP(0.5, unit="subject", max_per_unit=3), 2),
        (fg.DistributedDP(0.5, unit="client", max_per_unit=9), 2),
        (fg.DistributedDP(0.5, neighbours="replace-one"), 1),
        (fg.DistributedDP(0.5, unit="subject", neighbours="replace-one"), 1),
        (fg.DistributedDP(0.5, unit="client", neighbours="replace-one"), 1),
    ],
    ids=lambda p: f"{p.unit}-{p.neighbours}" if isinstance(p, fg.DistributedDP) else "",
)
def test_plans_for_rows_spend_labels(site, privacy, steps):
    site.ledger.set_limit(LABELS, Cost(steps * 0.5, 1e-5))
    plan = noisy_plan(privacy=privacy)
    site.reserve(session(1), plan)
    (shown,) = (b for b in site.ledger.balances() if b.account == LABELS)
    assert shown.reserved.epsilon == steps * 0.5
    stated = plan.statement("enforced").delta
    grown = stated * (1 + (steps - 1) * math.exp(0.5))
    assert shown.reserved.delta == pytest.approx(grown, rel=1e-12)
    for more in (plan, label_plan(0.01), noisy_plan(0.01)):
        with pytest.raises(BudgetExceeded, match=r"stroke \(label, flip\) does not allow this"):
            site.reserve(session(2), more)


@pytest.mark.parametrize(
    "plan",
    [label_plan(), flips_plan(), report_plan(fg.LocalDP(1.0), (8,))],
    ids=["noisy", "flipped", "reports"],
)
def test_plans_for_labels_and_local_reports_are_one_step(site, plan):
    site.ledger.set_limit(LABELS, Cost(1.0, NO_DELTA))
    site.reserve(session(1), plan)
    assert spent(site.ledger, LABELS) == spent(site.ledger) == 1.0
    refused(BudgetExceeded, "label, flip", site.reserve, session(2), plan)


def test_a_limit_of_labels_is_met_to_the_last_digit(ledger):
    """Twice a tenth is two tenths, and a delta is never rounded down."""
    ledger.set_limit(LABELS, Cost(0.6, 0.0))
    for number in range(3):
        spend(ledger, number, 0.1)
    with pytest.raises(BudgetExceeded, match=r"asked epsilon 2e-09, .*a label that is the other"):
        ledgers.reserve(ledger, 9, 1e-9)
    with pytest.raises(BudgetExceeded, match=r"asked epsilon 1e-09, delta 0\. Raise"):
        ledgers.reserve(ledger, 9, 1e-9, LABELS)


def test_the_same_flips_of_another_dataset_cost_there(ledger):
    reserve_flips(ledger, 1)
    ledgers.reserve(ledger, 2, 1.0, Account.labels("heart"), flips=ONE)
    assert [total.reserved.epsilon for total in ledger.totals(default_limit=LIMIT)] == [1.0, 1.0]


@pytest.mark.parametrize("epsilon", [1e-9, 0.1, 1 / 3, 1.6, 5.0, 30.0, 1000.0])
@pytest.mark.parametrize("delta", [0.0, 1e-9, 1 / 3, 1.0])
def test_two_steps_are_never_too_cheap(epsilon, delta):
    twice = Cost(epsilon, delta).twice()
    assert twice.exact_epsilon >= 2 * Cost(epsilon, delta).exact_epsilon
    with mpmath.workprec(4000):
        grown = min((1 + mpmath.exp(mpmath.mpf(epsilon))) * mpmath.mpf(str(delta)), 1)
        assert mpmath.mpf(repr(twice.delta)) >= grown
        assert mpmath.mpf(repr(twice.delta)) <= grown * (1 + mpmath.mpf(10) ** -14)


@pytest.mark.parametrize(
    ("account", "cost", "flips"),
    [(EXAMPLES, 1.0, ONE), (LABELS, 1.0, "labels.flips"), (LABELS, 1.0, ONE.upper() + "A")],
)
def test_a_digest_makes_nothing_else_free(ledger, account, cost, flips):
    refused(LedgerError, "by their digest", ledgers.reserve, ledger, 1, cost, account, flips=flips)


def test_a_session_of_flips_is_taken_up_where_it_was(ledger):
    """Whatever ended the process: told again, the same flips tell nothing new."""
    for _ in range(2):
        reserve_flips(ledger, 1)
    for _ in range(2):
        ledger.commit(session(1))
        reserve_flips(ledger, 1)
    for _ in range(2):
        ledger.record_sent(session(1), SUBMITTED)
        reserve_flips(ledger, 1)
    assert [entry.kind for entry in ledger.entries()] == ["reserve", "commit", "sent"]
    with pytest.raises(LedgerError, match="sent something else"):
        ledger.record_sent(session(1), Departure.of("submit", b"of other bins"))
    for flips in (OTHER, None):
        refused(LedgerError, "in the ledger already, as committed", reserve_flips, ledger, 1, flips)


def test_flips_have_one_epsilon_and_a_session_that_was_released_is_over(ledger):
    reserve_flips(ledger, 1, epsilon=0.1)
    with pytest.raises(LedgerError, match=r"11111111 were charged as epsilon 0\.1"):
        reserve_flips(ledger, 2, epsilon=1.0)
    ledger.release(session(1))
    refused(LedgerError, "as released", reserve_flips, ledger, 1, epsilon=0.1)


def test_a_site_charges_flips_by_the_digest_of_their_file(site, tmp_path):
    plan = flips_plan(0.5)

    def answer(number, name):
        flips = Flips.kept(tmp_path / name, ["a", "b"], [True, False], epsilon=0.5)
        site.reserve(session(number), plan, flips=flips.digest)
        site.ledger.commit(session(number))

    answer(1, "labels.flips")
    answer(2, "labels.flips")
    assert spent(site.ledger) == 0.5
    answer(3, "again.flips")
    assert spent(site.ledger) == 1.0


@pytest.mark.parametrize("plan", [label_plan(), noisy_plan(), exact_plan()])
def test_only_flips_are_charged_once(site, plan):
    refused(PlanRefused, "not for labels flipped once", site.reserve, session(1), plan, flips=ONE)
    assert site.ledger.entries() == []


def test_checking_writes_nothing(site):
    site.reserve(session(1), flips_plan(), flips=ONE, check_only=True)
    assert site.ledger.entries() == []
    site.ledger.set_limit(LABELS, NOTHING)
    with pytest.raises(BudgetExceeded):
        site.reserve(session(1), flips_plan(), flips=ONE, check_only=True)


def test_the_log_says_who_asked_and_what_left_and_charges_once(site):
    keys = [SigningKey.generate().public for _ in range(2)]
    for number, key in enumerate(keys, start=1):
        site.reserve(session(number), flips_plan(), flips=ONE, asked=Asked(key))
    for number in (2, 1):  # whichever leaves first
        site.ledger.commit(session(number))
        site.ledger.record_sent(session(number), Departure.of("submit", bytes(number)))
    rows = what_left(site)
    assert [(row.evaluation, row.size) for row in rows] == [(session(k).hex(), k) for k in (2, 1)]
    assert [row.cost for row in rows] == [Cost(1.0, 0.0), None]
    assert {row.plan for row in rows} == {flips_plan().digest}
    assert len({row.coordinator_key for row in rows}) == 2


def show(site, *more):
    return commands.run("ledger", "show", *more, "--site", site.path, columns=200).stdout


def test_labels_are_shown_with_their_costs_and_what_ending_one_use_of_flips_gives_back(site):
    site.reserve(session(1), noisy_plan())
    assert "label" not in show(site)
    site.reserve(session(2), label_plan(0.5))
    site.reserve(session(3), flips_plan(), flips=ONE)
    told = show(site, "--entries")
    rows = [line.split()[1:5] for line in told.splitlines() if line.startswith("stroke")]
    assert rows == [
        ["all", "all", "0", "2.5"],
        ["example", "add-remove", "0", "1"],
        ["label", "flip", "0", "3.5"],
    ]
    assert "label, flip: what all plans on the dataset cost one label that flips" in told
    assert "once for flips 11111111" in told
    site.reserve(session(2**250), flips_plan(), flips=ONE)
    digits = session(2**250).hex()[:8]
    told = commands.run("ledger", "release", digits, "--site", site.path, columns=200).stdout
    assert "unless another evaluation uses the same flips" in told


def test_a_limit_of_labels_is_set_and_shown(site):
    limit = ["ledger", "set-limit", "--epsilon", 2, "--unit", "label", "--site", site.path]
    refused = commands.run(*limit, "--neighbours", "add-remove")
    assert refused.exit_code == 2
    assert "Leave --neighbours out" in refused.stderr
    assert "stroke (label, flip): at most epsilon 2" in commands.run(*limit).stdout
    site.reserve(session(1), noisy_plan(0.75))
    (row,) = (
        line.split() for line in show(site).splitlines() if " flip " in line and "-" not in line
    )
    assert row == ["stroke", "label", "flip", "0", "1.5", "2", "0.5"]


def plan_for(privacy, task, *, bins=64, **options):
    axis = Axis.uniform(bins, outside="clip")
    return EvaluationPlan.for_histogram(axis, Cohort(4, 1), privacy=privacy, task=task, **options)


def judge(site, plan):
    members = [site.key.public, *(key.public for key in PEERS.values())]
    site.judge(plan, members=members, coordinator=BOSS.public)


@pytest.mark.parametrize("privacy", [EXACT_SLICES, NOISY], ids=str)
def test_classes_and_labels_are_those_that_a_site_lists(tmp_path, privacy):
    """Which classes a site has would show in whether it falls silent."""
    site = make_site(tmp_path, labels=("cat", "dog", "owl", "2"))
    judge(site, plan_for(privacy, CLASSES))
    judge(site, plan_for(privacy, MulticlassTask(labels=["owl", 2])))
    with pytest.raises(PlanRefused, match=r"tells the class 'ant' apart, .* owl, 2 \(labels\)"):
        judge(site, plan_for(privacy, MulticlassTask(labels=["cat", "ant"])))
    # Their names are those of columns, which the site's operator chooses.
    plan = plan_for(privacy, MultilabelTask(labels=["fever", "cough"]))
    judge(make_site(tmp_path / "one"), plan)
    with pytest.raises(PlanRefused, match=r"calls 1 the positive label.*\(labels\)"):
        judge(make_site(tmp_path / "other", labels=("fever", "cough")), plan)


def test_groups_need_leave_and_are_few(tmp_path):
    closed = make_site(tmp_path / "closed", max_groups=0)
    some = make_site(tmp_path / "some", max_groups=5)
    two = {"sex": ["women", "men"]}
    both = two | {"age": ["old"]}
    for privacy in (NOISY, EXACT_SLICES):
        plan = plan_for(privacy, BinaryTask(groups=two))
        judge(some, plan)
        with pytest.raises(
            PlanRefused, match=r"3 groups apart, .* allows none \(max_groups; 'other' is one, too\)"
        ):
            judge(closed, plan)
        judge(some, plan_for(privacy, BinaryTask(groups=both)))  # three and two
        with pytest.raises(PlanRefused, match=r"6 groups apart, .* allows 5 \(max_groups;"):
            judge(some, plan_for(privacy, BinaryTask(groups=both, crossed=True)))
    assert Policy().max_groups == 0
    refused(SiteError, "max_groups must be 0 or more", Policy, max_groups=-1)


def test_an_exact_sum_is_of_groups_that_the_site_lists(tmp_path):
    """Among four groups one may be a single patient's, by an id or a rare value."""
    site = make_site(tmp_path, exact_groups=("women", "men", "old"))
    judge(site, plan_for(EXACT_SLICES, WOMEN))
    patient = BinaryTask(groups={"sex": ["women"], "id": ["4711"]})
    judge(site, plan_for(NOISY, patient))
    with pytest.raises(PlanRefused, match=r"the group '4711' .* women, men, old \(exact_groups\)"):
        judge(site, plan_for(EXACT_SLICES, patient))
    with pytest.raises(PlanRefused, match=r"allowed here: none \(exact_groups\)"):
        judge(make_site(tmp_path / "none", exact_groups=()), plan_for(EXACT_SLICES, WOMEN))
    assert Policy().exact_groups == ()


@pytest.mark.parametrize(
    ("task", "scores"),
    [
        (MODELS, 2),
        (CLASSES, 3),
        (MultilabelTask(labels=["fever", "cough"]), 2),
        (MulticlassTask(labels=["cat", "dog"], models=("new", "old", "third")), 6),
    ],
    ids=["models", "classes", "labels", "classes of models"],
)
def test_an_exact_sum_counts_as_many_scores_of_a_row_as_the_site_allows(tmp_path, task, scores):
    labels = ("1", "cat", "dog", "owl")
    enough, few = (
        make_site(tmp_path / str(most), exact_scores=most, labels=labels)
        for most in (scores, scores - 1)
    )
    judge(enough, plan_for(EXACT_SLICES, task))
    judge(few, plan_for(NOISY, task))
    with pytest.raises(PlanRefused, match=rf"{scores} scores .* allows .*\(exact_scores\)"):
        judge(few, plan_for(EXACT_SLICES, task))
    assert Policy().exact_scores == 1
    refused(SiteError, "exact_scores must be at least 1", Policy, exact_scores=0)


def test_two_scores_together_need_leave_and_a_smallest_cell(tmp_path):
    closed, opened = (make_site(tmp_path / str(may), exact_pairs=may) for may in (False, True))
    hidden, bare = plan_for(EXACT_SLICES, PAIR, min_cell=10), plan_for(EXACT_SLICES, PAIR)
    judge(opened, hidden)
    judge(closed, plan_for(NOISY, PAIR))
    refused(PlanRefused, r"two scores .* does not allow it \(exact_pairs\)", judge, closed, hidden)
    refused(PlanRefused, "Plan with a min_cell, or with noise", judge, opened, bare)
    with pytest.raises(PlanRefused, match=r"fewer than 11 .*\(min_cell\)"):
        judge(make_site(tmp_path / "eleven", min_cell=11), hidden)
    assert not Policy().exact_pairs


@pytest.mark.parametrize("also", ["confusion", "ranks", "top"])
def test_tables_whose_small_cells_show_are_for_noise(tmp_path, also):
    """Their small cells cannot be merged, so no plan of theirs has a smallest one."""
    task = MulticlassTask(labels=["cat", "dog"], also=[also])
    site = make_site(tmp_path / "site", min_cell=2, labels=("cat", "dog"))
    judge(site, plan_for(DistributedDP(1.0), task))
    with pytest.raises(PlanRefused, match=r"cannot be merged .* none below 2 \(min_cell\)"):
        judge(site, plan_for(EXACT_SLICES, task))
    judge(make_site(tmp_path / "bare", labels=("cat", "dog")), plan_for(EXACT_SLICES, task))


@pytest.mark.parametrize("privacy", [EXACT_SLICES, NOISY], ids=str)
def test_a_plan_asks_for_as_many_counts_as_the_site_allows(tmp_path, privacy):
    task = MulticlassTask(labels=["cat", "dog", "owl"], also=["confusion"])
    plan = plan_for(privacy, task)
    assert plan.numbers == 3 * 3 * 64 + 9
    labels = ("cat", "dog", "owl")
    judge(make_site(tmp_path / "enough", max_counts=585, labels=labels), plan)
    with pytest.raises(PlanRefused, match=r"585 counts, this site allows 584 \(max_counts\)"):
        judge(make_site(tmp_path / "few", max_counts=584, labels=labels), plan)


def test_reports_are_judged_as_sums_are(tmp_path):
    site = make_site(tmp_path, labels=("cat", "dog", "owl"), max_groups=3, max_epsilon=2.0)
    axis, privacy = Axis.uniform(16, outside="clip"), LocalDP(1.0)

    def judge_task(task):
        site.judge_reports(EvaluationPlan.for_reports(axis, privacy, task=task))

    judge_task(MulticlassTask(labels=CLASSES.labels, groups={"sex": ["women", "men"]}))
    with pytest.raises(PlanRefused, match=r"tells the class 'ant' apart"):
        judge_task(MulticlassTask(labels=["cat", "ant"]))
    plan = report_plan(privacy, (64,))
    make_site(tmp_path / "enough").judge_reports(plan)
    with pytest.raises(PlanRefused, match=r"\(max_counts\)"):
        make_site(tmp_path / "few", max_counts=127).judge_reports(plan)
    with pytest.raises(PlanRefused, match=r"5 groups apart.*\(max_groups; "):
        judge_task(MulticlassTask(labels=CLASSES.labels, groups={"ward": ["a", "b", "c", "d"]}))
