"""Tables: counted, summed, hidden where small, saved; and models that are compared by them."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused

import fedgauge as fg
from fedgauge.engines.contribution import count_leniently, draw_noise, release, to_numbers
from fedgauge.engines.simulation import simulate
from fedgauge.estimation.suppression import is_large, kept_edges
from fedgauge.histograms.tables import (
    MOST_TABLES,
    JointScores,
    MergedEdges,
    TableSum,
    _finest,
    are_all,
)
from fedgauge.plan.task import BinaryTask, MulticlassTask
from fedgauge.privacy.keystream import SimulatedKeystream

RNG = np.random.default_rng(2)
N = 4000
Y = RNG.random(N) < 0.4
NEW = np.clip(RNG.normal(0.4 + 0.2 * Y, 0.15), 0, 1)
OLD = np.clip(NEW + RNG.normal(0, 0.07, N), 0, 1)
TOGETHER = {"models": ("new", "old"), "pairs": [("new", "old")]}
PAIR = BinaryTask(**TOGETHER)
EXAMPLES = fg.Examples(Y, {"new": NEW, "old": OLD})
SITES = {f"site-{k}": fg.Examples(Y[k::3], {"new": NEW[k::3], "old": OLD[k::3]}) for k in range(3)}
NOISY = fg.DistributedDP(1.0)
CLASSES = MulticlassTask(labels=["a", "b"], models=("new", "old"))
TABLED = MulticlassTask(labels=["a", "b"], also=["confusion", "ranks"])
FOURS = (0, 4), (0, 4)
SEX = np.where(np.arange(N) % 3, "w", np.where(np.arange(N) % 2, "m", "not said"))
GROUPED = fg.Examples(Y, {"new": NEW, "old": OLD}, group=SEX)
BY_SEX = {"sex": ["w", "m"]}


def plan_for(task=PAIR, bins=16, privacy=None, **options):
    axis = fg.Axis.uniform(bins, outside="clip")
    return fg.EvaluationPlan.for_histogram(
        axis, fg.Cohort(3), task=task, privacy=privacy, **options
    )


def counted(plan, rows=EXAMPLES):
    histogram = plan.histogram()
    histogram.update_batches([rows])
    return histogram


@pytest.mark.parametrize("bins", [16, 256])
def test_a_joint_histogram_counts_both_scores_of_each_row(bins):
    plan = plan_for(bins=bins)
    (table,) = plan.tables
    first, second = (
        [plan.axis.edges[k] for k in starts] if starts else plan.axis.edges[:-1].tolist()
        for starts in table.starts
    )
    expected = np.stack(
        [
            np.histogram2d(NEW[c == Y], OLD[c == Y], [[*first, 1.0], [*second, 1.0]])[0]
            for c in (0, 1)
        ]
    )
    (values,) = counted(plan).tables
    assert np.array_equal(values, expected.ravel())


def test_every_row_has_a_place():
    """Under noise between sites: each row adds to one cell, which that row alone decides."""
    plan = plan_for(privacy=fg.DistributedDP(1.0))
    odd = fg.Examples(
        np.array([1, 0, 7, None], dtype=object),
        {"new": np.array([0.5, np.nan, 0.2, 9.0]), "old": np.array([np.inf, 0.5, 0.1, -np.inf])},
    )
    histogram, oddities = count_leniently(plan, lambda: odd)
    assert oddities.rows == 4
    assert [values.sum() for values in histogram.tables] == [4]


def test_tables_add_and_do_not_mix_and_plans_without_have_no_such_field():
    plan = plan_for()
    parts = [counted(plan, rows) for rows in SITES.values()]
    assert sum(parts) == counted(plan)
    with pytest.raises(fg.AxisMismatch, match="different tables"):
        counted(plan) + counted(plan_for(BinaryTask(models=("new", "old"))))
    plan = fg.EvaluationPlan.for_histogram(fg.Axis.uniform(64), fg.Cohort(3))
    assert b"tables" not in plan.to_bytes()
    assert b"pairs" not in plan.to_bytes()


@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize("bins", [16, 64])
def test_plans_with_tables_are_read_back(bins, noisy):
    plan = plan_for(PAIR, bins, fg.DistributedDP(1.0) if noisy else None)
    assert fg.EvaluationPlan.from_bytes(plan.to_bytes()) == plan
    assert fg.EvaluationPlan.from_toml(plan.to_toml()) == plan
    assert to_numbers(plan, counted(plan)).size == plan.numbers
    assert "at the same time" in dict(plan.in_words())["What leaves each site"]


def test_under_noise_the_joint_histogram_is_all_that_is_sent():
    plan = plan_for(privacy=fg.DistributedDP(1.0))
    assert plan.final.nodes == ()
    assert plan.numbers == 2 * 16 * 16
    assert plan.tables[0].noise == 1.0
    assert plan.noise_variances(3) == (16 * plan.table_variances(3)[0],)
    # On finer bins it holds not all: the budget is shared.
    other = plan_for(PAIR, 64, fg.DistributedDP(1.0))
    assert other.final.nodes
    assert other.tables[0].noise == pytest.approx(1 / 3)
    exact = plan_for()
    assert exact.final.nodes == (16,)


@pytest.mark.parametrize("crossed", [False, True])
def test_so_it_is_by_group(crossed):
    """By each way of grouping one, of which all counts are sums."""
    both = {"sex": ["w"], "age": ["young"]}
    task = BinaryTask(**TOGETHER, groups=both, crossed=crossed)
    plan = plan_for(task, privacy=fg.DistributedDP(1.0))
    ways = 1 if crossed else 2
    assert plan.final.nodes == ()
    assert [table.noise for table in plan.tables] == [1 / ways] * ways
    rng = np.random.default_rng(4)
    scores = dict(zip(("new", "old"), rng.random((2, 50)), strict=True))
    groups = {name: rng.choice([values[0], "x"], 50) for name, values in both.items()}
    histogram = counted(plan, fg.Examples(rng.integers(0, 2, 50), scores, group=groups))
    tables = [TableSum(*each) for each in zip(plan.tables, histogram.tables, strict=True)]
    np.testing.assert_array_equal(plan.margins(tables), histogram.counts)
    # Of one way alone, they are not.
    joint = plan.tables[:1] if crossed else plan.tables[1:]
    assert are_all(joint, task.layout, plan.axis) == crossed


def changed(plan, *tables):
    (sent,) = plan.rounds
    return msgspec.structs.replace(plan, rounds=(msgspec.structs.replace(sent, tables=tables),))


def joint(*starts, models=("new", "old"), **options):
    return JointScores(models=models, **({"starts": starts} if starts else {}), **options)


def unequal_noise():
    plan = plan_for(TABLED, privacy=fg.DistributedDP(1.0))
    tables = enumerate(plan.tables, start=1)
    return changed(plan, *(msgspec.structs.replace(each, noise=0.1 * n) for n, each in tables))


def test_tables_that_are_none_are_refused():
    for make, told in (
        (lambda: BinaryTask(pairs=[("new", "old")]), "two of the models"),
        (lambda: BinaryTask(models=("a", "b"), pairs=["ab"]), "two of the models"),
        (lambda: BinaryTask(models=("a", "b"), pairs=[("a", "a")]), "two of the models"),
        (lambda: BinaryTask(models=("a", "b"), pairs=[("a", "b"), ("b", "a")]), "named twice"),
        (lambda: changed(plan_for(), joint(models=("new", "third"))), "two of the"),
        (lambda: changed(plan_for(), *plan_for().tables * 2), "same table twice"),
        (lambda: changed(plan_for(), *plan_for().tables * (MOST_TABLES + 1)), "at most 64"),
        # Both scores together in two ways: one less the other shows what lies between.
        (lambda: changed(plan_for(), joint(*FOURS), joint((0, 5), (0, 4))), "one way"),
        (lambda: changed(plan_for(), joint(*FOURS), joint(*FOURS, models=("old", "new"))), "one w"),
        (lambda: changed(plan_for(), joint((1, 2), ())), "start at rising bins"),
        (lambda: changed(plan_for(bins=2048), joint()), "at most 1,048,576 cells"),
        (lambda: changed(plan_for(CLASSES), joint()), "two classes and one label"),
        (lambda: changed(plan_for(privacy=NOISY), joint()), "positive noise"),
        (lambda: changed(plan_for(), joint(noise=1.0)), "adds no noise"),
        (unequal_noise, "noise of one strength"),
        (lambda: plan_for(TABLED, min_cell=10), "small cells cannot be merged"),
        (lambda: plan_for(score_sums=True), "score sums are for one score"),
    ):
        refused(fg.PlanError, told, make)


@pytest.mark.parametrize("privacy", [None, fg.DistributedDP(2.0)], ids=["exact", "noisy"])
def test_the_protocol_sums_tables_as_a_plain_sum_does(privacy):
    plan = plan_for(privacy=privacy)
    plain = simulate(SITES, plan, seed=1, summation="every-share").released
    secure = simulate(SITES, plan, seed=1, summation="secure").released
    for one, other in zip(plain.tables, secure.tables, strict=True):
        assert one.table == other.table
        assert np.array_equal(one.values, other.values)


def test_exact_and_noisy_tables_of_other_rows():
    plan = plan_for()
    total = to_numbers(plan, counted(plan))
    release(plan, total, 3)
    for place, change in ((-1, 1), (-1, -(2**20)), (plan.task.rows_sent * 16, 1)):
        wrong = total.copy()
        wrong[place] += change
        refused(fg.ProtocolError, "a table", release, plan, wrong, 3)
    plan = plan_for(privacy=fg.DistributedDP(10.0))
    result = simulate(SITES, plan, seed=1)
    own = counted(plan_for())
    assert np.abs(result.released.counts - own.counts).max() <= 10
    assert result.select(model="old").pooled.positives == pytest.approx(Y.sum(), abs=5)
    plan = plan_for(privacy=fg.DistributedDP(1.0))
    result = simulate(SITES, plan, seed=1)
    assert result.caution is None
    total = result.released.tables[0].values.copy()
    total[0] -= 500
    total[1] += 500
    wrong = release(plan, total, 3)
    result = fg.Evaluation(plan, result.privacy, wrong, estimator=fg.Aligned())
    assert "impossible counts" in result.caution


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 2**31),
    st.integers(60, 3000),
    st.sampled_from([2, 10, 25]),
    st.sampled_from(["one", "each", "crossed"]),
)
def test_no_small_cell_of_a_group_is_shown_nor_follows(seed, rows, least, how):
    """Also from the joint histogram that the same plan without groups has of the same rows."""
    rng = np.random.default_rng(seed)
    y, new = rng.random(rows) < 0.5, rng.random(rows)
    scores = {"new": new, "old": np.clip(new + rng.normal(0, 0.1, rows), 0, 1)}
    groups = {"sex": rng.choice(["w", "m", "x"], rows, p=[0.7, 0.25, 0.05])}
    named = {"sex": ["w", "m"]}
    if how != "one":
        groups["age"], named["age"] = rng.choice(["young", "old"], rows), ["young"]
    task = BinaryTask(**TOGETHER, groups=named, crossed=how == "crossed")
    plan, plain = (plan_for(each, bins=128, min_cell=least) for each in (task, PAIR))
    numbers = [to_numbers(plan, counted(plan, fg.Examples(y, scores, group=groups)))]
    numbers.append(to_numbers(plain, counted(plain, fg.Examples(y, scores))))
    try:
        released, whole = release(plan, numbers[0], 3), release(plain, numbers[1], 3)
    except fg.ResultWithheld:
        assert min(y.sum(), (~y).sum()) < least
        return
    last = {each.grouping: name for name, each in task.groups_told.items()}
    (shown,) = whole.tables
    assert not np.any((shown.values > 0) & (shown.values < least))
    assert shown.values.sum() == rows
    cube = shown.values.reshape(2, *shown.table.ranges(whole.axis))
    for model, starts in enumerate(shown.table.starts):
        # Its ranges start at bins that are shown: none can be taken from another.
        sums = np.add.reduceat(whole.counts[2 * model : 2 * model + 2], starts, axis=1)
        assert np.array_equal(sums, cube.sum(axis=2 - model))
    for told in released.tables:
        assert is_large(told.values, least)
        assert told.values.sum() == rows
        cells = told.by_group(task.layout)
        for name in released.joined:
            group = task.groups_told[name]
            if group.grouping == told.table.grouping:
                assert name not in last.values()
                assert not cells[group.cell].any()
        for model, starts in enumerate(told.table.starts):
            # Every difference to the other table is made of its cells, none of which is small.
            ours = released.axis.edges[list(starts)]
            assert {*ours} <= {*whole.axis.edges[list(shown.table.starts[model])]}
            # By group, rows of cells are bins of the histogram: none can be taken from another.
            block = next(
                each
                for each in task.layout.blocks
                if (each.model, each.grouping) == (("new", "old")[model], told.table.grouping)
            )
            bins = released.counts[block.first : block.first + 2 * len(cells)]
            cube = told.values.reshape(-1, *told.table.ranges(released.axis))
            sums = np.add.reduceat(bins, starts, axis=1)
            assert np.array_equal(cube.sum(axis=2 - model), sums)


def test_ranges_merged_for_groups_alone_would_differ_from_those_without():
    """The control: cut by group only, ranges start where those of the ungrouped table do not."""
    rng = np.random.default_rng(8)
    rows = 400
    y, new = rng.random(rows) < 0.5, rng.random(rows)
    old, sex = np.clip(new + rng.normal(0, 0.1, rows), 0, 1), rng.choice(["w", "m"], rows)
    task = BinaryTask(**TOGETHER, groups={"sex": ["w"]})
    plan = plan_for(task, bins=64)
    histogram = counted(plan, fg.Examples(y, {"new": new, "old": old}, group=sex))
    ((table, values),) = zip(plan.tables, histogram.tables, strict=True)

    def starts(cells, by, kept):
        merged, _ = msgspec.structs.replace(table, grouping=by).merged(
            cells, plan.axis, kept, lambda counts: kept_edges(counts, 4)
        )
        return [set(kept.edges[list(each)]) for each in merged.starts]

    every = np.arange(65)
    both = starts(values.reshape(2, -1).sum(axis=0), (), MergedEdges(every, every))
    found = starts(values, ("sex",), MergedEdges(every, every))
    assert all(ours <= theirs for ours, theirs in zip(found, both, strict=True))
    (alone, _) = _finest(values.reshape(-1, 64, 64), lambda counts: kept_edges(counts, 4))
    assert not {*alone} <= both[0]


def test_merged_tables_still_tell_how_errors_go_together():
    hidden = simulate(SITES, plan_for(bins=64, min_cell=10)).compare("new", "old").roc_auc
    shown = simulate(SITES, plan_for(bins=64)).compare("new", "old").roc_auc
    alone = simulate(SITES, plan_for(BinaryTask(models=("new", "old")), 64)).compare("new", "old")
    assert shown.high - shown.low < hidden.high - hidden.low
    assert hidden.high - hidden.low < 0.8 * (alone.roc_auc.high - alone.roc_auc.low)


@pytest.mark.parametrize(
    "plan",
    [plan_for(), plan_for(privacy=fg.DistributedDP(2.0)), plan_for(min_cell=10)],
    ids=["exact", "noisy", "merged"],
)
def test_tables_are_saved_and_loaded_and_checked(tmp_path, plan):
    result = simulate(SITES, plan, seed=1)
    path = tmp_path / "r.json"
    result.to_json(path)
    again = fg.Evaluation.from_json(path)
    assert again.compare("new", "old").roc_auc == result.compare("new", "old").roc_auc
    saved = msgspec.json.decode(path.read_bytes())

    def spoiled(change):
        edited = msgspec.json.decode(msgspec.json.encode(saved))
        change(edited)
        path.write_bytes(msgspec.json.encode(edited))
        refused(fg.RecordError, "not a fedgauge result", fg.Evaluation.from_json, path)

    spoiled(lambda r: r.pop("tables"))
    spoiled(lambda r: r["tables"][0]["values"].pop())
    spoiled(lambda r: r["tables"].pop())
    spoiled(lambda r: r["tables"][0]["table"].update(models=["old", "new"]))
    spoiled(lambda r: r["tables"][0]["table"].update(starts=[[0, 900], []]))
    spoiled(lambda r: r["tables"][0]["values"].__setitem__(0, 3))
    if plan.min_cell:
        spoiled(lambda r: r["tables"][0]["table"].update(starts=[[0, 1], [0, 1]]))


@pytest.fixture(scope="module")
def result():
    return fg.evaluate(SITES, models=["new", "old"])


@pytest.mark.parametrize("edges", [[0, 1], [0, 0.02, 1], [0, 0.05, 1], [0, 0.5, 1]], ids=str)
def test_bins_that_leave_all_open_make_no_model_as_good_as_another(edges):
    """As small groups leave them: a much worse model is not said to be no worse. Seeded."""
    rng = np.random.default_rng(4)
    y = rng.random(9000) < 0.4
    new, old = (1 / (1 + np.exp(-rng.normal(lift * y, 1))) for lift in (0.3, 1.8))
    sites = {str(k): fg.Examples(y[k::3], {"new": new[k::3], "old": old[k::3]}) for k in range(3)}
    plan = fg.EvaluationPlan.for_histogram(fg.Axis.from_edges(edges), fg.Cohort(3), task=PAIR)
    compared = fg.evaluate(sites, plan).compare("new", "old", margin=0.06)
    assert compared.roc_auc.low < -0.317 < compared.roc_auc.high  # of the rows
    assert compared.brier_score.low < 0.074 < compared.brier_score.high
    assert "not inferior" not in compared.verdict


@pytest.mark.parametrize("groups", [BY_SEX, BY_SEX | {"age": ["young"]}], ids=["one", "two"])
def test_models_are_compared_within_groups_as_on_their_rows_alone(groups):
    task = BinaryTask(**TOGETHER, groups=groups)
    given = {"sex": SEX, "age": np.where(NEW > 0.5, "young", "old")}
    rows = fg.Examples(Y, {"new": NEW, "old": OLD}, group={name: given[name] for name in groups})
    whole = fg.evaluate({"a": rows}, task=task)
    called = "w" if len(groups) == 1 else "sex w"
    for part, held in ((whole, np.ones(N, bool)), (whole.select(group=called), SEX == "w")):
        alone = fg.Examples(Y[held], {"new": NEW[held], "old": OLD[held]})
        own = fg.evaluate({"a": alone}, task=PAIR)
        for first, second in (("new", "old"), ("old", "new")):
            ours, theirs = (each.compare(first, second) for each in (part, own))
            assert ours.is_paired
            for name in ("roc_auc", "average_precision", "brier_score"):
                assert getattr(ours, name) == getattr(theirs, name)
            assert ours.at_threshold(0.5).recall == theirs.at_threshold(0.5).recall


def test_a_group_that_is_counted_in_another_is_not_compared(tmp_path):
    few = np.where(np.arange(N) < 6, "m", "w")
    task = BinaryTask(**TOGETHER, groups=BY_SEX)
    plan = plan_for(task, min_cell=10)
    rows = fg.Examples(Y, {"new": NEW, "old": OLD}, group=few)
    result = simulate({str(k): rows for k in range(1, 4)}, plan)
    assert set(result.released.joined) == {"w", "m"}
    refused(fg.NoSignal, "min_cell", result.select(group="w").compare, "new", "old")
    other = result.select(group="other").compare("new", "old")
    assert other.roc_auc == result.compare("new", "old").roc_auc
    result.to_json(tmp_path / "r.json")
    plain = json.loads((tmp_path / "r.json").read_text())
    values = plain["tables"][0]["values"]
    values[:] = [3 * N] + [0] * (len(values) - 1)  # in a cell of women
    (tmp_path / "r.json").write_text(json.dumps(plain))
    refused(fg.RecordError, "its tables do not fit", fg.Evaluation.from_json, tmp_path / "r.json")


def test_what_may_and_what_cannot_be_compared(result):
    assert result.plan.task == PAIR
    assert fg.evaluate(SITES, models=["new"]).plan.task.pairs == ()
    by_group = fg.evaluate({"a": GROUPED}, groups=BY_SEX, models=["new", "old"])
    assert by_group.select(group="m").compare("new", "old").is_paired
    verdict = result.compare("new", "old").verdict
    assert verdict.startswith("new is better than old")
    assert result.compare("old", "new").verdict.startswith("old is worse than new")
    assert "not inferior" in result.compare("old", "new", margin=0.2).verdict
    assert result.compare("old", "new", margin=0.001).verdict.startswith("old is worse than new")
    auc = result.compare("old", "new").roc_auc
    assert "is undecided whether" in result.compare("old", "new", margin=-auc.value).verdict
    same = fg.Examples(Y, {"new": NEW, "old": RNG.permutation(NEW)})
    even = fg.evaluate(
        {"a": fg.Examples(RNG.permutation(Y), same.scores)}, models=["new", "old"]
    ).compare("new", "old")
    assert even.verdict.startswith("it is undecided whether")
    assert str(result.compare("new", "old")).splitlines()[-1].startswith("intervals")
    refused(fg.InputError, "Name two", result.compare, "new", "new")
    refused(fg.InputError, "no slice", result.compare, "new", "third")
    refused(fg.InputError, "margin", result.compare, "new", "old", margin=1.5)
    platt = result.select(model="new").calibrator("platt")
    refused(fg.InputError, "already mapped", result.with_calibrator(platt).compare, "new", "old")


def test_under_noise_a_group_has_the_noise_of_its_cells_and_all_rows_that_of_all():
    task = BinaryTask(**TOGETHER, groups=BY_SEX)
    plan = plan_for(task, privacy=fg.DistributedDP(8.0))
    result = simulate({f"{k}": GROUPED for k in range(3)}, plan, seed=3)
    (variance,) = plan.table_variances(3)
    of_all, of_group = (each.compare("new", "old") for each in (result, result.select(group="w")))
    assert of_group.pair.joint.variance == variance
    assert of_all.pair.joint.variance == 3 * variance
    np.testing.assert_array_equal(
        sum(
            result.select(group=g).compare("new", "old").pair.joint.counts
            for g in ("w", "m", "other")
        ),
        of_all.pair.joint.counts,
    )
    by_row = of_all.pair.joint.counts.sum(axis=2)
    np.testing.assert_allclose(by_row, result.select(model="new").pooled.unbiased)


def test_under_noise_a_difference_is_off_as_far_as_its_deviations_say():
    """Of 40 datasets drawn anew, with their noise: within two fifths. False alarm below 1e-3.

    The deviation of a deviation is 11% then.
    """
    rng = np.random.default_rng(11)
    axis = fg.planner.reference_axis(8, 0.4)
    model = fg.DistributedDP(0.5)
    plan = fg.EvaluationPlan.for_histogram(axis, fg.Cohort(3), task=PAIR, privacy=model)
    (held,) = counted(plan).tables
    differences = []
    for seed in range(40):
        drawn = rng.multinomial(N, held / N) + draw_noise(plan, SimulatedKeystream(seed), shares=3)
        result = fg.Evaluation(
            plan, plan.statement("simulated"), release(plan, drawn, 3), estimator=fg.Aligned()
        )
        differences.append(result.compare("new", "old"))
    for name in ("roc_auc", "brier_score"):
        every = [getattr(each, name) for each in differences]
        said = np.mean([np.hypot(each.parts["sampling"], each.parts["noise"]) for each in every])
        assert said == pytest.approx(np.std([each.unshrunk.value for each in every]), rel=0.4)


@pytest.mark.parametrize(
    ("hints", "bins"),
    [({}, 12), ({"examples": 50_000, "positive_rate": 0.1}, 8), ({"examples": 10**6}, 16)],
)
def test_under_noise_ranges_follow_from_what_is_public(hints, bins):
    privacy = fg.DistributedDP(1.0)
    result = fg.evaluate(SITES, models=["new", "old"], privacy=privacy, seed=2, **hints)
    assert result.plan.axis.bins == bins
    assert result.plan.final.nodes == ()
    if not hints:
        assert {0.01, 0.05, 0.5, 0.95} < {*result.plan.axis.edges.tolist()}
