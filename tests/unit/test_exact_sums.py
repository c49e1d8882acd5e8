"""When a site takes part in one more exact sum: each rule by itself, and through the ledger."""

import itertools
import math
from functools import partial

import ledgers
import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledgers import key, session
from refusals import refused
from sites import BOSS, PEERS, make_site

import fedgauge as fg
from fedgauge import Axis, Cohort, EvaluationPlan
from fedgauge.data.fingerprint import Fingerprint
from fedgauge.errors import LedgerError, PlanRefused
from fedgauge.plan.limits import first_session
from fedgauge.site import Account, Cost, exact_sums
from fedgauge.site.exact_sums import (
    ExactRules,
    ExactSum,
    check_data,
    check_join,
    check_sites,
    check_vote,
    fewest_shown,
)
from fedgauge.site.ledger import Books
from fedgauge.site.ledger_entries import Entry, SumRoster, encode

STRICT = ExactRules(3, exact_dropouts=False, min_cohort=3, min_new_rows=100)
OPEN = STRICT._replace(exact_sums=1000, exact_dropouts=True)
SUMS = Account("stroke", "-", "-")
EXACT = Cost(math.inf, 0.0)
DATA = Fingerprint(1000, "aa", "bb")
OF_OTHER_SCORES = Fingerprint(1000, "aa", "dd")


def sites(letters):
    return frozenset(map(key, letters))


def over(letters, needed=None, *, plan="plan", **known):
    """A sum to which sites named by letters are invited; all are needed unless said."""
    return ExactSum(SumRoster(sites(letters), needed or len(letters)), plan, **known)


def done(letters, survivors=None, **known):
    return over(letters, **known, survivors=sites(survivors or letters))


def test_the_ledger_counts_sums_under_way_and_not_those_given_back(ledger):
    reserve = partial(
        ledgers.reserve, ledger, cost=EXACT, account=SUMS, exact=over("vabc"), rules=STRICT
    )
    for number in range(3):
        reserve(number)
    refused(PlanRefused, "exact_sums", reserve, 3)
    reserve(2)  # the same one again
    ledger.release(session(0))
    reserve(3)
    ledger.commit(session(1))  # though it never became a result
    refused(PlanRefused, "exact_sums", reserve, 4)
    reserve(4, account=Account("heart", "-", "-"))
    assert ledger.status(session(4)) == "reserved"


def test_an_exact_sum_is_reserved_with_its_roster_and_no_entry_without(ledger):
    for lacking in ({"exact": None}, {"rules": None}, {"exact": ExactSum(None, "plan")}):
        with pytest.raises(LedgerError, match="its roster and the site's rules"):
            ledgers.reserve(ledger, 1, EXACT, SUMS, **lacking)
    assert ledger.entries() == []
    with ledger._chain.open() as pages:
        pages.append(encode(Entry("reserve", session(1), SUMS, EXACT)))
    refused(LedgerError, "entry 1 of the ledger does not fit the others", ledger.sessions)


def test_all_who_are_invited_or_nobody_and_one_roster():
    """However far apart: what other sites sum without this one it never sees.

    {v,a,b} + {v,c,d} - {a,b,c,d} is twice v, and v is not asked about the last. One roster keeps
    that out. A site that allows dropouts takes the second sum: said in the docs.
    """
    check_join([], over("vabc"), STRICT)
    with pytest.raises(PlanRefused, match=r"over 3 of 4 sites.*\(exact_dropouts\).*= 4"):
        check_join([], over("vabc", 3), STRICT)
    check_join([], over("vabc", 3), OPEN)
    earlier = [done("vab")]
    check_join(earlier, over("vab"), STRICT)
    for other in ("vcd", "vabcdef", "vcdefgh"):
        with pytest.raises(PlanRefused, match=r"one roster \(exact_dropouts\)"):
            check_join(earlier, over(other), STRICT)
    check_join(earlier, over("vcd"), OPEN)


def test_two_halves_and_the_whole():
    """{v,1,2,3} + {v,4,5,6} - all seven is v: refused at join, and at the vote.

    A half that was never confirmed may have been opened all the same: its votes came from others.
    """
    halves = [done("v123"), done("v456")]
    check_join(halves[:1], over("v456"), OPEN)
    unconfirmed = [[over("v123", 4), halves[1]], [halves[0], over("v456", 4)]]
    for earlier in (halves, *unconfirmed):
        with pytest.raises(PlanRefused, match="could show the sum over 1 site:"):
            check_join(earlier, over("v123456"), OPEN)
    with pytest.raises(PlanRefused, match="could show the sum over 1 site:"):
        check_vote(halves, over("v123456xyz", 7), sites("v123456"), OPEN)


@pytest.mark.parametrize("needed", [3, 4, 5, 6])
def test_unknown_survivors_are_any_subset(needed):
    """A sum over all, and one over an unknown part of all: refused unless the part is all."""
    unknown = over("vabcde", needed)
    assert {len(story) for story in unknown.stories()} == set(range(needed, 7))
    assert len(unknown.stories()) == sum(math.comb(6, size) for size in range(needed, 7))
    assert any(key("v") not in story for story in unknown.stories()) == (needed < 6)
    if needed == 6:
        check_join([unknown], over("vabcde"), OPEN)
        return
    with pytest.raises(PlanRefused, match=r"could show the sum over [12] sites?:"):
        check_join([unknown], over("vabcde"), OPEN)
    check_join([unknown._replace(survivors=sites("vabcde"))], over("vabcde"), OPEN)


@pytest.mark.parametrize("shown", ["known first", "unknown first"])
def test_every_story_is_looked_at(shown):
    """Only one of many subsets, {v,a,b,c}, would be three apart from nothing and one from this."""
    sums = [over("vabc", 3), done("vdefgh")]
    check_sites([sums[1]], sites("vdefgh"), OPEN)
    ordered = sums if shown == "known first" else sums[::-1]
    refused(PlanRefused, "could show", check_sites, ordered, sites("vabcdefgh"), OPEN)


def test_too_many_stories_and_too_few_sites_are_refused():
    few, many = over("abcdefgh", 6), over("abcdefghijkl", 3)
    assert len(few.stories()) == 37
    assert many.stories() == []
    with pytest.raises(PlanRefused, match="nobody can tell what they show together"):
        check_join([many], over("vxyz"), OPEN)
    with pytest.raises(PlanRefused, match="nobody can tell what they show together"):
        check_join([few, few], over("vxyz"), OPEN)  # 37 times 37
    with pytest.raises(PlanRefused, match="over 2 sites, and this site wants at least 3"):
        check_sites([], sites("va"), STRICT)
    check_sites([], sites("vab"), STRICT)
    with pytest.raises(PlanRefused, match="at least 5"):
        check_sites([], sites("vabc"), STRICT._replace(min_cohort=5))
    with pytest.raises(PlanRefused, match="sum over 3 sites: this site wants at least 4"):
        check_sites([done("vabcdef")], sites("vabc"), OPEN._replace(min_cohort=4))
    check_sites([done("vabcdef")], sites("vabc"), OPEN)


def test_nobody_may_be_missing_at_the_vote():
    asked = over("vabcde")
    check_vote([], asked, sites("vabcde"), STRICT)
    for survivors in ("vabcd", "vabcdf"):
        with pytest.raises(PlanRefused, match=r"sites dropped out .*\(exact_dropouts\)"):
            check_vote([], asked, sites(survivors), STRICT)
        check_vote([], asked, sites(survivors), OPEN)


def test_the_guard_is_asked_before_anything_is_counted_too(ledger):
    for number, letters in enumerate(("v123", "v456"), start=1):
        ledgers.spend(ledger, number, EXACT, SUMS, exact=over(letters), rules=OPEN)
        ledger.record_survivors(session(number), sites(letters), rules=OPEN)
    ledgers.reserve(ledger, 3, EXACT, SUMS, exact=over("v123456xyz", 7), rules=OPEN)
    with pytest.raises(PlanRefused, match="could show the sum over 1 site:"):
        ledger.check_sites(session(3), sites("v123456"), rules=OPEN)
    with pytest.raises(PlanRefused, match="sites dropped out"):
        ledger.check_sites(session(3), sites("v123456xy"), rules=STRICT)
    ledger.check_sites(session(3), sites("v123456xyz"), rules=OPEN)
    assert ledger.status(session(3)) == "reserved"
    ledgers.reserve(ledger, 4, 0.1, mix_exact=True)
    ledger.check_sites(session(4), sites("va"), rules=STRICT)  # noise


def test_a_large_sum_is_the_only_one():
    large = over("vabcdef", 4, certain=False)
    check_join([], large, STRICT)  # dropouts cannot be told there
    for earlier, asked in (([large], large), ([done("vab")], large), ([large], over("vabcdef"))):
        for rules in (STRICT, OPEN):
            with pytest.raises(PlanRefused, match="cannot be certain who is in the sum"):
                check_join(earlier, asked, rules)
    check_vote([], large, sites("vabcd"), STRICT)


@pytest.mark.parametrize("rules", [STRICT, OPEN], ids=["strict", "open"])
def test_exact_sums_on_a_dataset_are_of_one_plan(rules):
    """Wide bins a little apart, or other cells merged: results differ by small cells."""
    check_join([done("vab"), over("vab")], over("vab"), rules)
    for earlier in ([done("vab", plan="other")], [done("vab"), over("vab", plan="other")]):
        refused(PlanRefused, "were of another plan", check_join, earlier, over("vab"), rules)


def test_the_ledger_knows_the_plan(tmp_path):
    plan, other = (
        EvaluationPlan.for_histogram(Axis.uniform(4, outside="clip"), Cohort(4, 1), min_cell=least)
        for least in (10, 11)
    )
    site = make_site(tmp_path)
    roster = SumRoster(frozenset(key.public for key in PEERS.values()), 5)
    site.reserve(session(1), plan, roster=roster)
    site.reserve(session(2), plan, roster=roster)
    refused(PlanRefused, "were of another plan", site.reserve, session(3), other, roster=roster)


def judged(site, axis):
    plan = EvaluationPlan.for_histogram(axis, Cohort(3, 1))
    members = [site.key.public, *(key.public for key in PEERS.values())]
    site.judge(plan, members=members, coordinator=BOSS.public)


@pytest.mark.parametrize("edges", [(0.5, 0.624), (0.1, 0.9, 0.95), (0.5, 0.5000001)])
def test_edges_that_are_too_close_are_refused(tmp_path, edges):
    axis = Axis.from_edges([0, *edges, 1], "clip")
    with pytest.raises(PlanRefused, match=r"narrower than 0\.125 \(min_bin_width\)"):
        judged(make_site(tmp_path / "closed", min_bin_width=0.125), axis)
    with pytest.raises(PlanRefused, match=rf'axes = \["{axis.digest}"\]'):
        judged(make_site(tmp_path / "other", min_bin_width=0.2), axis)
    judged(make_site(tmp_path / "open", min_bin_width=0.0), axis)
    judged(make_site(tmp_path / "named", min_bin_width=0.2, axes=(axis.digest,)), axis)


def test_edges_that_are_far_enough_apart(tmp_path):
    for edges in ((0.125, 0.25), (0.1, 0.225, 0.4), (0.5,)):
        axis = Axis.from_edges([0, *edges, 1], "clip")
        judged(make_site(tmp_path / str(edges), min_bin_width=0.125), axis)
    # Scores beyond the outermost edges are in the end bins: nothing lies between.
    axis = Axis.from_edges([0.3, 0.31, 0.6, 0.61], outside="clip")
    judged(make_site(tmp_path / "outer", min_bin_width=0.25), axis)
    for bins in (2, 3, 7, 10, 49, 99, 128, 399):  # equal bins are as wide as they say
        axis = Axis.uniform(bins, outside="clip")
        judged(make_site(tmp_path / f"{bins}", min_bin_width=1 / bins), axis)
        if bins > 2:
            with pytest.raises(PlanRefused, match="min_bin_width"):
                judged(make_site(tmp_path / f"{bins} wider", min_bin_width=1.01 / bins), axis)


def test_changed_rows_under_the_same_name_are_refused():
    """One row added in between shows that patient's bin and label."""
    check_data(DATA, [done("vab", data=DATA)], [], STRICT)
    for other in (Fingerprint(1001, "aa", "bb"), Fingerprint(1000, "cc", "bb"), OF_OTHER_SCORES):
        for rules in (STRICT, OPEN._replace(min_new_rows=0)):
            with pytest.raises(PlanRefused, match=r"rows are not .*`fedgauge site dataset NAME`"):
                check_data(other, [done("vab", data=DATA), done("vab")], [], rules)
        check_data(other, [done("vab")], [], STRICT)


def test_another_dataset_needs_enough_new_rows_or_other_scores():
    """Scored anew no patient is new, and who compares two models sees two sums of all."""
    for more in (-99, -1, 0, 1, 99):
        other = Fingerprint(1000 + more, "cc", "dd")
        with pytest.raises(PlanRefused, match=r"nearly as many rows.*wait for 100 new rows"):
            check_data(other, [], [Fingerprint(5, "ee", "ff"), DATA], STRICT)
        check_data(other, [], [DATA], STRICT._replace(min_new_rows=abs(more)))
    for more in (-100, 100, 5000):
        check_data(Fingerprint(1000 + more, "cc", "dd"), [], [DATA], STRICT)
    check_data(OF_OTHER_SCORES, [], [DATA], STRICT)
    # A further model does not make rows new, nor do other groups.
    both = Fingerprint(1000, "aa", "xx", columns=("bb", "dd"))
    for one, other in ((both, DATA), (DATA, both), (Fingerprint(1000, "aa", "bb", "gg"), DATA)):
        refused(PlanRefused, "under another name", check_data, one, [], [other], STRICT)


def test_rows_are_compared_through_the_ledger(ledger):
    reserve = partial(ledgers.reserve, ledger, cost=EXACT, rules=STRICT)
    reserve(1, account=SUMS, exact=over("vab", data=DATA))
    grown, new = Fingerprint(1001, "cc", "dd"), Fingerprint(1100, "cc", "dd")
    for changed in (grown, new):
        with pytest.raises(PlanRefused, match="rows are not those"):
            reserve(2, account=SUMS, exact=over("vab", data=changed))
    next_week = Account("stroke-2", "-", "-")
    with pytest.raises(PlanRefused, match="nearly as many rows"):
        reserve(2, account=next_week, exact=over("vab", data=grown))
    reserve(2, account=next_week, exact=over("vab", data=new))
    reserve(3, account=SUMS, exact=over("vab", data=DATA))
    assert [entry.data for entry in ledger.entries()] == [DATA, new, DATA]


def test_rows_given_back_are_forgotten(ledger):
    reserve = partial(ledgers.reserve, ledger, cost=EXACT, rules=STRICT)
    reserve(1, account=SUMS, exact=over("vab", data=DATA))
    ledger.release(session(1))
    reserve(2, account=SUMS, exact=over("vab", data=Fingerprint(1001, "cc", "dd")))
    elsewhere = Account("heart", "-", "-")  # near those given back, not those of the other sum
    reserve(3, account=elsewhere, exact=over("vab", data=Fingerprint(950, "cc", "ee")))


def test_rows_that_a_model_scored_are_recorded_when_they_are_known(ledger):
    """Labels alone then, before the contribution leaves; compared with all other sums."""
    model = Fingerprint(1000, "aa")
    for number in (1, 2):
        ledgers.spend(ledger, number, EXACT, SUMS, exact=over("vab"), rules=STRICT)
    ledger.record_data(session(1), model, rules=STRICT)
    ledger.record_data(session(1), model, rules=STRICT)
    with pytest.raises(PlanRefused, match="the rows changed since this site joined"):
        ledger.record_data(session(1), Fingerprint(1001, "cc"), rules=STRICT)
    with pytest.raises(PlanRefused, match="rows are not those"):
        ledger.record_data(session(2), Fingerprint(1001, "cc"), rules=STRICT)
    ledger.record_data(session(2), DATA, rules=STRICT)  # scores are no part of what was known
    assert [entry.data for entry in ledger.entries() if entry.kind == "data"] == [model, DATA]


def test_rows_of_another_dataset_are_compared_when_they_are_known(ledger):
    ledgers.spend(ledger, 1, EXACT, SUMS, exact=over("vab", data=DATA), rules=STRICT)
    ledgers.spend(ledger, 2, EXACT, Account("heart", "-", "-"), exact=over("vab"), rules=STRICT)
    with pytest.raises(PlanRefused, match="nearly as many rows"):
        ledger.record_data(session(2), Fingerprint(1001, "cc"), rules=STRICT)
    ledger.record_data(session(2), Fingerprint(1200, "cc"), rules=STRICT)


def test_entries_that_do_not_fit_or_do_not_say_what_left():
    for kind in ("sent", "data", "survivors", "commit"):
        entry = Entry(kind, session(1), data=DATA, survivors=sites("vab"), number=1)
        refused(LedgerError, "entry 1 of the ledger does not fit", Books.of, [entry])
    reserved = Entry("reserve", session(1), SUMS, EXACT, roster=over("vab").roster)
    with pytest.raises(LedgerError, match="entry 2 of the ledger does not fit"):
        Books.of([reserved, Entry("sent", session(1), left=ledgers.SUBMITTED, number=2)])
    committed = Entry("commit", session(1), number=2)
    for kind in ("sent", "reply"):
        with pytest.raises(LedgerError, match="entry 3 of the ledger does not fit"):
            Books.of([reserved, committed, Entry(kind, session(1), number=3)])


def named(*sets):
    return [frozenset(bytes([site]) for site in chosen) for chosen in sets]


def fewest_by_rank(sets, sites):
    """The smallest set of columns outside of which the rows lose rank."""
    rows = np.array([[site in chosen for site in range(sites)] for chosen in sets], dtype=float)
    rank = np.linalg.matrix_rank(rows)
    for size in range(1, sites + 1):
        for shown in itertools.combinations(range(sites), size):
            others = [site for site in range(sites) if site not in shown]
            if rank > (np.linalg.matrix_rank(rows[:, others]) if others else 0):
                return size
    return 0


def test_known_cases_and_too_many_sets(monkeypatch):
    for sets, fewest in (
        ([{0, 1, 2}], 3),
        ([{0, 1, 2}, {0, 1, 2}], 3),
        ([{0, 1, 2, 3}, {0, 1, 2}], 1),
        ([{0, 1, 2, 3, 4, 5}, {0, 1, 2}], 3),
        # No two of these differ by fewer than two, but all three show each site.
        ([{0, 1}, {1, 2}, {0, 2}], 1),
        ([set(range(7)), {0, 1, 2}, {3, 4, 5}], 1),
        # Weighted: twice one site and nothing else.
        ([{0, 1, 2, 3}, {0, 1, 4, 5}, {2, 3, 4, 5}, {0, 4, 2, 6}, {1, 3, 5, 6}], 1),
    ):
        assert fewest_shown(named(*sets)) == fewest
    monkeypatch.setattr(exact_sums, "MOST_WORK", 3)
    sets = named(range(10), range(3, 10), range(5, 10), range(7, 10))
    assert fewest_shown(sets) is None


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sets(st.integers(0, 6), min_size=1), min_size=1, max_size=5))
def test_random_sets_against_ranks(sets):
    assert fewest_shown(named(*sets)) == fewest_by_rank(sets, 7)


COARSE = {
    "uniform": fg.Axis.uniform(64, outside="clip"),
    "logit": fg.Axis.logit(64, outside="clip"),
    "asinh": fg.Axis.asinh(512),
}


def test_an_edge_close_to_a_coarse_one_is_refused():
    two = fg.TwoRound(4, coarse=fg.Axis.uniform(4, outside="clip"), narrowest=0.05)
    close = fg.Axis.from_edges([0, 0.25 + 1 / 64, 0.5, 1], outside="clip")
    refused(fg.AxisError, r"closer than 0\.05 to one of the first", two.check, close)
    msgspec.structs.replace(two, narrowest=0.01).check(close)
    # Beyond the outermost edges nothing is told apart: scores are clipped there.
    two.check(fg.Axis.from_edges([0, 1 / 64, 0.5, 1 - 1 / 64, 1], outside="clip"))
    # Bins as wide as no rule asks for.
    two = fg.TwoRound(32, coarse=COARSE["asinh"], narrowest=1 / 128, widest=64)
    low, high = two.coarse.low, two.coarse.high
    with pytest.raises(fg.AxisError, match="wider than 64 coarse bins"):
        two.check(fg.Axis.from_edges([low, 0, high], outside="clip"))


def search(**changes):
    two = fg.TwoRound(8, coarse=fg.Axis.uniform(16, outside="clip"))
    plan = fg.EvaluationPlan.for_histogram(two, fg.Cohort(3, 1))
    plain = msgspec.json.decode(plan.to_bytes())
    plain["task"] |= changes
    return plan, msgspec.json.encode(plain)


def test_which_first_round_a_plan_follows_is_told_without_reading_it():
    plan, data = search()
    assert first_session(data) is None
    found = fg.plan.two_rounds.Found(plan.task.two, (1,) * 16, 3)
    assert first_session(plan.located(found).to_bytes()) == b""
    named = msgspec.structs.replace(found, session="ab" * 32)
    located = plan.located(named).to_bytes()
    assert first_session(located) == b"\xab" * 32
    with pytest.raises(fg.PlanError, match="in which session"):
        first_session(located.replace(b"ab" * 32, b"AB" * 32))
    refused(fg.PlanError, "64 hexadecimal digits", msgspec.structs.replace, found, session="ab")
