"""Plans that are small to send and dear to judge are refused before anything is built."""

import json

import msgspec
import numpy as np
import pytest
from plans import plan_for

from fedgauge import Axis, Cohort, DistributedDP, EvaluationPlan, PlanError, RecordError
from fedgauge.binning.axis import MOST_BINS, MOST_POINTS
from fedgauge.binning.forms import MOST_KNOTS
from fedgauge.errors import AxisError
from fedgauge.plan import sizes
from fedgauge.plan.summed import HistogramRound
from fedgauge.plan.task import BinaryTask, LabelTask, MulticlassTask, MultilabelTask
from fedgauge.privacy import accounting, laws
from fedgauge.privacy.cohort import MOST_CLIENTS
from fedgauge.results.record import FORMAT, Record

PLAN = plan_for(bins=64)


def plain(**changes):
    """A plan as plain data, with some of its parts replaced."""
    found = json.loads(PLAN.to_bytes())
    for path, value in changes.items():
        *parents, name = path.split("__")
        holder = found
        for parent in parents:
            holder = holder[parent]
        holder[name] = value
    return found


TOO_LARGE = {
    "bins": (plain(axis__bins=2**24), "16,777,216 bins"),
    "points": (plain(axis__points=[0.0] * (MOST_POINTS + 2)), "262,145 points"),
    "levels": (plain(tree=[2] * 25), "at most 24 levels"),
    "one branch": (plain(tree=[64, 1]), "level of one branch"),
    "nodes": (plain(rounds=[{"kind": "histogram", "nodes": [1] * 25}]), "24 levels each"),
    "knots": (
        plain(calibrator={"form": {"kind": "steps", "edges": [0.5] * (MOST_KNOTS + 1)}}),
        "more than 65,536 knots",
    ),
    "models": (plain(task={"models": ["m"] * 1001}), "at most 1,000 times"),
    "classes of models": (
        plain(task={"kind": "multiclass", "labels": [0] * 40, "models": ["m"] * 26}),
        "at most 1,000 times",
    ),
    "groupings": (plain(task={"groups": {str(i): [] for i in range(1001)}}), "1,000 times"),
    "crossed groupings": (
        plain(task={"groups": {str(i): ["x"] for i in range(1001)}, "crossed": True}),
        "1,000 times",
    ),
    "counts": (
        plain(task={"kind": "multiclass", "labels": [0] * 1000}, axis__bins=68),
        "at most 67,108,864 counts",
    ),
    "rounds": (plain(rounds=[{"kind": "histogram", "nodes": [64]}] * 9), "24 levels each"),
}


@pytest.fixture
def _nothing_is_built(monkeypatch):
    def refuse(*_):
        raise AssertionError("an axis was built")

    monkeypatch.setattr(Axis, "from_spec", refuse)


@pytest.mark.usefixtures("_nothing_is_built")
@pytest.mark.parametrize("name", TOO_LARGE)
def test_sizes_are_judged_before_an_axis_is_built(name):
    found, told = TOO_LARGE[name]
    written = msgspec.json.encode(found)
    record = msgspec.json.encode({"format": FORMAT, "plan": found})
    toml = msgspec.toml.encode(_without_none(found)).decode()
    for read, text in ((EvaluationPlan.from_bytes, written), (sizes.peek, written)):
        with pytest.raises(PlanError, match=told):
            read(text)
    with pytest.raises(PlanError, match=told):
        EvaluationPlan.from_toml(toml)
    with pytest.raises(RecordError, match=told):
        Record.from_json(record)


def _without_none(found):
    if isinstance(found, dict):
        return {key: _without_none(value) for key, value in found.items() if value is not None}
    return found


@pytest.mark.usefixtures("_nothing_is_built")
def test_bytes_are_counted_before_they_are_read():
    for read in (EvaluationPlan.from_bytes, sizes.peek):
        with pytest.raises(PlanError, match="at most 8,388,608 bytes"):
            read(b" " * (sizes.MOST_BYTES + 1))
    with pytest.raises(PlanError, match="at most 8,388,608 bytes"):
        EvaluationPlan.from_toml(" " * (sizes.MOST_BYTES + 1))


@pytest.mark.usefixtures("_nothing_is_built")
def test_a_site_sees_the_sizes_without_the_axis():
    assert sizes.peek(PLAN.to_bytes()) == (64, 1, 128)
    tree = plan_for(DistributedDP(1.0), (4, 8))
    assert sizes.peek(tree.to_bytes()) == sizes.PlanSizes(bins=32, levels=2, counts=64)


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b"\xff", b'{"axis":{"bins":1e99}}'])
def test_what_is_no_plan_has_no_sizes(data):
    with pytest.raises(PlanError, match="not a plan in JSON"):
        sizes.peek(data)


def test_the_largest_sizes_can_be_read():
    plan = plan_for(DistributedDP(1.0), (2,) * 20)
    assert plan.axis.bins == MOST_BINS
    assert EvaluationPlan.from_bytes(plan.to_bytes()) == plan


def test_the_longest_lists_fit_a_plan():
    rng = np.random.default_rng(1)
    edges = np.unique(-rng.random(MOST_POINTS + 1) * 1e-300)
    plan = EvaluationPlan.for_histogram(Axis.from_edges(edges), Cohort(3))
    assert len(plan.to_bytes()) < sizes.MOST_BYTES
    assert sizes.peek(plan.to_bytes()).bins == MOST_POINTS


@pytest.mark.parametrize("make", [Axis.from_edges, Axis.from_values])
def test_longer_lists_are_refused(make):
    with pytest.raises(AxisError, match="at most 262,144 bins"):
        make(np.arange(MOST_POINTS + 2.0))


def test_a_tree_of_one_bin_is_one_level():
    assert plan_for(DistributedDP(1.0), (1,)).tree == (1,)
    with pytest.raises(PlanError, match="one branch"):
        plan_for(DistributedDP(1.0), (1, 1))


@pytest.mark.parametrize("field", ["min_survivors", "max_colluding"])
def test_cohorts_are_bounded(field):
    Cohort(**{field: MOST_CLIENTS})
    with pytest.raises(PlanError, match="at most 16,777,216 clients"):
        Cohort(**{field: MOST_CLIENTS + 1})


# Noise that is dear to draw or to account for


def with_noise(model, noise, parties=3):
    tree = (2,) * len(noise)
    nodes = tuple(2 ** (level + 1) for level in range(len(noise)))
    axis = Axis.uniform(nodes[-1], outside="clip")
    rounds = (HistogramRound(nodes, tuple(noise)),)
    return EvaluationPlan(BinaryTask(), axis, tree, model, Cohort(parties, 1), rounds)


SKELLAM = DistributedDP(1.0, delta=1e-6, noise="skellam")
GAUSSIAN = DistributedDP(1.0, delta=1e-6, noise="discrete-gaussian")
DEAR_TO_DRAW = {
    "polya": with_noise(DistributedDP(1.0), [3.3e-4 + 1e-6 * level for level in range(8)]),
    "skellam": with_noise(SKELLAM, [1e8]),
    "discrete-gaussian": with_noise(GAUSSIAN, [1e8]),
}


@pytest.mark.parametrize("name", DEAR_TO_DRAW)
def test_tables_too_long_in_all_are_never_begun(name, monkeypatch):
    def refuse(*_):
        raise AssertionError("a table was begun")

    for law in ("negative_binomial", "poisson", "discrete_gaussian"):
        monkeypatch.setattr(laws, law, refuse)
    with pytest.raises(PlanError, match="too wide to be drawn"):
        DEAR_TO_DRAW[name].statement("enforced")


def test_levels_of_equal_noise_share_a_table():
    # One table of 2^18 values is allowed, and levels that differ would take eight.
    assert with_noise(DistributedDP(1.0), [3.3e-4] * 8).statement("enforced").epsilon == 1.0


def test_laws_too_long_to_account_for_are_refused():
    wide = with_noise(GAUSSIAN, [9e7 + level for level in range(20)], parties=2**24)
    with pytest.raises(PlanError, match="too long to be accounted for"):
        wide.check_promise()


def test_losses_too_many_to_account_for_are_refused():
    model = DistributedDP(
        1.0, delta=1e-6, noise="discrete-gaussian", unit="subject", max_per_unit=30_000
    )
    wide = with_noise(model, [4e6 + level for level in range(20)])
    with pytest.raises(PlanError, match="too long to be accounted for"):
        wide.check_promise()


def test_noise_that_two_neighbours_hardly_share_keeps_no_promise():
    model = DistributedDP(1.0, delta=1e-6, noise="skellam", unit="subject", max_per_unit=1_000_000)
    with pytest.raises(PlanError, match="its noise costs more"):
        with_noise(model, [1e4] * 2).check_promise()


def test_the_gap_of_very_many_shares_is_bounded_from_above():
    # The first 2^16 terms are summed, the others bounded by the last of these.
    parties, sigma2 = 100_000, 60_000.0
    k = np.arange(1, parties)
    exact = float(10 * np.exp(-2 * np.pi**2 * sigma2 / parties * k / (k + 1)).sum())
    bound = accounting.gaussian_tau(sigma2, parties)
    assert exact <= bound <= exact * 1.001
    assert accounting.gaussian_tau(1e8, 2**24) < 1e-20


@pytest.mark.parametrize(
    "task",
    [
        BinaryTask(groups={"sex": ["women", "men"], "age": ["old"]}, models=("new", "old")),
        BinaryTask(groups={"sex": ["women", "men"], "age": ["old"]}, crossed=True),
        MulticlassTask(labels=["cat", "dog", "owl"], models=("new", "old")),
        MultilabelTask(labels=["fever", "cough"], groups={"sex": ["women"]}),
        LabelTask(),
    ],
    ids=lambda task: type(task).__name__,
)
def test_as_many_counts_as_the_task_has(task):
    """What is judged from the bytes of a plan is what is then built."""
    noise = DistributedDP(1.0, unit="label", neighbours="flip")
    plan = plan_for(noise if isinstance(task, LabelTask) else None, bins=64, task=task)
    assert sizes.peek(plan.to_bytes()).counts == plan.histogram().counts.size
    assert len(task.layout.blocks) == task.per_row


def test_slices_that_no_site_could_hold_make_no_plan():
    many = [str(i) for i in range(1000)]
    for task in (
        MulticlassTask(labels=many[:400], models=("new", "old", "third")),
        MulticlassTask(labels=many, groups={"ward": many[:100]}),
    ):
        with pytest.raises(PlanError, match="Tell less apart"):
            plan_for(bins=4, task=task)
