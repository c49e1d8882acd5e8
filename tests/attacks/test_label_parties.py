"""Labels apart from scores, where the scorer or a label party is hostile; rosters, too. The scorer
is an approved coordinator: it chooses the bins, the plan and when to ask. What would break the
promise, or make parties count by different bins, is refused before anything is spent, and nothing
that a party does may depend on its labels."""

import os
import re
import shutil

import msgspec
import numpy as np
import pytest
from commands import complaint
from commands import run as command
from consortium import COORDINATOR
from platform_world import BOUGHT, LABEL_DP, SHOPS, make_platform
from refusals import refused

import fedgauge as fg
from fedgauge.data.row_checks import ids_in
from fedgauge.engines import contribution, participant
from fedgauge.engines.exchange import Exchange, join, submit
from fedgauge.engines.participant import STEPS
from fedgauge.histograms.calibrator import Beta, Calibrator
from fedgauge.keys import SigningKey
from fedgauge.plan.explain import explain
from fedgauge.plan.task import LabelTask
from fedgauge.protocol import COORDINATOR as SENDER
from fedgauge.secagg import Stage, SummationServer
from fedgauge.site.rows import NamedRows
from fedgauge.vertical.files import Bins, Roster, Totals, assignment_digest
from fedgauge.vertical.label_party import ROW_KINDS, OwnLabels
from poison import at, poison

VICTIM, OTHER = SHOPS[:2]


@pytest.fixture
def platform(folder):
    return make_platform(folder)


def invite(platform, plan):
    """What a hostile coordinator writes that does not mind its own rules."""
    site = platform.site(COORDINATOR)
    platform.run.mkdir()
    server = SummationServer.invite(plan, [platform.keys[name] for name in SHOPS], site.key)
    Exchange(platform.run, site).write_request(
        server.invitation, Stage.ADVERTISE, SENDER, server.invitation.data
    )


def refusal(platform, act, *, entries=()):
    """Why the victim does not act; it spent nothing, sent nothing and echoes nothing."""
    before = sorted(path.name for path in platform.run.iterdir())
    with pytest.raises(fg.FedgaugeError) as caught:
        act()
    told = str(caught.value)
    assert platform.entries(VICTIM) == list(entries)
    assert sorted(path.name for path in platform.run.iterdir()) == before
    assert_silent_about_rows(told.replace(str(platform.folder), ""))
    return told


def assert_silent_about_rows(told):
    """Neither an id nor a label."""
    assert not re.search(r"\bu\d", told)
    assert "yes" not in told


def joining(platform, rows=None):
    site = platform.site(VICTIM)
    return lambda: join(Exchange(platform.run, site), site, rows or platform.labels(VICTIM))


def forge(platform, others=None, **change):
    """Bins of the victim, or of all, that break the rules, in a plan whose digests all fit."""
    assigned = platform.assign()
    parties = {}
    for party, bins in assigned.bins.items():
        own = change if party == platform.keys[VICTIM] else others or {}
        parties[party] = msgspec.structs.replace(bins, commitments=(), **own)
    commitments = tuple(sorted((party, bins.commitment) for party, bins in parties.items()))
    digest = assignment_digest(commitments)
    msgspec.structs.replace(assigned.totals, assignment=digest).keep(platform.site(COORDINATOR))
    for name in SHOPS:
        bins = msgspec.structs.replace(parties[platform.keys[name]], commitments=commitments)
        (platform.folder / f"{name}.bins").write_bytes(bins.to_bytes())
    return msgspec.structs.replace(assigned.plan, task=LabelTask("yes", digest))


def as_places(*bins):
    return np.array(bins, "<i4").tobytes()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"places": as_places(0, 1)}, "there are 2 bins for 1,000 examples"),
        ({"ids": ("u0",), "places": as_places(999)}, "a bin lies outside"),
        ({"ids": ("u0",), "places": as_places(-2)}, "a bin lies outside"),
        ({"ids": ("u0", "u0"), "places": as_places(0, 1)}, "the bins name an example twice"),
        ({"places": b"\0"}, "cut off"),
    ],
)
def test_bins_that_break_the_promise_are_refused(platform, change, told):
    invite(platform, forge(platform, **change))
    assert told in refusal(platform, joining(platform))


IDS = tuple(sorted(f"u{i}" for i in np.arange(0, 4000, len(SHOPS))))  # the victim's roster
UNLISTED = {
    "its other examples": (*IDS, "v1"),
    "its other examples instead": (*IDS[:-1], "v1"),
    "other examples alone": ("v1", "v2"),
    "of another party": (*IDS, "u1"),
    "some left out": IDS[1:],
    "none": (),
    "in another order": IDS[::-1],
    "full-width digits": ("\uff550", *IDS[1:]),
    "upper case": ("U0", *IDS[1:]),
    "with a blank": ("u0 ", *IDS[1:]),
    "one of them again, with an accent": (*IDS, "u0\u0301"),
}


@pytest.mark.parametrize("ids", UNLISTED.values(), ids=UNLISTED)
def test_bins_of_examples_that_the_party_never_listed_are_refused(platform, ids):
    """They were counted: whoever scores chose which labels it learns of."""
    path = platform.folder / f"{VICTIM}.csv"
    path.write_text(path.read_text() + "v1,yes\nv2,no\nu0 ,yes\nU0,yes\n")
    invite(platform, forge(platform, ids=ids, places=as_places(*[1] * len(ids))))
    assert "not those of a roster that this site made" in refusal(platform, joining(platform))


def test_bins_of_scores_that_the_party_never_listed_are_refused(platform):
    scores = np.array([0.25, 0.5]).tobytes()
    invite(platform, forge(platform, ids=(), scores=scores, places=as_places(0, 1)))
    rows = msgspec.structs.replace(platform.labels(VICTIM), key="p", scored=True)
    path = platform.folder / f"{VICTIM}.csv"
    path.write_text("p,bought\n0.25,yes\n0.5,no\n")
    told = refusal(platform, joining(platform, rows))
    assert "not those of a roster that this site made" in told


def test_a_lost_record_of_a_roster_is_made_again(platform):
    plan = platform.assign().plan
    platform.start(platform.run, plan)
    shutil.rmtree(platform.folder / VICTIM / "rosters")
    assert "`fedgauge vertical roster`" in refusal(platform, joining(platform))
    Roster.of_ids(IDS, platform.site(VICTIM).key).keep(platform.site(VICTIM))
    assert os.path.exists(joining(platform)())


def test_an_example_alone_in_its_bin_is_taken_for_noise_hides_it(platform):
    """Whatever bins it chooses, the promise is for one label: nothing to refuse."""
    ids = tuple(f"u{i}" for i in sorted(platform.rows_of(VICTIM), key=lambda i: f"u{i}"))
    alone = np.zeros(len(ids), "<i4")
    alone[0] = 1
    invite(platform, forge(platform, places=alone.tobytes()))
    assert os.path.exists(joining(platform)())


def test_bins_that_set_a_party_apart_show_its_positives_and_every_party_is_told(platform):
    """The promise is for a label. That it is for a party, too, is said nowhere."""
    apart, rest = (np.full(1000, place, "<i4").tobytes() for place in (1, 0))
    plan = forge(platform, others={"places": rest}, places=apart)
    platform.start(platform.run, plan)
    result = platform.play(platform.run, dict.fromkeys(SHOPS))
    shown = result.record.slices[0].counts[1][1]
    # At epsilon 8 the noise of all levels is beyond 30 with a chance below one in 10^9.
    assert abs(shown - np.count_nonzero(BOUGHT[platform.rows_of(VICTIM)])) < 30
    told = " ".join(explain(plan).split())
    assert "The promise is for a label, not for a site" in told
    assert "Not the counts of one site" not in told


def test_bins_of_another_evaluation_are_refused(platform):
    platform.assign()
    before = (platform.folder / f"{VICTIM}.bins").read_bytes()
    invite(platform, platform.assign().plan)
    (platform.folder / f"{VICTIM}.bins").write_bytes(before)
    assert "of another evaluation" in refusal(platform, joining(platform))


def test_a_plan_is_bound_to_one_file_of_bins_for_each_party(platform):
    """Bound to two, whoever scored could choose after a party joined, or give each its own."""
    assigned = platform.assign()
    party = platform.keys[VICTIM]
    bare = msgspec.structs.replace(assigned.bins[party], commitments=())
    both = [msgspec.structs.replace(bare, salt=bytes([each]) * 32) for each in range(2)]
    commitments = tuple(sorted((party, bins.commitment) for bins in both))
    task = LabelTask("yes", assignment_digest(commitments))
    invite(platform, msgspec.structs.replace(assigned.plan, task=task))
    for bins in both:
        told = msgspec.structs.replace(bins, commitments=commitments)
        (platform.folder / f"{VICTIM}.bins").write_bytes(told.to_bytes())
        assert "two files of bins of the same party" in refusal(platform, joining(platform))


def test_bins_of_another_party_are_refused(platform):
    invite(platform, platform.assign().plan)
    shutil.copy(platform.folder / f"{OTHER}.bins", platform.folder / f"{VICTIM}.bins")
    assert "for another party" in refusal(platform, joining(platform))


def test_one_byte_that_changed_on_the_way_is_refused(platform):
    """Every sixtieth of some 10,000: ids, bins, salt and the others' commitments."""
    invite(platform, platform.assign().plan)
    path = platform.folder / f"{VICTIM}.bins"
    data = path.read_bytes()
    plan, key = Exchange(platform.run, platform.site(VICTIM)).invitation().plan, platform.keys
    Bins.from_bytes(data).check(plan, key[VICTIM])
    for place in range(0, len(data), 60):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(fg.FedgaugeError) as caught:
            Bins.from_bytes(changed).check(plan, key[VICTIM])
        assert_silent_about_rows(str(caught.value))
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    refusal(platform, joining(platform))


def label_plan(privacy, assignment):
    return fg.EvaluationPlan.for_histogram(
        fg.Axis.from_values(range(16), outside="clip"),
        fg.Cohort(4, 1),
        task=LabelTask("yes", assignment),
        privacy=privacy,
    )


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        (label_plan(fg.SecureAggregation(), "ab" * 32), "an exact sum of labels"),
        (label_plan(LABEL_DP, ""), "does not say which bins"),
    ],
    ids=["exact", "no assignment"],
)
def test_plans_that_would_lay_labels_bare_are_refused(platform, plan, told):
    platform.assign()
    invite(platform, plan)
    assert told in refusal(platform, joining(platform))


@pytest.mark.parametrize("cohort", [fg.Cohort(1, 0), fg.Cohort(4, 1)], ids=["alone", "sum"])
def test_plans_that_need_scores_of_label_parties_are_none(cohort):
    """Score sums were charged, and then did not fit what is sent: budget for nothing."""
    axis, task = fg.Axis.uniform(16, outside="clip"), LabelTask("yes", "ab" * 32)
    options = {"task": task, "privacy": LABEL_DP}
    with pytest.raises(fg.PlanError, match="have no scores to sum or to map"):
        fg.EvaluationPlan.for_histogram(axis, cohort, score_sums=True, **options)
    plan = fg.EvaluationPlan.for_histogram(axis, cohort, **options)
    with pytest.raises(fg.PlanError, match="have no scores to sum or to map"):
        plan.with_calibrator(Calibrator("platt", Beta(0.8, 0.8, -0.2)))


def test_a_positive_label_that_the_site_does_not_list_is_refused(platform):
    """Such as a label of another column: who asks could choose what it learns of."""
    plan = platform.assign(positive="refunded").plan
    invite(platform, plan)
    refused(fg.PlanRefused, "calls 'refunded' the positive label", joining(platform))
    assert platform.entries(VICTIM) == []


def test_an_honest_coordinator_starts_only_what_it_assigned(platform):
    plan = platform.assign().plan
    for kept in (platform.folder / COORDINATOR / "assignments").iterdir():
        kept.unlink()
    with pytest.raises(fg.ExchangeError, match="did not assign the bins of this plan"):
        platform.start(platform.run, plan)


def test_different_bins_do_not_lay_one_label_bare(folder):
    """Two sums that differ in where one example is: the budget adds up, and ends."""
    platform = make_platform(folder)
    for name in SHOPS:
        path = platform.site_file(name)
        path.write_text(re.sub(r"budget_epsilon = .*", "budget_epsilon = 10.0", path.read_text()))
    platform.start(platform.run, platform.assign().plan)
    platform.play(platform.run, dict.fromkeys(SHOPS))
    moved = platform.folder / "second"
    platform.start(moved, platform.assign().plan)
    site = platform.site(VICTIM)
    with pytest.raises(fg.BudgetExceeded, match="asked epsilon 8"):
        join(Exchange(moved, site), site, platform.labels(VICTIM))
    spent = site.ledger.total(site.dataset, default_limit=site.policy.default_limit).spent
    assert spent.epsilon == LABEL_DP.epsilon


def test_rows_with_scores_do_not_join_a_label_plan(platform):
    invite(platform, platform.assign().plan)
    rows = NamedRows(str(platform.folder / f"{VICTIM}.csv"), "bought", "user")
    assert "--id COLUMN --bins FILE" in refusal(platform, joining(platform, rows))


def until(platform, stage):
    for each in Stage:
        if each < stage:
            for name in SHOPS:
                platform.answer(platform.run, name, each)
            platform.advance(platform.run)


@pytest.mark.parametrize("swap", ["another party's", "changed", "gone"])
def test_bins_that_are_swapped_after_joining_are_refused_before_anything_is_spent(platform, swap):
    platform.start(platform.run, platform.assign().plan)
    until(platform, Stage.MASK)
    path = platform.folder / f"{VICTIM}.bins"
    match swap:
        case "another party's":
            shutil.copy(platform.folder / f"{OTHER}.bins", path)
        case "changed":
            path.write_bytes(path.read_bytes().replace(b"u0", b"u1", 1))
        case _:
            path.unlink()
    site = platform.site(VICTIM)
    refusal(
        platform,
        lambda: submit(Exchange(platform.run, site), site, kinds=ROW_KINDS, tell=print),
        entries=["reserve"],
    )


ANYWHERE = range(256)  # as many bins as there may be
LIES = {
    "more positives than examples": [(0, place, 2000) for place in ANYWHERE],
    "fewer than none": [(0, place, -2000) for place in ANYWHERE],
    "a few fewer in each bin": [(0, place, -15) for place in ANYWHERE],
    "from the bottom to the top": [(0, 0, -500), (0, -1, 500)],
}


@pytest.mark.parametrize("changes", LIES.values(), ids=LIES)
def test_a_sum_that_no_labels_have_is_a_caution(platform, monkeypatch, changes):
    """It cannot tell whose it is."""
    plan = platform.assign(tree=(64,)).plan
    added = [each for each in changes if each[1] < plan.axis.bins]
    poison(monkeypatch, at(plan, *added))
    platform.start(platform.run, plan)
    result = platform.play(platform.run, dict.fromkeys(SHOPS))
    assert "impossible counts" in result.caution
    again = fg.Evaluation.from_json(platform.run / "result.json")
    assert again.caution == result.caution


def flipped(rows):
    first, *rest = rows
    return [(first[0], "no" if first[1] == "yes" else "yes"), *rest]


LABELS = {
    "as they are": lambda rows: rows,
    "one flipped": flipped,
    "none positive": lambda rows: [(key, "no") for key, _ in rows],
    "all positive": lambda rows: [(key, "yes") for key, _ in rows],
    "missing": lambda rows: [(key, "") for key, _ in rows],
    "of many kinds": lambda rows: [(key, f"kind {i}") for i, (key, _) in enumerate(rows)],
    "header only": lambda _: [],
}


def relabel(path, change):
    header, *lines = path.read_text().splitlines()
    rows = change([tuple(line.split(",")) for line in lines])
    path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n")


def test_labels_change_neither_what_is_sent_nor_whether(folder):
    platform = make_platform(folder / "world")
    platform.start(platform.run, platform.assign().plan)
    seen = {}
    for kind, change in LABELS.items():
        copy = type(platform)(shutil.copytree(platform.folder, folder / kind), SHOPS)
        relabel(copy.folder / f"{VICTIM}.csv", change)
        copy.play(copy.run, dict.fromkeys(SHOPS))
        files = {path.name: path.stat().st_size for path in copy.run.glob("*.fgx")}
        seen[kind] = files, copy.entries(VICTIM)
    assert len(seen["as they are"][0]) == 1 + len(STEPS) * len(SHOPS) * 2 - len(SHOPS)
    for kind in LABELS:
        assert seen[kind] == seen["as they are"], kind


def test_neither_folder_nor_scorer_ever_holds_the_counts_of_one_party(
    platform, monkeypatch, caplog, capfd
):
    """Bare or with its share of the noise, in files after each round, in logs and on screens."""
    caplog.set_level("DEBUG")
    secret, counted = [], participant.same_contribution

    def watched(plan, histogram, source):
        sent = counted(plan, histogram, source)
        secret.extend((contribution.to_numbers(plan, histogram), sent))
        return sent

    monkeypatch.setattr(participant, "same_contribution", watched)
    platform.start(platform.run, platform.assign().plan)
    seen = {}
    for stage in Stage:
        for name in SHOPS:
            platform.answer(platform.run, name, stage)
        platform.advance(platform.run)
        for folder in (platform.run, platform.folder / COORDINATOR):
            files = (path for path in folder.rglob("*") if path.is_file())
            seen |= {(stage, path): path.read_bytes() for path in files}
    seen["log"], seen["screen"] = caplog.text.encode(), str(capfd.readouterr()).encode()
    assert len(secret) == 2 * len(SHOPS)
    for values in (*secret, sum(secret[::2])):
        for form in forms_of(values):
            assert not [where for where, data in seen.items() if form in data]


def forms_of(values):
    """A row of numbers as bytes, in the forms that a leak would take."""
    kinds = (values.astype(kind).tobytes() for kind in ("<i4", ">i4", "<i8", ">i8", "<f8", ">f8"))
    plain = values.tolist()
    return [*kinds, msgspec.msgpack.encode(plain), msgspec.json.encode(plain), str(plain).encode()]


def test_labels_change_neither_a_roster_nor_totals_nor_so_the_plan(platform):
    path, key = platform.folder / f"{VICTIM}.csv", platform.site(VICTIM).key
    text = path.read_text()
    made = set()
    for kind, change in LABELS.items():
        path.write_text(text)
        if kind != "header only":
            relabel(path, change)
            made.add(Roster.of_ids(ids_in(path, key="user"), key).to_bytes())
    assert len(made) == 1
    # What whoever scored keeps follows from scores and rosters alone.
    one = platform.assign().totals
    relabel(platform.folder / f"{VICTIM}.csv", LABELS["all positive"])
    other = platform.assign().totals
    fields = [name for name in Totals.__struct_fields__ if name != "assignment"]
    assert [getattr(one, name) for name in fields] == [getattr(other, name) for name in fields]


def test_a_roster_that_was_edited_on_the_way_is_refused(platform, tmp_path):
    data = Roster.of_ids(["u1", "u2", "u3"], platform.site(VICTIM).key).to_bytes()
    assert told_of(platform, tmp_path, data)[0] == 0
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(fg.ProtocolError) as caught:
            Roster.from_bytes(changed)
        assert_silent_about_rows(str(caught.value))
    code, told = told_of(platform, tmp_path, data.replace(b"u2", b"u4"))
    assert code == 1
    assert "a.roster: the roster is not signed by the party it names" in told


def test_an_unknown_partys_roster_is_refused(platform, tmp_path):
    data = Roster.of_ids(["u1", "u2", "u3"], SigningKey.generate()).to_bytes()
    code, told = told_of(platform, tmp_path, data)
    assert code == 2
    assert "unknown party: no peer in" in told
    assert_silent_about_rows(told.replace(str(tmp_path), ""))
    assert not (tmp_path / "out").exists()


def test_numbers_of_examples_that_wrap_around_are_refused():
    """2^24 scores of 2^40 examples each, and five more, were taken for five."""
    key, far = SigningKey.generate(), np.array([1 << 40, 5], "<i8").tobytes()
    made = Roster.of_scores(np.array([0.1, 0.2]), key, few_values=True)
    forged = Roster._signed(key, scores=made.scores, rows=far)
    refused(fg.ProtocolError, "not as they must be", Roster.from_bytes, forged.to_bytes())


@pytest.mark.parametrize("labels", [[0, 1, 1, 0], [1, 1], [0, 0], [0.0, -0.0, 1.0]])
def test_a_column_of_labels_taken_for_scores_does_not_leave(tmp_path, platform, labels):
    """Nobody pays for a roster, and in this one the number of positives would be exact."""
    for few in (False, True):
        with pytest.raises(fg.InputError, match="as labels are"):
            Roster.of_scores(np.array(labels, dtype=float), SigningKey.generate(), few_values=few)
    for more in ((), ("--few-values",)):
        done = roster_of(platform, tmp_path, labels, "--quiet", *more)
        assert "Name the column of scores" in complaint(done, 2)
        assert not (tmp_path / "a.roster").exists()


AS_LABELS = {
    "1 and 2": [1, 2, 2, 1, 1],
    "-1 and 1": [-1, 1, 1, -1],
    "0 and 100": [0, 100, 0, 0],
    "two of any kind": [0.31, 0.77, 0.31],
    "all alike": [7.5, 7.5, 7.5],
    "one": [0.3],
    "0, 1 and a code": [0, 1, 1, 9, 0],
    "grades": [1, 2, 3, 4, 5, 5, 5],
    "large ones": [1e300, 1e300, -1e300],
}


def roster_of(platform, folder, values, *more):
    (folder / "scored.csv").write_text("".join(f"{row}\n" for row in ["bought", *values]))
    return command(
        *("vertical", "roster", folder / "scored.csv", "--score", "bought", *more),
        *("--site", platform.site_file(VICTIM), "--output", folder / "a.roster"),
        columns=400,
    )


@pytest.mark.parametrize("values", AS_LABELS.values(), ids=AS_LABELS)
def test_labels_in_whatever_numbers_do_not_leave_as_scores(tmp_path, platform, values):
    """Their counts left unpaid. Who knows that they are scores can say so."""
    told = complaint(roster_of(platform, tmp_path, values), 2)
    assert "may be labels" in told
    assert "--few-values" in told
    assert not re.search(r"\b(31|77|100|300|9)\b", told.replace(str(tmp_path), ""))
    assert not (tmp_path / "a.roster").exists()
    assert not (platform.folder / VICTIM / "rosters").exists()
    done = roster_of(platform, tmp_path, values, "--few-values")
    assert (done.exit_code, done.stderr) == (0, "")
    assert Roster.from_bytes((tmp_path / "a.roster").read_bytes()).examples == len(values)


@pytest.mark.parametrize("values", [["yes", "no", "yes"], ["true", "false"], ["yes", ""]])
def test_labels_in_words_do_not_leave_as_scores(tmp_path, platform, values):
    for more in ((), ("--few-values",)):
        complaint(roster_of(platform, tmp_path, values, *more), 2)
        assert not (tmp_path / "a.roster").exists()


@pytest.mark.parametrize("values", AS_LABELS.values(), ids=AS_LABELS)
def test_nor_do_they_over_a_network(values):
    """Where a node's columns are the wrong way round."""
    key, rows = SigningKey.generate(), (values, [0.5] * len(values))
    refused(fg.InputError, "may be labels", OwnLabels(lambda: rows, scored=True).roster, key)
    assert OwnLabels(lambda: rows, scored=True, few_values=True).roster(key).is_scored


def test_few_distinct_scores_are_a_warning(tmp_path, platform):
    done = roster_of(platform, tmp_path, [0.1, 0.5, 0.9] * 4)
    assert done.exit_code == 0
    assert "make sure that it holds scores" in done.stderr
    (tmp_path / "a.roster").unlink()
    assert roster_of(platform, tmp_path, np.linspace(0, 1, 11).tolist()).stderr == ""


def test_options_for_scores_do_nothing_to_ids(tmp_path, platform):
    (tmp_path / "ids.csv").write_text("user\nu1\n")
    done = command(
        *("vertical", "roster", tmp_path / "ids.csv", "--id", "user", "--few-values"),
        *("--site", platform.site_file(VICTIM), "--output", tmp_path / "a.roster"),
    )
    assert "--few-values would do nothing" in complaint(done, 2)


def told_of(platform, folder, roster):
    """What `assign` says to one roster: of one party, so nothing is started."""
    (folder / "a.roster").write_bytes(roster)
    (folder / "scores.csv").write_text("user,p\nu1,0.1\nu2,0.2\nu3,0.7\n")
    shutil.rmtree(folder / "out", ignore_errors=True)
    done = command(
        *("vertical", "assign", folder / "scores.csv", folder / "a.roster", "--id", "user"),
        *("--score", "p", "--epsilon", "1", "--site", platform.site_file(COORDINATOR)),
        *("--output", folder / "out", "--tree", "3", "--quiet"),
    )
    return done.exit_code, "" if done.exit_code == 0 else complaint(done, done.exit_code)
