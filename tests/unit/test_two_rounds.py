"""Two rounds: bins of equal depth, plans of both rounds, what they promise, and what is refused."""

import json
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from refusals import refused
from rows import draw_rows

import fedgauge as fg
from fedgauge import Axis, Cohort, DistributedDP, EvaluationPlan, LocalDP, PlanError, TwoRound
from fedgauge.engines.contribution import find_bins
from fedgauge.errors import AxisError
from fedgauge.estimation.counts import Released
from fedgauge.histograms.calibrator import Beta, Calibrator
from fedgauge.histograms.two_round import MOST_COARSE, MOST_FOUND, PARTS, CoarseGroups
from fedgauge.plan.explain import brief, explain
from fedgauge.plan.task import LabelTask, SearchTask
from fedgauge.plan.two_rounds import Found

TWO = TwoRound(8, share=0.25, coarse=Axis.uniform(16, -8.0, 8.0, outside="clip"))
COHORT = Cohort(4, 1)
PRIVACY = {
    "exact": fg.SecureAggregation(),
    "noisy": DistributedDP(1.0),
    "subjects": DistributedDP(1.0, unit="subject", max_per_unit=3),
    "reports": LocalDP(3.0),
}
TASKS = {
    "plain": None,
    "groups": fg.BinaryTask(groups={"sex": ["women"], "age": ["old"]}),
    "classes": fg.MulticlassTask(labels=["cat", "dog", "owl"]),
    "labels": fg.MultilabelTask(labels=["fever", "cough"]),
    "models": fg.BinaryTask(models=("new", "old")),
}
every_model = pytest.mark.parametrize("name", PRIVACY)
every_task = pytest.mark.parametrize("task", TASKS)
PAIRS = fg.BinaryTask(models=("new", "old"), pairs=[("new", "old")])
TABLES = fg.MulticlassTask(labels=["cat", "dog"], also=["confusion"])
MAPPED = Calibrator("platt", Beta(0.8, 0.8, -0.2))
REFUSING = TwoRound(8, coarse=Axis.uniform(16, -8.0, 8.0))
NESTED = b'{"kind":"search","of":'
CLIENTS = {f"site-{i}": draw_rows(2000, seed=i, rate=0.4) for i in range(4)}
MARGINS = {name: (y, 10 * s - 5) for name, (y, s) in CLIENTS.items()}
EVEN = TwoRound(4, coarse=Axis.uniform(8, 0.0, 8.0, outside="clip"), widest=4, narrowest=0.5)


def plan_for(name="noisy", two=TWO, **options):
    privacy = PRIVACY[name]
    cohort = COHORT if privacy.needs_cohort else None
    return EvaluationPlan.under(privacy, two, cohort=cohort, **options)


def located_by(plan, counts=None, **more):
    two = plan.task.two
    counts = counts or tuple(range(two.coarse.bins))
    return plan.located(Found(two, counts, 4, **more))


def changed(plan, **fields):
    return msgspec.structs.replace(plan, **fields)


@every_task
@every_model
def test_a_search_and_what_it_found_are_plans_that_can_be_sent(name, task):
    plan = plan_for(name, task=TASKS[task])
    for each in (plan, located_by(plan)):
        assert EvaluationPlan.from_bytes(each.to_bytes()) == each
        assert EvaluationPlan.from_toml(each.to_toml()) == each
        assert EvaluationPlan.from_bytes(each.to_bytes()).digest == each.digest
        each.check_promise()
    found = located_by(plan)
    assert plan.whole is plan
    assert found.whole == plan
    assert found.whole.digest == plan.digest != found.digest
    assert (plan.is_search, found.is_search) == (True, False)
    assert plan.has_two_rounds
    assert found.has_two_rounds
    assert isinstance(plan.task, SearchTask)
    assert plan.task.of == found.task


def test_plans_of_one_round_are_whole_and_find_no_bins():
    plan = EvaluationPlan.for_histogram(TWO.coarse, COHORT)
    assert plan.whole is plan
    assert not plan.has_two_rounds
    assert plan.statement("enforced").shares == ()
    assert b"found" not in plan.to_bytes()
    assert b"shares" not in msgspec.json.encode(plan.statement("enforced"))
    released = Released(TWO.coarse, np.ones((1, 16)), 4)
    refused(PlanError, "only the first of two rounds", find_bins, plan, released)
    with pytest.raises(PlanError, match=r"both rounds: plan\.whole"):
        fg.evaluate({"a": ([0, 1], [1, 2])}, located_by(plan_for("exact")))


@every_model
def test_the_promise_of_either_is_that_of_both(name):
    plan = plan_for(name)
    found = located_by(plan, tuple([9] * 8 + [0] * 8))
    one, other = (each.statement("enforced") for each in (plan, found))
    assert one.epsilon == other.epsilon
    assert one.shares == other.shares == ((0.25, 0.75) if plan.is_noisy else ())
    if name == "noisy":
        assert sum(each.noise[0] for each in plan.rounds) <= 1.0
        assert [each.noise[0] for each in plan.rounds] == pytest.approx([0.25, 0.75])
        # Tables of both rounds are drawn from, and both may be off.
        alone = EvaluationPlan.for_histogram(TWO.coarse, COHORT, privacy=DistributedDP(1.0))
        assert one.delta > alone.statement("enforced").delta / 2


@pytest.mark.parametrize("which", [0, 1])
def test_rounds_that_cost_more_together_are_refused(which):
    plan = plan_for()
    for each in (plan, located_by(plan)):
        rounds = list(each.rounds)
        (noise,) = rounds[which].noise
        rounds[which] = changed(rounds[which], noise=(noise * 1.01,))
        dear = changed(each, rounds=tuple(rounds))
        assert dear.whole.digest != plan.digest  # so no site takes it for what it approved of
        refused(PlanError, "its noise costs more", dear.check_promise)


def test_what_is_sent_is_that_of_both_rounds():
    assert plan_for("exact").bytes_per_client == 8 * (16 + 2 * 8)
    assert located_by(plan_for("exact")).bytes_per_client == 8 * (16 + 2 * 8)
    reports = plan_for("reports")
    assert reports.bytes_per_client == max(
        sent.bytes_sent(terms)
        for sent, terms in zip(reports.rounds, reports.terms_by_round, strict=True)
    )
    assert (reports.chance_to_report, located_by(reports).chance_to_report) == (0.25, 0.75)


def test_bins_counts_trees_and_rounds_that_do_not_follow_are_refused():
    found = located_by(plan_for())
    edges = found.axis.edges.tolist()
    for other in ([*edges[:3], *edges[4:]], [*edges[:-2], edges[-2] + 0.5, edges[-1]]):
        axis = Axis.from_edges(other, outside="clip")
        rounds = (found.rounds[0], changed(found.rounds[1], nodes=(axis.bins,)))
        with pytest.raises(PlanError, match="not those that follow from the counts"):
            changed(found, axis=axis, tree=(axis.bins,), rounds=rounds)
    counts = (500, *found.found.counts[1:])
    with pytest.raises(PlanError, match="not those that follow from the counts"):
        changed(found, found=changed(found.found, counts=counts))
    for other in ({"bins": 9}, {"share": 0.5}, {"narrowest": 0.25}, {"coarse": Axis.asinh(16)}):
        with pytest.raises(PlanError, match="found under another plan"):
            plan_for().located(Found(changed(TWO, **other), tuple(range(16)), 4))
    with pytest.raises(PlanError):
        changed(found, tree=(4, 2))
    first = changed(found.rounds[0], nodes=(8,))
    refused(PlanError, "one round of", changed, found, rounds=(first, found.rounds[1]))
    with pytest.raises(PlanError, match="a plan has one round, or two where it searches, got 1"):
        changed(found, rounds=found.rounds[1:])
    refused(PlanError, "a plan has one round, or two", changed, found, found=None)
    with pytest.raises(PlanError, match="counts over the coarse axis"):
        changed(plan_for(), axis=Axis.uniform(16, -8.0, 9.0, outside="clip"))


@every_model
def test_a_second_round_of_another_kind_is_refused(name):
    other = "reports" if name != "reports" else "noisy"
    plan, strange = plan_for(name), plan_for(other)
    with pytest.raises(PlanError):
        changed(plan, rounds=(plan.rounds[0], strange.rounds[1]))
    with pytest.raises(PlanError):
        changed(plan, rounds=(strange.rounds[0], plan.rounds[1]))


def test_what_no_first_round_gave_is_refused():
    for found, told in (
        (Found(TWO, (1,) * 15, 4), "do not fit its axis"),
        (Found(TWO, (), 4), "do not fit its axis"),
        (Found(TWO, (1, 2), 4, starts=(0, 16)), "do not fit its axis"),
        (Found(TWO, (1, 2), 4, starts=(1, 5)), "do not fit its axis"),
        (Found(TWO, (1, 2, 3), 4, starts=(0, 5, 5)), "do not fit its axis"),
        (Found(TWO, (1,) * 16, 0), "of nobody, or too large"),
        (Found(TWO, (2**70,) * 16, 4), "of nobody, or too large"),
    ):
        refused(PlanError, told, plan_for().located, found)


def noisy_with(noise):
    privacy = DistributedDP(1.0, delta=1e-6, noise=noise)
    return EvaluationPlan.under(privacy, TWO, cohort=COHORT)


def test_what_has_one_round_says_so():
    for make, told in (
        (lambda: plan_for().with_calibrator(MAPPED), "a map gives probabilities"),
        (lambda: plan_for(tree=(4, 2)), "two rounds have no tree"),
        (lambda: plan_for(score_sums=True), "neither weights nor score sums"),
        (lambda: EvaluationPlan.for_histogram(TWO, COHORT, weights=[1.0, 2.0]), "neither weights"),
        (lambda: plan_for(task=LabelTask()), "scores and labels in one place"),
        (lambda: plan_for(task=PAIRS), "one score at a time. Leave out pairs"),
        (lambda: plan_for("exact", task=PAIRS), "one score at a time. Leave out pairs"),
        (lambda: plan_for(task=TABLES), "one score at a time. Leave out pairs"),
        (lambda: noisy_with("skellam"), "Use noise='polya'"),
        (lambda: noisy_with("discrete-gaussian"), "Use noise='polya'"),
        (lambda: plan_for(two=REFUSING), 'outside="clip"'),
        (lambda: plan_for(min_cell=10), "min_cell is for exact sums"),
        (lambda: EvaluationPlan.under(LocalDP(1.0, unit="label"), TWO), "one round"),
    ):
        refused(PlanError, told, make)


def written(plan, **changes):
    plain = json.loads(plan.to_bytes())
    for path, value in changes.items():
        *parents, name = path.split("__")
        holder = plain
        for parent in parents:
            holder = holder[parent]
        holder[name] = value
    return msgspec.json.encode(plain)


DEAR = {
    "coarse bins": written(plan_for(), task__two__coarse__bins=MOST_COARSE + 1),
    "coarse bins of a million": written(plan_for(), task__two__coarse__bins=2**24),
    "coarse points": written(plan_for(), task__two__coarse__points=[0.0] * (2**18 + 2)),
    "bins": written(plan_for(), task__two__bins=MOST_FOUND + 1),
    "bins of ten thousand digits": written(plan_for(), task__two__bins=10**4000),
    "counts": written(located_by(plan_for()), found__counts=[0] * (MOST_COARSE + 1)),
    "starts": written(located_by(plan_for()), found__starts=[0] * (MOST_COARSE + 1)),
    "found coarse bins": written(located_by(plan_for()), found__two__coarse__bins=2**24),
    "found bins": written(located_by(plan_for()), found__two__bins=2**24),
    "classes": written(plan_for(), task__of={"kind": "multiclass", "labels": [0] * 1001}),
    "groups": written(
        plan_for(), task__of={"groups": {str(i): ["x"] for i in range(30)}, "crossed": True}
    ),
}


@pytest.mark.parametrize("name", DEAR)
def test_sizes_are_judged_before_anything_large_is_built(name, monkeypatch):
    build = Axis.from_spec

    def refuse(spec):
        assert spec.bins <= MOST_COARSE + 1, "a large axis was built"
        return build(spec)

    monkeypatch.setattr(Axis, "from_spec", refuse)
    with pytest.raises(PlanError) as refused:
        EvaluationPlan.from_bytes(DEAR[name])
    assert len(str(refused.value)) < 400


def test_what_is_no_plan_of_two_rounds_is_refused():
    for data in (
        written(plan_for(), task__of={"kind": "search", "of": {}, "two": {}}),
        plan_for().to_bytes().replace(NESTED, NESTED * 50_000, 1),
        written(plan_for(), task__of=None),
        written(plan_for(), task__two=None),
        written(located_by(plan_for()), found__counts=[10**400] * 16),
        written(located_by(plan_for()), found__counts=[0.5] * 16),
        written(located_by(plan_for()), found__clients=-1),
        written(located_by(plan_for()), found__more=1),
        written(located_by(plan_for()), found={}),
        written(plan_for(), found=json.loads(located_by(plan_for()).to_bytes())["found"]),
    ):
        with pytest.raises(PlanError):
            EvaluationPlan.from_bytes(data)


@every_task
@every_model
def test_an_officer_is_told_of_both_rounds(name, task):
    plan = plan_for(name, task=TASKS[task])
    for each in (plan, located_by(plan)):
        text = explain(each)
        for title in ("Two rounds", "What leaves each site first", "What leaves each site then"):
            assert f"{title}" in text
        assert "16 ranges" in text
        assert f"{each.tree[0] if each.found else 8} ranges" in text
        assert "narrower than 1/16 of a range of the first" in text
        assert ("25% of" in text) == plan.is_noisy
        assert brief(each).split("\n\n")[1].startswith("Two rounds\n")
        if task != "plain":
            assert "What is told apart" in text


def test_plans_print_both_rounds_and_how_wide_ranges_are():
    narrow = plan_for("exact", changed(TWO, narrowest=0.125))
    assert "and none but the outer two than 0.125" in explain(narrow)
    probabilities = plan_for("exact", TwoRound(8, coarse=Axis.uniform(16, outside="clip")))
    assert "half equally wide" in explain(probabilities)
    assert "equally many examples in each" not in explain(probabilities)
    assert "half even" in probabilities._repr_html_()
    assert "equally many examples in each" in explain(plan_for("exact"))
    plan = plan_for()
    shown, found = plan._repr_html_(), located_by(plan)._repr_html_()
    assert "at most 8 bins of equal depth" in shown
    assert f"{located_by(plan).axis.bins} bins of equal depth" in found
    assert "Axis.uniform(16, -8.0, 8.0" in shown
    assert "Found(16 counts of 4, " in repr(located_by(plan))


@pytest.fixture(scope="module", params=["noisy", "exact", "reports"])
def result(request):
    return fg.evaluate(MARGINS, plan_for(request.param), seed=1)


def test_a_saved_result_and_its_report_say_how_its_bins_were_found(result, tmp_path):
    result.to_json(tmp_path / "result.json")
    again = fg.Evaluation.from_json(tmp_path / "result.json")
    assert again.axis == result.axis == result.plan.found.axis
    assert again.plan == result.plan
    assert again.privacy == result.privacy
    assert again.plan.whole.located(again.plan.found).axis == again.axis
    text = str(result)
    assert f"{result.axis.bins} bins found in a first round" in text
    assert "given edges" not in text
    of = {"distributed-dp": "epsilon", "local-dp": "the reports"}.get(result.privacy.model)
    assert ("in two rounds" in text) == (of is not None)
    assert of is None or f"25% and 75% of {of} in two rounds" in text
    result.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "found in a first round over 16 bins, uniform" in page
    assert "What leaves each site first" in page
    assert ("25% and 75% of" in page) == result.plan.is_noisy


EDITS = {
    "counts": lambda plan, _: plan["found"]["counts"].__setitem__(3, 100_000),
    "edges": lambda plan, _: (
        plan["axis"]["points"].__setitem__(2, plan["axis"]["points"][2] + 0.25),
        plan["axis"].update(digest=""),
    ),
    "coarse": lambda plan, _: plan["found"]["two"]["coarse"].update(high=9.0, digest=""),
    "bins": lambda plan, _: plan["found"]["two"].update(bins=5),
    "left out": lambda plan, _: plan.pop("found"),
    "shares": lambda _, privacy: privacy.update(shares=[0.5, 0.5]),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_result_whose_first_round_or_bins_were_edited_is_refused(result, tmp_path, name):
    path = tmp_path / "result.json"
    result.to_json(path)
    record = json.loads(path.read_text())
    EDITS[name](record["plan"], record["privacy"])
    path.write_text(json.dumps(record))
    with pytest.raises(fg.RecordError):
        fg.Evaluation.from_json(path)


def test_scores_that_are_no_probabilities_have_two_rounds():
    exact = fg.evaluate(MARGINS, scores="margins")
    assert exact.plan.found.two == TwoRound(1024, coarse=Axis.asinh(4096))
    assert exact.privacy.public_inputs == ("scores margins",)
    noisy = fg.evaluate(MARGINS, privacy=DistributedDP(1.0), scores="unknown", seed=1)
    assert noisy.plan.found.two == TwoRound(64)
    known = {"privacy": DistributedDP(1.0), "examples": 8000, "seed": 1}
    planned = fg.evaluate(MARGINS, scores="margins", **known)
    assert planned.privacy.public_inputs == ("examples 8000", "scores margins")
    assert planned.plan.found.two.coarse == Axis.asinh(512, scale=1.0)


def test_an_axis_goes_before_the_hint_and_probabilities_change_no_plan():
    for privacy in (fg.SecureAggregation(), DistributedDP(1.0)):
        one, other = (
            fg.evaluate(CLIENTS, privacy=privacy, scores=scores, seed=1)
            for scores in (None, "probabilities")
        )
        assert one.plan == other.plan
    axis = Axis.uniform(32, -8.0, 8.0)
    assert fg.evaluate(MARGINS, scores="margins", axis=axis).axis == axis
    with pytest.raises(PlanError, match="the plan already has hints"):
        fg.evaluate(MARGINS, plan_for("exact"), scores="margins")
    refused(fg.InputError, "Where their scale is not known, axis='two-round'", fg.evaluate, MARGINS)


def test_results_of_two_searches_compare_and_two_models_are_not_paired():
    clients = {
        name: fg.Examples(y, {"new": s, "old": s[::-1].copy()}) for name, (y, s) in MARGINS.items()
    }
    result = fg.evaluate(clients, models=["new", "old"], axis="two-round")
    assert result.plan.task.pairs == ()
    assert result.select(model="new").axis == result.select(model="old").axis
    plan = plan_for(two=TwoRound(16, coarse=Axis.asinh(128)))
    one, other = (fg.evaluate(MARGINS, plan, seed=seed) for seed in (1, 2))
    assert one.axis != other.axis
    difference = fg.diff(one, other)
    assert "the axes differ, so each result has its own binning error" in str(difference)


@pytest.mark.parametrize("task", ["plain", "groups", "labels"])
@pytest.mark.parametrize("seed", range(4))
def test_both_rounds_together_show_no_small_cell(seed, task):
    """A reader lays the edges of both rounds over each other: rows in between are none or many."""
    rng = np.random.default_rng(seed)
    rows, columns = 3000, 2 if task == "labels" else 1
    y = rng.random((rows, columns)) < 0.4
    scores = rng.normal(y * 1.0, 1.0)
    group = {name: rng.choice(["women", "old", "none"], rows) for name in ("sex", "age")}
    one = columns == 1
    data = fg.Examples(
        y[:, 0] if one else y,
        scores[:, 0] if one else scores,
        group=group if task == "groups" else None,
    )
    plan = EvaluationPlan.for_histogram(
        TwoRound(16, coarse=Axis.asinh(256)), Cohort(1, 0), task=TASKS[task], min_cell=10
    )
    result = fg.evaluate({"a": data}, plan)
    found, released = result.plan.found, result.released
    totals = released.counts.sum(axis=0) // (2 if task == "groups" else 1)
    below = dict(zip(found.edges, np.append(0, np.cumsum(found.counts)), strict=True))
    below |= dict(zip(released.axis.edges, np.append(0, np.cumsum(totals)), strict=True))
    between = np.diff([count for _, count in sorted(below.items())])
    assert between.sum() == rows * columns
    assert released.axis.bins > 4
    assert not np.any((between > 0) & (between < 10))


COARSE = {
    "asinh": Axis.asinh(64),
    "uniform": Axis.uniform(64, outside="clip"),
    "logit": Axis.logit(64, limit=32.0, outside="clip"),
    "uneven": Axis.from_edges([-5.0, -4.0, 0.0, 0.5, 100.0], outside="clip"),
}


def counted(counts, starts=None):
    return CoarseGroups(range(len(counts)) if starts is None else starts, list(map(int, counts)))


def on_eight(counts, bins=8, **options):
    two = TwoRound(bins, coarse=Axis.uniform(8, 0.0, 8.0, outside="clip"), **options)
    return two.axis(counted(counts)).edges.tolist()


@st.composite
def searches(draw):
    """Any two rounds, and counts that a first one could release: noisy, merged, or made up."""
    coarse = COARSE[draw(st.sampled_from(sorted(COARSE)))]
    bins = draw(st.integers(3, 100))
    least = -(-coarse.bins // (bins // 2 or 1))
    widest = draw(st.sampled_from([0, coarse.bins, max(least, 1)]))
    if widest < least:
        widest = 0
    narrowest = draw(st.sampled_from([0.0, 0.0, 1e-3, 0.3]))
    two = TwoRound(bins, coarse=coarse, narrowest=narrowest, widest=widest)
    starts = sorted({0, *draw(st.sets(st.integers(0, coarse.bins - 1)))})
    if draw(st.booleans()):
        starts = list(range(coarse.bins))
    number = st.one_of(st.integers(-50, 50), st.integers(-(2**62), 2**62), st.just(0))
    counts = draw(st.lists(number, min_size=len(starts), max_size=len(starts)))
    return two, CoarseGroups(starts, counts)


@settings(deadline=None, max_examples=300)
@given(searches())
def test_whatever_is_counted_the_bins_are_ones_that_members_accept(search):
    two, found = search
    axis = two.axis(found)
    two.check(axis)
    assert axis.bins <= two.bins
    assert axis == two.axis(CoarseGroups(tuple(found.starts), tuple(found.counts)))


def test_bins_of_many_scores_are_of_equal_depth_whatever_noise_adds_to_empty_ones():
    scores = np.random.default_rng(0).normal(3.0, 2.0, 100_000)
    two = TwoRound(48)
    coarse = np.histogram(scores, two.coarse.edges)[0]
    depth = np.histogram(scores, two.axis(counted(coarse)).edges)[0] * 48 / len(scores)
    assert depth.max() < 1.5
    # Few lie between the least positive scores and the least negative ones.
    assert np.sum(depth > 0.5) >= 46
    # Cut off at zero, these counts would have two thirds of all in empty bins.
    two = TwoRound(10, coarse=Axis.uniform(100, 0.0, 100.0, outside="clip"), widest=100)
    full = np.where(np.arange(100) < 4, 50, 0)
    edges = two.axis(counted(full + 8 * (-1) ** np.arange(100))).edges
    assert np.sum(edges[:-1] < 4.0) == 9
    for counts in ([0] * 8, [-5] * 8, [3, -3, 2, -9, 1, 0, 0, 0]):
        assert on_eight(counts) == [float(edge) for edge in range(9)]


def test_no_bin_is_wider_and_no_inner_one_narrower_than_allowed():
    for place in (0, 7):  # all scores at an end: divided as far as it goes
        edges = on_eight([80 * (bin_ == place) for bin_ in range(8)], bins=32)
        inside = [edge for edge in edges if place <= edge <= place + 1]
        assert inside == [place + part / PARTS for part in range(PARTS + 1)]
    two = TwoRound(16, coarse=Axis.uniform(64, outside="clip"), widest=9)
    axis = two.axis(counted([100] + [0] * 63))
    assert np.diff(axis.edges).max() <= 9 / 64
    assert axis.bins <= 16
    assert TwoRound(16, coarse=Axis.uniform(64, outside="clip")).most_wide == 32
    assert TwoRound(3, coarse=Axis.uniform(64, outside="clip")).most_wide == 64
    edges = on_eight([0, 0, 0, 80, 0, 0, 0, 0], bins=32, narrowest=0.25)
    assert min(b - a for a, b in pairwise(edges[1:-1])) == 0.25
    # Of this coarse axis half lies between -0.3 and 0.3.
    two = TwoRound(12, coarse=Axis.asinh(64), narrowest=0.3, widest=11)
    axis = two.axis(counted([10] * 64))
    two.check(axis)
    assert np.diff(axis.edges).min() >= 0.3
    with pytest.raises(AxisError, match="wider than 11 coarse bins"):
        two.check(Axis.from_edges([axis.low, axis.edges[-2], axis.high], outside="clip"))
    two = TwoRound(8, coarse=Axis.logit(512, limit=32.0, outside="clip"))
    for last in range(1, 20):
        axis = two.axis(counted([0] * (512 - last) + [100] * last))
        two.check(axis)
        assert axis.bins <= 8


def test_bins_hold_the_same_and_of_probabilities_both_classes_weigh_the_same():
    # A tenth of the scores are 0.9 and hold half of the positives, were they calibrated.
    counts = [0, 900, 0, 0, 0, 0, 0, 0, 0, 100]
    edges, plain = (
        TwoRound(32, coarse=Axis.uniform(10, 0.0, high, outside="clip")).axis(counted(counts)).edges
        / high
        for high in (1.0, 10.0)
    )
    assert np.sum(plain > 0.9) == 4
    # Half of 32 evenly, and half by depth: a tenth of the one, a quarter of the other.
    assert np.sum(edges > 0.9) == 5
    assert np.sum((edges > 0.2) & (edges < 0.9)) == 11
    # Of other scores each bin holds the same, and a crowded one has edges at both ends.
    assert on_eight([10] * 8, bins=4) == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert on_eight([0, 40, 0, 0, 40, 0, 0, 0], bins=4, widest=8) == [0.0, 1.5, 4.0, 4.5, 8.0]
    # Merged bins are divided like others.
    two = TwoRound(4, coarse=Axis.uniform(8, 0.0, 8.0, outside="clip"))
    assert two.axis(counted([40, 40], starts=[0, 4])).edges.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0]
    assert {3.0, 4.0} <= {*on_eight([11, 11, 11, 60, 11, 11, 11, 11], bins=16)}
    # Quantiles alone are at neither.
    assert not {3.0, 4.0} & {*on_eight([11, 11, 11, 30, 11, 11, 11, 11], bins=9)}


def test_bins_that_no_first_round_gives_are_refused():
    for edges, words in (
        ([0.0, 2.01, 4.0, 6.0, 8.0], "neither one of the coarse axis"),
        ([0.0, 2.0 + 1 / 32, 4.0, 6.0, 8.0], "neither one of the coarse axis"),
        ([0.0, np.nextafter(2.0, 3.0), 4.0, 6.0, 8.0], "neither one of the coarse axis"),
        ([0.0, 1.0, 2.0, 3.0, 5.0, 8.0], "at most 4 bins"),
        ([0.0, 2.0, 2.25, 6.0, 8.0], "narrower than 0.5"),
        ([0.0, 2.0, 7.0, 8.0], "wider than 4 coarse bins"),
        ([1.0, 2.0, 5.0, 8.0], "reach as far"),
        ([0.0, 2.0, 5.0, 7.0], "reach as far"),
        ([0.0, 2.0, 5.0, 9.0], "reach as far"),
    ):
        refused(AxisError, words, EVEN.check, Axis.from_edges(edges, outside="clip"))
    edges = [0.0, 2.0, 4.0, 6.0, 8.0]
    EVEN.check(Axis.from_edges(edges, outside="clip"))
    refused(AxisError, "clip as the coarse ones do", EVEN.check, Axis.from_edges(edges))
    refused(AxisError, "are listed", EVEN.check, Axis.uniform(4, 0.0, 8.0, outside="clip"))


def test_two_rounds_that_make_no_sense_are_refused():
    for options, words in (
        *[({"bins": 1}, "3 to"), ({"bins": 2**18 + 1}, "3 to"), ({"bins": True}, "whole number")],
        *[({"bins": 8.0}, "whole number"), ({"coarse": "asinh"}, "must be an Axis")],
        ({"coarse": Axis.from_values([0.0, 1.0])}, "known values"),
        ({"coarse": Axis.uniform(1)}, "a coarse axis has"),
        ({"coarse": Axis.uniform(2**16 + 1)}, "a coarse axis has"),
        ({"share": 0.0}, "between 0.01 and 0.9"),
        ({"share": 0.95}, "between 0.01 and 0.9"),
        ({"share": float("nan")}, "between 0.01 and 0.9"),
        ({"narrowest": -1.0}, "0 or above"),
        ({"narrowest": True}, "0 or above"),
        ({"narrowest": float("inf")}, "0 or above"),
        ({"widest": 127}, "between 128 and 512"),
        ({"widest": 513}, "between 128 and 512"),
    ):
        refused(AxisError, words, TwoRound, **{"bins": 8, **options})


class TestCrowds:
    TWO = TwoRound(5, coarse=Axis.uniform(8, 0.0, 8.0, outside="clip"))
    AXIS = Axis.from_edges([0.0, 2.0, 3.0, 3.25, 4.0, 8.0], outside="clip")

    def test_which_bin_is_a_crowd(self):
        for counts, crowd in (
            ((20, 10, 40, 5, 20), [2]),  # a dense narrow bin is one value
            ((20, 41, 40, 5, 20), []),  # where a neighbour is dense too, scores are smooth
            ((20, 5, 40, 31, 20), []),
            ((20, 2, 15, 2, 40), []),  # a shallow bin is drawn like any
            ((90, 0, 1, 0, 0), []),  # so is a wide one
            ((0, 0, 0, 0, 0), []),
        ):
            found = self.TWO.crowds(self.AXIS, np.array(counts, dtype=float))
            assert np.flatnonzero(found).tolist() == crowd

    def test_a_value_that_many_share_is_drawn_as_a_tie(self):
        rng = np.random.default_rng(0)
        labels = rng.random(5000) < 0.3
        scores = np.where(rng.random(5000) < 0.4, 0.0, rng.normal(2.0 * labels))
        truth = fg.exact_roc_curve(labels, scores)
        found = fg.evaluate({"all": (labels, scores)}, axis=TwoRound(48))
        assert fg.area_error(found.roc_curve(), truth) < 1e-3
        # Bins alone do not tell whoever gets them without the plan of two rounds.
        given_bins = fg.evaluate({"all": (labels, scores)}, axis=found.axis)
        assert fg.area_error(given_bins.roc_curve(), truth) > 5e-3

    def test_a_crowd_is_one_whatever_maps_its_scores(self):
        rng = np.random.default_rng(0)
        labels = rng.random(5000) < 0.3
        scores = 1.0 / (1.0 + np.exp(-rng.normal(2.0 * labels)))
        rows = {"all": (labels, np.where(rng.random(5000) < 0.4, 0.25, scores))}
        truth = fg.exact_roc_curve(*rows["all"])
        two = TwoRound(48, coarse=Axis.logit(512, limit=32.0, outside="clip"))
        found = fg.evaluate(rows, axis=two)
        mapped = found.with_calibrator(found.calibrator("platt"))
        for result in (found, mapped):
            assert fg.area_error(result.roc_curve(), truth) < 1e-3
        # Merged with its neighbours, nobody can tell it from smooth scores.
        plan = fg.EvaluationPlan.under(fg.SecureAggregation(), two, cohort=fg.Cohort(1))
        merged = fg.evaluate(rows, structs.replace(plan, min_cell=5))
        assert merged.axis.bins < found.axis.bins
        assert 1e-3 < fg.area_error(merged.roc_curve(), truth) < 8e-2
