"""Slices in local reports: each is about one block, all the way from rows to a result."""

import struct
import warnings
import zlib

import numpy as np
import pytest

import fedgauge as fg
from fedgauge.data.oddities import Counted
from fedgauge.engines.reporting import result_of, write_reports
from fedgauge.plan.explain import explain
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.reports.messages import ReportFormat, report_rows

AXIS = fg.Axis.uniform(16, outside="clip")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", fg.PrivacyWarning)
    SURE = fg.LocalDP(40.0, oracle="hadamard")  # as good as no noise: what is drawn is left
SEXES = {"sex": ["women", "men"]}
ROWS = 10_000


def rows_of(count=ROWS, seed=1):
    """Rows that every task below can be asked of."""
    rng = np.random.default_rng(seed)
    y, sex = rng.random(count) < 0.3, rng.choice(["women", "men", "?"], count, p=[0.5, 0.4, 0.1])
    age = rng.choice(["young", "old"], count)
    new, old = (1 / (1 + np.exp(1 - by * y - rng.normal(size=count))) for by in (2.0, 1.0))
    return y, {"new": new, "old": old}, {"sex": sex, "age": age}


Y, SCORES, GROUPS = rows_of()
CASES = {
    "groups": (fg.BinaryTask(groups=SEXES), fg.Examples(Y, SCORES["new"], group=GROUPS["sex"])),
    "each": (
        fg.BinaryTask(groups=SEXES | {"age": ["young", "old"]}),
        fg.Examples(Y, SCORES["new"], group=GROUPS),
    ),
    "models": (fg.BinaryTask(models=("new", "old")), fg.Examples(Y, SCORES)),
    "models by group": (
        fg.BinaryTask(models=("new", "old"), groups=SEXES),
        fg.Examples(Y, SCORES, group=GROUPS["sex"]),
    ),
    "labels": (
        fg.MultilabelTask(labels=["a", "b"]),
        fg.Examples(np.stack([Y, ~Y], 1), np.stack([SCORES["new"], 1 - SCORES["old"]], 1)),
    ),
    "classes": (
        fg.MulticlassTask(labels=["no", "yes"]),
        fg.Examples(np.where(Y, "yes", "no"), np.stack([1 - SCORES["new"], SCORES["old"]], 1)),
    ),
}
every_case = pytest.mark.parametrize("case", CASES)


def plan_of(case, privacy=SURE, **options):
    return fg.EvaluationPlan.for_reports(AXIS, privacy, task=CASES[case][0], **options)


def reported(case, plan, source=None):
    with fg.ReportServer(plan) as server:
        server.accept_all(fg.encode_rows(plan, CASES[case][1], source=source))
        return result_of(server)


def simulated(case, plan):
    return fg.evaluate({"all": CASES[case][1]}, plan, seed=1)


def by_block(plan, counts):
    layout = plan.task.layout
    return [counts[layout.rows(block)] for block in layout.blocks]


@every_case
@pytest.mark.parametrize("tree", [(16,), (4, 4)], ids=str)
@pytest.mark.parametrize("way", ["reported", "simulated"])
def test_every_slice_is_that_of_all_rows_but_for_what_is_drawn(case, tree, way):
    """Some 400 counts of a case stray by more than 6 deviations in one case of a million."""
    plan = plan_of(case, tree=tree)
    source = SimulatedKeystream(3)
    result = reported(case, plan, source) if way == "reported" else simulated(case, plan)
    exact = plan.histogram()
    exact.update_batches([CASES[case][1]])
    assert result.reports == ROWS
    for block in by_block(plan, result.released.counts):
        assert block.sum() == pytest.approx(ROWS)
    each = np.eye(2 * AXIS.bins).reshape(-1, 2, AXIS.bins)
    for slice_, part in zip(plan.task.slices, result.slices, strict=True):
        rows = [exact.counts[list(own)].sum(axis=0) for own in plan.task.contrast(slice_)]
        room = 6 * np.sqrt(part.pooled.noise_variance(each)).reshape(2, -1) + 10 * len(plan.oracles)
        assert np.all(np.abs(part.pooled.unbiased - rows) < room)
        room = 6 * np.array(part.pooled.deviations_of_totals) + 10
        assert np.all(np.abs(part.pooled.unbiased.sum(axis=1) - np.sum(rows, axis=1)) < room)


@every_case
def test_a_result_is_read_as_it_was_written(case, tmp_path):
    result = simulated(case, plan_of(case, fg.LocalDP(4.0)))
    result.to_json(tmp_path / "r.json")
    again = fg.Evaluation.from_json(tmp_path / "r.json")
    for one, other in zip(result.slices, again.slices, strict=True):
        assert one.pooled.leaf_variances == pytest.approx(other.pooled.leaf_variances)
        assert one.withheld == other.withheld
        assert one.withheld or one.roc_auc.interval == pytest.approx(other.roc_auc.interval)
    assert str(again) == str(result)


def test_one_block_is_drawn_from_nothing():
    """The same words make the same reports as without slices: nothing is drawn for a block."""
    plain = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(1.0))
    grouped = plan_of("groups", fg.LocalDP(1.0))
    assert len(plain.oracles) == len(grouped.oracles) == 1
    assert plain.final.noise == grouped.final.noise
    assert grouped.bytes_per_client == 3 * plain.bytes_per_client
    assert len(plan_of("each").oracles) == 2
    assert len(plan_of("models by group", tree=(4, 4)).oracles) == 4


@every_case
def test_plans_are_read_as_they_were_written(case):
    plan = plan_of(case, fg.LocalDP(2.0, oracle="hadamard"), tree=(4, 4))
    assert fg.EvaluationPlan.from_bytes(plan.to_bytes()) == plan
    assert fg.EvaluationPlan.from_toml(plan.to_toml()) == plan
    plan.check_promise()


def test_reports_about_what_no_plan_has_are_refused():
    plan, source = plan_of("models", fg.LocalDP(1.0)), SimulatedKeystream(2)
    form = ReportFormat(plan)
    (message,) = report_rows(
        plan, CASES["models"][1].select(slice(0, 9)), source=source, done=lambda _: None
    )
    start = form.header_bytes - 8
    first, second = struct.unpack_from("<2I", message, start)
    third = message[:start] + struct.pack("<3I", first, second - 1, 1) + message[start + 8 : -4]
    longer = message[:start] + struct.pack("<2I", first, second + 1) + message[start + 8 : -4]
    other = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(1.0))
    (foreign,) = fg.encode_rows(other, (Y[:9], SCORES["new"][:9]), source=source)
    with fg.ReportServer(plan) as server:
        for bad, reason in (
            (third, "wrong length"),  # a block that there is not
            (longer, "wrong length"),
            (foreign, "of another plan"),
        ):
            sealed = bad if bad is foreign else bad + struct.pack("<I", zlib.crc32(bad))
            receipt = server.accept(sealed)
            assert (receipt.accepted, dict(receipt.refused)) == (0, {reason: 1})
        assert server.reports == 0
        assert server.accept(message).accepted == 9


def test_reports_of_other_sizes_are_refused():
    """A report about a block with more groups does not pass for one with fewer."""
    task = fg.BinaryTask(groups={"sex": ["women"], "age": ["a", "b", "c", "d", "e", "f"]})
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(1.0), task=task)
    rows = fg.Examples([0, 1], [0.2, 0.7], group={"sex": ["women"] * 2, "age": ["a"] * 2})
    (message,) = fg.encode_rows(plan, rows.select(np.zeros(20, int)), source=SimulatedKeystream(2))
    form = ReportFormat(plan)
    start = form.header_bytes - 8
    first, second = struct.unpack_from("<2I", message, start)
    body = message[:start] + struct.pack("<2I", first + 1, second - 1) + message[start + 8 : -4]
    with pytest.raises(fg.ReportRefused, match="wrong length"):
        form.read(body + struct.pack("<I", zlib.crc32(body)))


def test_a_block_without_reports_has_no_signal():
    plan = plan_of("models", fg.LocalDP(1.0))
    with fg.ReportServer(plan) as server:
        one = CASES["models"][1].select(slice(0, 1))
        server.accept_all(fg.encode_rows(plan, one, source=SimulatedKeystream(1)))
        with pytest.raises(fg.NoSignal, match="a class, a model or a way to group rows"):
            server.counts()


@pytest.mark.parametrize(
    "task",
    [
        fg.BinaryTask(models=("new", "old"), pairs=[("new", "old")]),
        fg.MulticlassTask(labels=["a", "b"], also=["confusion"]),
    ],
    ids=["pairs", "also"],
)
def test_tables_are_refused(task):
    with pytest.raises(fg.PlanError, match=r"about one score at a time.*Leave out pairs"):
        fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(1.0), task=task)


def test_more_cells_than_a_server_keeps_are_refused():
    many = fg.MulticlassTask(labels=range(200))
    with pytest.raises(fg.PlanError, match="of all models, labels and groups"):
        fg.EvaluationPlan.for_reports(fg.Axis.uniform(64, outside="clip"), SURE, task=many)
    with pytest.raises(fg.PlanError, match="groups times classes times bins"):
        fg.EvaluationPlan.for_reports(
            fg.Axis.uniform(1 << 14, outside="clip"), SURE, task=CASES["groups"][0]
        )


def test_two_models_in_short_are_compared_from_reports_of_different_rows():
    rows = {"all": CASES["models"][1]}
    result = fg.evaluate(rows, models=["new", "old"], privacy=fg.LocalDP(4.0), seed=1)
    compared = result.compare("new", "old")
    assert compared.basis == "from reports about each model, which are of different rows"
    each = [result.select(model=name).roc_auc for name in ("new", "old")]
    for kind in ("sampling", "noise"):
        parts = [one.parts[kind] for one in each]
        assert compared.roc_auc.parts[kind] == pytest.approx(np.hypot(*parts))


def test_groups_say_how_many_examples_they_have():
    result = simulated("groups", plan_of("groups"))
    words = str(result.select(group="women")).splitlines()[0]
    told = result.select(group="women").examples
    assert told == pytest.approx(np.count_nonzero(GROUPS["sex"] == "women"), rel=0.05)
    assert words.startswith(f"group women: 1 client, 10,000 reports, about {told:,} examples, ")


def test_an_operator_is_told_of_scores_and_labels_once():
    seen: list[Counted] = []
    task = fg.MulticlassTask(labels=["a", "b"], groups=SEXES | {"age": ["young"]})
    plan = fg.EvaluationPlan.for_reports(AXIS, SURE, task=task)
    scores, groups = np.array([[0.1, 7.0], [np.nan, 0.2]]), {"sex": ["women"] * 2, "age": ["x"] * 2}
    rows = fg.Examples(["a", "c"], scores, group=groups)
    list(report_rows(plan, rows, done=seen.append))
    odd = seen[0].oddities
    assert (odd.rows, odd.by_row, odd.not_finite, odd.clipped, odd.other_labels) == (2, 2, 1, 1, 1)
    assert seen[0].positives is None


def test_rows_without_what_the_plan_asks_are_refused_before_anything_is_written(tmp_path):
    with pytest.raises(fg.InputError, match="groups by 'sex'"):
        write_reports(plan_of("groups"), (Y[:5], SCORES["new"][:5]), tmp_path / "a.fgr")
    with pytest.raises(fg.InputError, match="several models"):
        write_reports(plan_of("models"), (Y[:5], SCORES["new"][:5]), tmp_path / "a.fgr")
    assert not list(tmp_path.iterdir())


def test_the_officer_reads_what_a_report_is_about():
    words = explain(plan_of("models by group", fg.LocalDP(1.0)))
    assert "row, about one of 2 scores, drawn at random whatever the row holds" in words
    assert "whether the row is positive, of which group and in which of 16 ranges that" in words
    assert "sex (women, men, other)" in words
    words = explain(plan_of("each", fg.LocalDP(1.0)))
    assert "row, about one of 2 ways to group rows, drawn at random" in words
    assert "drawn at random" not in explain(plan_of("groups", fg.LocalDP(1.0)))


def test_plans_are_expected_to_have_the_errors_of_fewer_reports():
    from fedgauge.planner.search import predict

    errors = {
        case: predict(plan_of(case, fg.LocalDP(4.0)), examples=ROWS, positive_rate=0.3)
        for case in ("groups", "models", "models by group")
    }
    assert errors["models"].roc_auc_error < errors["models by group"].roc_auc_error
    (group,) = errors["groups"].groups
    assert group[1].roc_auc_error > errors["groups"].roc_auc_error


def test_averages_take_reports_about_different_scores_as_independent():
    """The same rows are in one sum, and their deviations add up; reports are of other rows."""
    result = simulated("labels", plan_of("labels", fg.LocalDP(6.0)))
    average, each = result.macro("roc_auc"), [part.roc_auc for part in result.slices]
    for kind in ("sampling", "noise"):
        apart = np.hypot(*(one.parts[kind] for one in each)) / 2
        assert average.parts[kind] == pytest.approx(apart, rel=0.02)


def test_all_rows_are_as_many_as_reports():
    result = simulated("models", plan_of("models"))
    assert str(result).splitlines()[0] == f"1 client, {ROWS:,} reports"
