"""Label parties that answer by files: alone, with noise, flips and pairs, charged once, concluded;
and in a sum."""

import json

import numpy as np
import pytest
from alone_world import FLIPS, GAUSSIAN, NOISE, TWO, make_alone
from consortium import COORDINATOR
from platform_world import BOUGHT, SCORES, SHOPS, make_platform
from refusals import refused
from sklearn.metrics import roc_auc_score

import fedgauge as fg
from fedgauge.data.row_checks import KeyedFile
from fedgauge.engines.contribution import draw_noise
from fedgauge.errors import ExchangeError
from fedgauge.plan.label_rounds import PAIR_NOISE
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.secagg import Stage
from fedgauge.site.log import what_left
from fedgauge.vertical import answers
from fedgauge.vertical.answers import LabelAnswer, answer_alone, conclude_alone
from fedgauge.vertical.auc import MECHANISMS, doubled_midranks, noisy_pair
from fedgauge.vertical.files import Roster, assign_bins, assign_ranks, terms_of
from fedgauge.vertical.flips import Flips

MUCH = fg.DistributedDP(0.5, unit="label", neighbours="flip")
EVERY = {
    "noise": (NOISE, None),
    "flips": (FLIPS, None),
    "adaptive": (NOISE, "adaptive"),
    "gaussian": (GAUSSIAN, "gaussian"),
}


@pytest.fixture
def world(tmp_path):
    return make_alone(tmp_path)


def truth(rows):
    return roc_auc_score(BOUGHT[rows], SCORES[rows])


def relabel(world, name, label):
    ids = "".join(f"u{i},{label}\n" for i in world.rows_of(name))
    (world.folder / f"{name}.csv").write_text(f"user,bought\n{ids}")


@pytest.mark.parametrize("mechanism", [None, *MECHANISMS])
def test_answers_give_what_all_labels_give(world, mechanism):
    """Noise alone moves this AUC by 0.004 at most, as predicted: beyond 0.03 once in 10^9."""
    privacy = GAUSSIAN if mechanism == "gaussian" else NOISE
    made = world.told(privacy, mechanism)
    result = world.play_alone(made.plan)
    assert result.roc_auc.parts["noise"] < 0.0045
    assert result.roc_auc.value == pytest.approx(truth(world.rows), abs=0.03)
    stated = result.privacy
    assert (stated.unit, stated.neighbours, stated.claim) == ("label", "flip", "enforced")
    assert stated.epsilon == 8.0
    # No protocol runs that could fail: what is beyond the plan's delta is rounding.
    assert stated.delta - (made.plan.privacy.delta or 0.0) < 1e-20
    assert [world.spent(name) for name in TWO] == [8.0, 8.0]


def test_flipped_labels_are_debiased(world):
    """The noise has a deviation of 0.01: beyond six of them once in 10^8."""
    made = world.told(FLIPS, positive_rate=0.3)
    result = world.play_alone(made.plan)
    noise = result.roc_auc.parts["noise"]
    assert 0.002 < noise < 0.02
    assert result.roc_auc.value == pytest.approx(truth(world.rows), abs=6 * noise)
    assert (result.privacy.epsilon, result.privacy.delta) == (3.0, 0.0)
    assert result.privacy.public_inputs == ("positive_rate 0.3",)


def test_a_result_is_saved_read_again_and_unsigned(world, tmp_path):
    for privacy, mechanism in EVERY.values():
        made = world.told(privacy, mechanism)
        for name in TWO:
            world.file(name).unlink(missing_ok=True)
        result = world.play_alone(made.plan)
        result.to_json(tmp_path / "r.json")
        again = type(result).from_json(tmp_path / "r.json")
        assert again.roc_auc.value == result.roc_auc.value
        if isinstance(result, fg.Evaluation):
            assert again.signature.state == "unsigned"
            assert "each answer was private before it was sent" in str(again)
            assert int(again.released.counts.sum().round()) == len(world.rows)


def test_one_party_is_enough(tmp_path):
    world = make_alone(tmp_path, TWO[:1])
    made = world.told(mechanism="adaptive")
    assert world.play_alone(made.plan).parties == 1
    world.file(TWO[0]).unlink()
    assert world.play_alone(world.told().plan).clients == 1


@pytest.mark.parametrize("decimals", [16, 2], ids=["distinct", "tied"])
def test_parties_that_score_their_examples_answer_too(world, tmp_path, decimals):
    rosters, scores = {}, SCORES.round(decimals)
    for name in TWO:
        rows = world.rows_of(name)
        text = "".join(f"{scores[i].item()!r},{'yes' if BOUGHT[i] else 'no'}\n" for i in rows)
        (tmp_path / f"{name}.csv").write_text(f"p,bought\n{text}")
        made = Roster.of_scores(scores[rows], world.site(name).key)
        made.keep(world.site(name))
        rosters[made.party] = made
    for assign in (assign_bins, assign_ranks):
        made = assign(None, rosters, NOISE, positive="yes")
        made.totals.keep(world.site(COORDINATOR))
        answers = []
        for name in TWO:
            world.give(name, made.bins[world.keys[name]])
            world.file(name).unlink(missing_ok=True)
            answers.append(world.answers(made.plan, name, key="p", scored=True))
        result = world.conclude(made.plan, answers)
        assert result.roc_auc.value == pytest.approx(truth(world.rows), abs=0.03)
        assert result.caution is None


def test_totals_follow_those_who_answered(world):
    for privacy in (NOISE, FLIPS):
        made = world.told(privacy)
        world.file(TWO[0]).unlink(missing_ok=True)
        given = [world.answers(made.plan, TWO[0])]
        with pytest.raises(ExchangeError, match=r"shop-b did not answer yet.*--without-missing"):
            world.conclude(made.plan, given)
        result = world.conclude(made.plan, given, without_missing=True)
        assert int(result.released.counts.sum().round()) == len(world.rows_of(TWO[0]))
    with pytest.raises(ExchangeError, match="there is no answer"):
        world.conclude(made.plan, [], without_missing=True)
    # Ranks are among the examples of all: of some of them they are no ranks.
    made = world.told(mechanism="adaptive")
    world.file(TWO[0]).unlink()
    given = [world.answers(made.plan, TWO[0])]
    with pytest.raises(ExchangeError, match="shop-b did not answer yet, and ranks depend on"):
        world.conclude(made.plan, given, without_missing=True)


@pytest.mark.parametrize("kind", EVERY)
def test_asked_again_an_answer_stands_and_costs_nothing(world, kind):
    made = world.told(*EVERY[kind])
    first = world.answers(made.plan, TWO[0])
    spent = world.spent(TWO[0])
    again = world.folder / "again.answer"
    if kind != "flips":  # whose labels may not change
        relabel(world, TWO[0], "yes")
    assert world.answers(made.plan, TWO[0], again) == first
    assert again.read_bytes() == world.file(TWO[0]).read_bytes()
    assert world.spent(TWO[0]) == spent
    with pytest.raises(fg.InputError, match=r"exists\. If it is this site's answer, send it again"):
        world.answers(made.plan, TWO[0])
    left = [row for row in what_left(world.site(TWO[0])) if row.step == "answer"]
    assert [row.size for row in left] == [len(again.read_bytes())]
    assert left[0].plan == made.plan.digest


def test_flips_are_charged_once_for_all_evaluations(world):
    told = []
    for number in range(3):
        made = world.told(FLIPS, positive_rate=(0.2, 0.4, 0.6)[number])
        answer = world.answers(made.plan, TWO[0], world.folder / f"{number}.answer")
        told.append(sum(answer.numbers))
        assert world.spent(TWO[0]) == 3.0
    assert told[0] == told[1] == told[2]  # whatever the bins: the same labels as flipped
    world.answers(made.plan.with_not_after("2999-01-01"), TWO[0], world.folder / "other.answer")
    assert world.spent(TWO[0]) == 3.0
    made = world.told(FLIPS)
    anew = world.folder / "new.flips"
    world.answers(made.plan, TWO[0], world.folder / "anew.answer", flips=anew)
    assert world.spent(TWO[0]) == 6.0


def test_labels_that_changed_are_not_told_by_flips_made_before(world):
    world.answers(world.told(FLIPS).plan, TWO[0])
    relabel(world, TWO[0], "no")
    made = world.told(FLIPS)
    with pytest.raises(fg.SiteError, match="labels have changed since they were flipped"):
        world.answers(made.plan, TWO[0], world.folder / "2.answer")
    assert not (world.folder / "2.answer").exists()


def test_flips_by_scores_are_refused_before_anything_is_made(world):
    rosters = {}
    for name in TWO:
        roster = Roster.of_scores(SCORES[world.rows_of(name)], world.site(name).key)
        roster.keep(world.site(name))
        rosters[roster.party] = roster
    (world.folder / f"{TWO[0]}.csv").write_text("p,bought\n0.5,yes\n")
    made = assign_bins(None, rosters, FLIPS, positive="yes")
    world.give(TWO[0], made.bins[world.keys[TWO[0]]])
    with pytest.raises(fg.InputError, match="flipped labels are found again by id"):
        world.answers(made.plan, TWO[0], key="p", scored=True)
    assert not (world.folder / TWO[0] / "labels.flips").exists()


@pytest.mark.parametrize("kind", ["noise", "adaptive", "gaussian"])
def test_a_crash_after_the_charge_leaves_no_answer_that_nobody_paid_for(world, kind, monkeypatch):
    made, site = world.told(*EVERY[kind]), TWO[0]

    def crash(*_args, **_options):
        raise RuntimeError("the power went")

    for step in ("LabelAnswer", "_read"):  # before the answer is made, and before it is recorded
        with monkeypatch.context() as patched:
            patched.setattr(answers, step, crash)
            patched.setattr(getattr(answers, step), "signed", crash, raising=False)
            with pytest.raises(RuntimeError):
                world.answers(made.plan, site)
        assert not world.file(site).exists()
    spent = world.spent(site)
    assert spent == 16.0  # the first attempt made none; the second was kept
    world.answers(made.plan, site)
    assert world.spent(site) == spent
    assert what_left(world.site(site))[-1].step == "answer"


def test_rows_are_read_once_the_charge_is_committed(world, monkeypatch):
    made, seen = world.told(), []
    counted = answers.count_leniently

    def watched(*arguments):
        seen.append(world.spent(TWO[0]))
        return counted(*arguments)

    monkeypatch.setattr(answers, "count_leniently", watched)
    world.answers(made.plan, TWO[0])
    assert seen == [8.0]


@pytest.mark.parametrize("kind", EVERY)
def test_a_site_judges_what_it_answers_before_rows_are_read(tmp_path, kind):
    world = make_alone(tmp_path, budget_epsilon=2.0)
    made = world.told(*EVERY[kind])
    with pytest.raises(fg.BudgetExceeded):
        world.answers(made.plan, TWO[0])
    assert not world.file(TWO[0]).exists()
    (tmp_path / "a").mkdir()
    world = make_alone(tmp_path / "a", max_epsilon=2.0)
    made = world.told(*EVERY[kind])
    for change, why in (
        ({}, "max_epsilon"),
        ({"max_epsilon": 10.0, "labels": ("other",)}, "labels"),
        ({"max_epsilon": 10.0, "models": ("secure-aggregation",)}, "privacy model"),
    ):
        site = world.site(TWO[0])
        limits = {"models": fg.site.policy.MODELS, "labels": ("yes",), "max_epsilon": 2.0} | change
        policy = fg.site.Policy(**limits)
        object.__setattr__(site, "policy", policy)
        with pytest.raises(fg.PlanRefused, match=why):
            answer_alone(site, made.plan, world.labels(TWO[0]), world.file(TWO[0]))
    assert world.spent(TWO[0]) == 0.0


@pytest.mark.parametrize("kind", EVERY)
def test_odd_rows_are_told_to_the_operator_and_do_not_stop_an_answer(world, kind):
    made, name, told, seen = world.told(*EVERY[kind]), TWO[0], [], []
    known = [f"u{i}" for i in world.rows_of(name)]
    rows = [f"{known[0]},yes", f"{known[0]},no", f"{known[1]},", "stranger,yes", f"{known[2]},no"]
    (world.folder / f"{name}.csv").write_text("user,bought\n" + "\n".join(rows) + "\n")
    world.answers(made.plan, name, tell=told.append, show=seen.append)
    ((odd, positives),) = [(each.oddities, each.positives) for each in seen]
    assert (odd.rows, positives) == (3, 1)
    assert (odd.unlisted, odd.repeated, odd.unlabelled) == (1, 1, len(known) - 3)
    assert odd.missing_labels == 1
    assert len(told) >= 4
    assert not any(word in sentence for sentence in told for word in ("stranger", *known[:3]))


def test_a_file_that_breaks_off_counts_as_no_rows_under_noise(world, monkeypatch):
    """Some rows of it would be counted, and others not: who reads the answer could tell."""
    whole = KeyedFile.leniently

    def broken(self, skip):
        yield next(whole(self, skip))
        raise OSError("the stick was pulled")

    monkeypatch.setattr(KeyedFile, "leniently", broken)
    for kind in ("noise", "adaptive"):
        made, told, seen = world.told(*EVERY[kind]), [], []
        world.file(TWO[0]).unlink(missing_ok=True)
        answer = world.answers(made.plan, TWO[0], tell=told.append, show=seen.append)
        assert len(answer.numbers) == made.plan.numbers
        assert (seen[0].positives, seen[0].oddities.rows) == (0, 0)
        assert "no row was counted: reading the rows ended in OSError." in told[0]
    with pytest.raises(fg.InputError, match="reading the rows ended in OSError"):
        world.answers(world.told(FLIPS).plan, TWO[0], world.folder / "flipped.answer")
    assert world.spent(TWO[0]) == 16.0  # for both with noise, and nothing for flips


def test_who_or_what_may_not_answer_or_conclude_alone(world):
    made, site = world.told(), world.site(TWO[0])
    object.__setattr__(site, "approvers", {bytes(32): "officer"})
    with pytest.raises(fg.PlanRefused, match="nobody can approve of answers alone"):
        answer_alone(site, made.plan, world.labels(TWO[0]), world.file(TWO[0]))
    made = world.told(cohort=fg.Cohort(2, 1))
    with pytest.raises(fg.PlanRefused, match="not for label parties that answer alone"):
        world.answers(made.plan, TWO[0])
    refused(fg.PlanError, "do not answer alone", world.conclude, made.plan, [])
    site = world.site(TWO[0])
    for kind in EVERY:
        plan = world.told(*EVERY[kind]).plan
        with pytest.raises(fg.PlanRefused, match="vertical answer"):
            site.judge(plan, members=list(site.peers), coordinator=next(iter(site.coordinators)))
    made = world.told()
    given = [world.answers(made.plan, name) for name in TWO]
    refused(ExchangeError, "did not assign", conclude_alone, world.site(TWO[0]), made.plan, given)


def test_a_plan_and_its_mechanism_agree_on_the_noise():
    assert {name: row.noise for name, row in MECHANISMS.items()} == dict(PAIR_NOISE)
    for name in MECHANISMS:
        other = NOISE if name == "gaussian" else GAUSSIAN
        with pytest.raises(fg.PlanError, match=f"{name} needs DistributedDP with noise="):
            fg.EvaluationPlan.for_pairs(name, 100, other)


def test_one_or_two_parties_answer_alone_and_three_do_not(tmp_path):
    world = make_alone(tmp_path, ["shop-a", "shop-b", "shop-c"])
    rosters = world.rosters()
    scored = ([f"u{i}" for i in range(len(SCORES))], SCORES)
    for parties, alone in ((1, True), (2, True), (3, False)):
        some = dict(list(rosters.items())[:parties])
        assert assign_bins(scored, some, NOISE).plan.is_alone == alone
    assert assign_bins(scored, rosters, NOISE, cohort=fg.Cohort(1, 0)).plan.is_alone


def test_ranks_told_are_doubled_midranks_and_numbers_take_as_many_bytes(world):
    made = world.told(mechanism="adaptive")
    wanted = dict(zip(world.rows, doubled_midranks(SCORES[world.rows]), strict=True))
    for name in TWO:
        bins = made.bins[world.keys[name]]
        ranks = np.frombuffer(bins.places, "<i4")
        assert [wanted[int(each[1:])] for each in bins.ids] == ranks.tolist()
    assert bins.number == 2 * len(world.rows) - 1
    plan, key = world.told(mechanism="adaptive").plan, world.site(TWO[0]).key
    made = [
        LabelAnswer.signed(key, plan, bytes(32), pair)
        for pair in ([0, -1], [1 << 200, -(1 << 200)])
    ]
    assert len({len(each.to_bytes()) for each in made}) == 1
    assert made[1].numbers == [(1 << 127) - 1, 1 - (1 << 127)]


def sown(monkeypatch, seed=7):
    """Have answers draw what a seed gives."""
    monkeypatch.setattr(answers, "Keystream", lambda: SimulatedKeystream(seed))
    return SimulatedKeystream(seed)


def test_an_answer_is_counts_and_the_noise_of_a_cohort_of_one(world, monkeypatch):
    """Whose law tests/property/test_label_enumeration.py goes through."""
    made, source = world.told(MUCH, tree=(8, 4)), sown(monkeypatch)
    places = made.bins[world.keys[TWO[0]]].check(made.plan, world.keys[TWO[0]])
    bought = BOUGHT[[int(each[1:]) for each in places.keys.to_pylist()]]
    counts = np.bincount(places.bins[bought], minlength=32)
    exact = np.concatenate([counts.reshape(8, 4).sum(axis=1), counts])
    wanted = exact + draw_noise(made.plan, source)
    assert world.answers(made.plan, TWO[0]).numbers == wanted.tolist()
    assert np.any(wanted != exact)


@pytest.mark.parametrize("mechanism", ["adaptive", "gaussian"])
def test_an_answer_is_a_pair_with_the_noise_of_its_terms(world, monkeypatch, mechanism):
    privacy = GAUSSIAN if mechanism == "gaussian" else NOISE
    made, source = world.told(privacy, mechanism), sown(monkeypatch)
    places = made.bins[world.keys[TWO[0]]].check(made.plan, world.keys[TWO[0]])
    bought = BOUGHT[[int(each[1:]) for each in places.keys.to_pylist()]]
    terms, ranks = terms_of(made.plan, places), places.bins.astype(np.int64)
    assert world.answers(made.plan, TWO[0]).numbers == list(
        noisy_pair(bought, ranks, terms, source)
    )
    assert terms.positives.variance > 0
    assert terms.ranks.variance > 0


def test_an_answer_counts_labels_as_they_are_flipped_in_the_file(world):
    made = world.told(FLIPS)
    answer = world.answers(made.plan, TWO[0])
    rows = world.rows_of(TWO[0])
    kept = Flips.kept(
        world.folder / TWO[0] / "labels.flips",
        [f"u{i}" for i in rows],
        BOUGHT[rows],
        epsilon=3.0,
        positive="yes",
    )
    places = made.bins[world.keys[TWO[0]]].check(made.plan, world.keys[TWO[0]])
    bin_of = dict(zip(places.keys.to_pylist(), places.bins.tolist(), strict=True))
    bins = np.array([bin_of[f"u{i}"] for i in rows])
    assert answer.numbers == np.bincount(bins[kept.told], minlength=made.plan.axis.bins).tolist()
    assert np.any(kept.told != BOUGHT[rows])  # of 1,000 labels none is flipped: once in 10^20


def test_noise_is_fresh_for_each_plan(world):
    answers = [
        world.answers(world.told(MUCH, tree=(64,)).plan, TWO[0], world.folder / f"{i}.answer")
        for i in range(2)
    ]
    # The same labels in the same bins; 64 draws that are all alike twice: once in 10^9.
    assert answers[0].numbers != answers[1].numbers


def changed(kept, place, value):
    """What was kept, with another value of the first party."""
    (party, *rest), *others = kept["by_party"]
    first = [party, *rest]
    first[place] = value(first[place])
    return kept | {"by_party": [first, *others]}


ODD_TOTALS = {
    "fewer bins": lambda kept: changed(kept, 1, lambda told: told[1:]),
    "no bins": lambda kept: changed(kept, 1, lambda _: []),
    "fewer examples than none": lambda kept: changed(kept, 1, lambda told: [-1, *told[1:]]),
    "too many": lambda kept: changed(kept, 1, lambda told: [1 << 63, *told[1:]]),
    "no key": lambda kept: changed(kept, 0, lambda _: ""),
    "a party twice": lambda kept: kept | {"by_party": kept["by_party"][:1] * 2},
    "no parties": lambda kept: kept | {"by_party": []},
    "other bins": lambda kept: kept | {"axis": {"kind": "uniform", "bins": 3}},
}
ODD_RANKS = {
    "a mean below none": lambda kept: changed(kept, 1, lambda told: [-1, *told[1:]]),
    "a reach beyond all": lambda kept: changed(kept, 1, lambda told: [told[0], 1 << 63, told[2]]),
    "ranks cut off": lambda kept: changed(kept, 2, lambda told: told[:-4]),
    "ranks beyond all": lambda kept: changed(kept, 2, lambda _: "////fw=="),
    "no key": ODD_TOTALS["no key"],
    "a party twice": ODD_TOTALS["a party twice"],
    "no parties": ODD_TOTALS["no parties"],
    "other examples": lambda kept: kept | {"examples": 17},
}


@pytest.mark.parametrize(
    ("mechanism", "change"),
    [(None, each) for each in ODD_TOTALS.values()]
    + [("adaptive", each) for each in ODD_RANKS.values()],
    ids=[*ODD_TOTALS, *ODD_RANKS],
)
def test_what_was_kept_of_an_assignment_and_is_odd_is_refused(world, mechanism, change):
    """Numbers that no assignment has were a traceback."""
    made = world.told(mechanism=mechanism)
    answers = [world.answers(made.plan, name) for name in TWO]
    path = made.totals.keep(world.site(COORDINATOR))
    path.write_text(json.dumps(change(json.loads(path.read_bytes()))))
    refused(fg.SiteError, "damaged or changed", world.conclude, made.plan, answers)


@pytest.fixture
def platform(tmp_path):
    """Four shops whose answers are summed, in five rounds, over those who stay."""
    made = make_platform(tmp_path)
    made.start(made.run, made.assign().plan)
    return made


def test_a_sum_gives_what_all_labels_give(platform):
    """Little noise is left at epsilon 8, and the totals of bins are exact."""
    result = platform.play(platform.run, dict.fromkeys(SHOPS))
    assert result.roc_auc.value == pytest.approx(roc_auc_score(BOUGHT, SCORES), abs=3e-3)
    assert int(result.released.counts.sum()) == len(SCORES)
    assert (result.privacy.unit, result.privacy.neighbours) == ("label", "flip")
    assert result.privacy.claim == "enforced"
    assert result.privacy.public_inputs == ("positive_rate 0.3",)
    again = fg.Evaluation.from_json(platform.run / "result.json")
    assert again.roc_auc == result.roc_auc
    assert again.signature.state == "unknown key"


def test_totals_of_a_sum_follow_the_survivors(platform):
    for name in SHOPS:
        platform.answer(platform.run, name, Stage.ADVERTISE)
    platform.advance(platform.run)
    everybody = dict.fromkeys(SHOPS)
    result = platform.play(platform.run, everybody, skip=[SHOPS[1]], since=Stage.SHARE)
    kept = np.concatenate([platform.rows_of(name) for name in SHOPS if name != SHOPS[1]])
    assert int(result.released.counts.sum()) == len(kept)
    assert result.roc_auc.value == pytest.approx(truth(kept), abs=4e-3)
