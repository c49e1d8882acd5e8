"""LocalDP in specs, plans, statements, explanations, sites and evaluations."""

import math
import struct
import warnings
import zlib

import msgspec
import numpy as np
import pytest
from plans import report_plan
from refusals import refused
from rows import draw_rows

import fedgauge as fg
from fedgauge.data.row_checks import RowSummary
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.local.encode import result_of, write_reports
from fedgauge.local.messages import ReportFormat, report_rows
from fedgauge.plan import ReportRound
from fedgauge.plan.explain import explain
from fedgauge.privacy.keystream import SimulatedKeystream
from fedgauge.privacy.oracles import MOST_CELLS
from fedgauge.secagg import SummationServer
from fedgauge.site import Account, Policy, add_trust, create_site

AXIS = fg.Axis.uniform(64, outside="clip")
SPECS = [fg.LocalDP(1.0), fg.LocalDP(5.0, oracle="hadamard")]
every_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.oracle)
every_tree = pytest.mark.parametrize("tree", [(64,), (8, 8), (4, 4, 4)], ids=str)


def test_epsilon_is_a_positive_number_and_the_oracle_a_known_one():
    for epsilon in (0, -1.0, math.inf, math.nan, "1", None, True, 1e-9):
        refused(fg.PlanError, "epsilon", fg.LocalDP, epsilon)
    refused(fg.PlanError, "oue, hadamard", fg.LocalDP, 1.0, oracle="rappor")
    with pytest.warns(fg.PrivacyWarning, match="protects nobody"):
        fg.LocalDP(21.0)


@every_spec
@every_tree
def test_plans_survive_the_journey(spec, tree):
    plan = fg.EvaluationPlan.for_reports(AXIS, spec, tree=tree)
    for again in (
        fg.EvaluationPlan.from_bytes(plan.to_bytes()),
        fg.EvaluationPlan.from_toml(plan.to_toml()),
    ):
        assert again == plan
        assert again.digest == plan.digest
    plan.check_promise()
    assert plan.cohort is None
    assert [oracle.cells for oracle in plan.oracles] == [2 * n for n in plan.final.nodes]
    assert len(plan.noise_variances(1000)) == len(tree)


def test_digests_are_the_same_on_every_machine_and_sizes_those_of_one_report():
    plans = [fg.EvaluationPlan.for_reports(AXIS, spec, tree=(8, 8)) for spec in SPECS]
    assert [plan.digest[:16] for plan in plans] == ["46188bf4900a3acd", "e41c7b6c639f2240"]
    sizes = [fg.EvaluationPlan.for_reports(AXIS, spec).bytes_per_client for spec in SPECS]
    assert sizes == [16, 1]


def test_axes_cells_and_rounds_that_reports_cannot_have_are_refused():
    local = fg.EvaluationPlan.for_reports(AXIS, SPECS[0])
    exact = fg.EvaluationPlan.for_histogram(AXIS, fg.Cohort(3))
    replace, for_reports = msgspec.structs.replace, fg.EvaluationPlan.for_reports
    most = fg.Axis.uniform(MOST_CELLS, outside="clip")
    for make, told in (
        (lambda: for_reports(fg.Axis.uniform(64), SPECS[0]), "leak"),
        (lambda: for_reports(most, SPECS[0]), "fewer bins"),
        (
            lambda: fg.EvaluationPlan.for_histogram(AXIS, fg.Cohort(3), privacy=SPECS[0]),
            "for_reports",
        ),
        (lambda: replace(local, rounds=exact.rounds), "mixes"),
        (lambda: replace(exact, rounds=local.rounds), "mixes"),
        (lambda: replace(local, cohort=fg.Cohort(3)), "no cohort"),
    ):
        refused(fg.PlanError, told, make)


def test_rounds_that_no_oracle_has_are_refused():
    for wrong in (
        *(ReportRound((64,), noise) for noise in ((), (0,), (2**63,), (-5,), (5, 5))),
        ReportRound((64,), (2**63 - 1,)),  # so near to a fair coin that no report says anything
        *(ReportRound((64,), (5,), (1,)), ReportRound((32,), (5,)), ReportRound((), ())),
        *({"blocks": blocks} for blocks in ((), (0,), (3,), (256,), (1, 1))),
        {"noise": (2**64 - 1,)},
    ):
        plan, told = fg.EvaluationPlan.for_reports(AXIS, SPECS[0]), r"reports|counts"
        if isinstance(wrong, dict):
            plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(1.0, oracle="hadamard"))
            wrong, told = msgspec.structs.replace(plan.final, **wrong), "hadamard"
        refused(fg.PlanError, told, msgspec.structs.replace, plan, rounds=(wrong,))


@every_spec
def test_the_statement_and_the_explanation_say_whom_it_protects(spec):
    plan = fg.EvaluationPlan.for_reports(AXIS, spec)
    stated = plan.statement("enforced", ("examples 10",))
    assert (stated.model, stated.unit, stated.neighbours) == ("local-dp", "example", "replace-one")
    assert (stated.epsilon, stated.delta, stated.cohort) == (spec.epsilon, 0.0, None)
    assert stated.public_inputs == ("examples 10", "number of reports")
    assert stated.claim == "enforced"
    text = explain(plan)
    assert f"epsilon {spec.epsilon:g}" in text
    assert "One report for each row" in text
    assert "pays its epsilon again" in text
    assert "sum over all sites" not in text


def test_no_secure_sum_of_reports(site):
    plan = fg.EvaluationPlan.for_reports(AXIS, SPECS[0])
    keys = [SigningKey.generate() for _ in range(3)]
    with pytest.raises(fg.PlanError, match="local reports"):
        SummationServer.invite(plan, [key.public for key in keys], keys[0])
    clients = {"a": draw_rows(50), "b": draw_rows(50)}
    with pytest.raises(fg.PlanError, match="leave out"):
        fg.evaluate(clients, privacy=fg.LocalDP(1.0), cohort=fg.Cohort(2))
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(0.5))
    boss = SigningKey.generate().public
    trusting = add_trust(site.path, "coordinator", "boss", key_to_text(boss))
    with pytest.raises(fg.PlanRefused, match="fedgauge encode"):
        trusting.judge(plan, members=[site.key.public], coordinator=boss)


@every_spec
@every_tree
def test_evaluations_see_every_row(spec, tree):
    clients = {"a": draw_rows(6_000, 1), "b": draw_rows(2_000, 2), "c": ([], [])}

    def evaluated(seed):
        return fg.evaluate(clients, privacy=spec, axis=AXIS, tree=tree, seed=seed)

    result = evaluated(1)
    assert (result.clients, result.reports) == (3, 8_000)
    assert result.negatives + result.positives == 8_000
    assert result.privacy.claim == "simulated"
    counts = result.released.counts
    assert np.array_equal(counts, evaluated(1).released.counts)
    for seed in (2, None):
        assert not np.array_equal(counts, evaluated(seed).released.counts)


def test_a_plan_for_reports_evaluates_or_noise_hides_a_class():
    plan = fg.planner.propose(privacy=fg.LocalDP(4.0), clients=3, examples=20_000)
    assert plan.predicted.roc_auc_error > 0
    result = fg.evaluate({"a": draw_rows(20_000)}, plan, seed=4)
    low, high = result.roc_auc.bounds
    assert 0.5 < low < result.roc_auc.value < high < 1
    assert "20,000 reports" in str(result)
    assert "per report" in str(result)
    result = fg.evaluate({"a": draw_rows(200)}, privacy=fg.LocalDP(0.1), seed=1)
    with pytest.raises(fg.NoSignal):
        result.roc_curve()


@pytest.mark.parametrize(("epsilon", "bins"), [(1.0, 16), (5.0, 32)])
def test_auto_reads_no_data(epsilon, bins):
    plans = [
        fg.evaluate({"a": draw_rows(300, seed)}, privacy=fg.LocalDP(epsilon)).plan
        for seed in range(2)
    ]
    assert plans[0].to_bytes() == plans[1].to_bytes()
    assert plans[0].tree == (bins,)


@every_spec
@pytest.mark.usefixtures("quick_search")
def test_planning_takes_more_bins_for_more_data(spec):
    few, many = (
        fg.planner.propose(privacy=spec, clients=1, examples=examples, positive_rate=0.3)
        for examples in (20_000, 50_000_000)
    )
    assert few.axis.bins < many.axis.bins
    assert few.predicted.roc_area_error > 3 * many.predicted.roc_area_error


@pytest.fixture
def site(tmp_path):
    policy = Policy(models=("local-dp",))
    return create_site(tmp_path / "site", name="clinic", dataset="stroke", policy=policy)


def spent(site):
    return {balance.account: balance.spent.epsilon for balance in site.ledger.balances()}


def test_data_that_are_no_rows_are_refused_before_they_are_paid_for(site, tmp_path):
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(0.5))
    (tmp_path / "rows.csv").write_text("y,name\n0,Ann\n1,Bob\n")
    no_numbers = fg.ScoreFile(tmp_path / "rows.csv", label="y", score="name")
    wrong = [[[0.1, 0.2]], np.zeros((2, 2)), np.zeros(2, dtype="M8[s]")]
    for data in (*(([0, 1], scores) for scores in wrong), 7, no_numbers):
        with pytest.raises(fg.InputError, match="not numbers" if data is no_numbers else None):
            write_reports(plan, data, tmp_path / "a", site=site)
    assert spent(site) == {}
    assert not (tmp_path / "a").exists()


def test_the_budget_is_spent_before_rows_are_read(site, tmp_path):
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(0.5))
    seen, told = [], []

    def chunks():
        seen.extend(spent(site).values())
        yield [0, 1], [0.1, 0.2]
        raise OSError("the disk says 0.987654321")

    path = tmp_path / "a.fgr"
    write_reports(plan, chunks, path, site=site, tell=told.append)
    assert seen == [0.5]
    assert told == [
        "not all rows were reported, since some could not be read: reading the rows ended in "
        "OSError."
    ]
    with fg.ReportServer(plan) as server, path.open("rb") as file:
        assert server.accept_all(server.form.split(file)).accepted == 2


def test_reports_are_charged_for_each_row_and_refused_outside_the_site_file(site, tmp_path):
    dear = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(1.5))
    fine = report_plan(fg.LocalDP(0.5), (8192,))
    for plan, told in ((dear, "max_epsilon"), (fine, "max_bins")):
        with pytest.raises(fg.PlanRefused, match=told):
            write_reports(plan, draw_rows(10), tmp_path / "a.fgr", site=site)
    assert spent(site) == {}
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(0.5))
    account = Account("stroke", "example", "replace-one")
    for number in (1, 2):
        write_reports(plan, draw_rows(300), tmp_path / f"{number}.fgr", site=site)
        assert spent(site) == {account: 0.5 * number}


def test_report_files_are_never_made_twice(tmp_path):
    plan = fg.EvaluationPlan.for_reports(AXIS, SPECS[0])
    path = tmp_path / "a.fgr"
    write_reports(plan, draw_rows(300), path)
    refused(fg.RecordError, "cost privacy again", write_reports, plan, draw_rows(300), path)
    with fg.ReportServer(plan) as server, path.open("rb") as file:
        assert server.accept_all(server.form.split(file)).accepted == 300
    with pytest.raises(fg.RecordError, match="cannot write"):
        write_reports(plan, draw_rows(300), tmp_path / "no" / "a.fgr")


AXIS_SLICES = fg.Axis.uniform(16, outside="clip")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", fg.PrivacyWarning)
    SURE = fg.LocalDP(40.0, oracle="hadamard")  # as good as no noise: what is drawn is left
SEXES = {"sex": ["women", "men"]}
ROWS = 10_000


def rows_of(count=ROWS, seed=1):
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
    return fg.EvaluationPlan.for_reports(AXIS_SLICES, privacy, task=CASES[case][0], **options)


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
    each = np.eye(2 * AXIS_SLICES.bins).reshape(-1, 2, AXIS_SLICES.bins)
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
    plain = fg.EvaluationPlan.for_reports(AXIS_SLICES, fg.LocalDP(1.0))
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
    other = fg.EvaluationPlan.for_reports(AXIS_SLICES, fg.LocalDP(1.0))
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
    plan = fg.EvaluationPlan.for_reports(AXIS_SLICES, fg.LocalDP(1.0), task=task)
    rows = fg.Examples([0, 1], [0.2, 0.7], group={"sex": ["women"] * 2, "age": ["a"] * 2})
    (message,) = fg.encode_rows(plan, rows.select(np.zeros(20, int)), source=SimulatedKeystream(2))
    form = ReportFormat(plan)
    start = form.header_bytes - 8
    first, second = struct.unpack_from("<2I", message, start)
    body = message[:start] + struct.pack("<2I", first + 1, second - 1) + message[start + 8 : -4]
    refused(fg.ReportRefused, "wrong length", form.read, body + struct.pack("<I", zlib.crc32(body)))


def test_tables_and_more_cells_than_a_server_keeps_are_refused():
    fine = fg.Axis.uniform(1 << 14, outside="clip")
    for axis, task, told in (
        (AXIS, fg.BinaryTask(models=("new", "old"), pairs=[("new", "old")]), "Leave out pairs"),
        (AXIS, fg.MulticlassTask(labels=["a", "b"], also=["confusion"]), "Leave out pairs"),
        (AXIS, fg.MulticlassTask(labels=range(200)), "of all models, labels and groups"),
        (fine, CASES["groups"][0], "groups times classes times bins"),
    ):
        refused(fg.PlanError, told, fg.EvaluationPlan.for_reports, axis, SURE, task=task)


def test_two_models_are_compared_and_labels_averaged_from_reports_of_different_rows():
    rows = {"all": CASES["models"][1]}
    result = fg.evaluate(rows, models=["new", "old"], privacy=fg.LocalDP(4.0), seed=1)
    compared = result.compare("new", "old")
    assert compared.basis == "from reports about each model, which come from different rows"
    each = [result.select(model=name).roc_auc for name in ("new", "old")]
    for kind in ("sampling", "noise"):
        parts = [one.parts[kind] for one in each]
        assert compared.roc_auc.parts[kind] == pytest.approx(np.hypot(*parts))
    result = simulated("labels", plan_of("labels", fg.LocalDP(6.0)))
    average, each = result.macro("roc_auc"), [part.roc_auc for part in result.slices]
    for kind in ("sampling", "noise"):
        apart = np.hypot(*(one.parts[kind] for one in each)) / 2
        assert average.parts[kind] == pytest.approx(apart, rel=0.02)


def test_groups_say_how_many_examples_they_have_and_blocks_without_reports_nothing():
    result = simulated("groups", plan_of("groups"))
    assert str(result).splitlines()[0] == f"1 client, {ROWS:,} reports, about 30.3% positive"
    words = str(result.select(group="women")).splitlines()[0]
    told = result.select(group="women").examples
    assert told == pytest.approx(np.count_nonzero(GROUPS["sex"] == "women"), rel=0.05)
    assert words.startswith(f"group women: 1 client, 10,000 reports, about {told:,} examples, ")
    plan = plan_of("models", fg.LocalDP(1.0))
    with fg.ReportServer(plan) as server:
        one = CASES["models"][1].select(slice(0, 1))
        server.accept_all(fg.encode_rows(plan, one, source=SimulatedKeystream(1)))
        refused(fg.NoSignal, "a class, a model or a way to group rows", server.counts)


def test_rows_without_what_the_plan_asks_are_refused_and_odd_ones_told_once(tmp_path):
    with pytest.raises(fg.InputError, match="groups by 'sex'"):
        write_reports(plan_of("groups"), (Y[:5], SCORES["new"][:5]), tmp_path / "a.fgr")
    with pytest.raises(fg.InputError, match="several models"):
        write_reports(plan_of("models"), (Y[:5], SCORES["new"][:5]), tmp_path / "a.fgr")
    assert not list(tmp_path.iterdir())
    seen: list[RowSummary] = []
    task = fg.MulticlassTask(labels=["a", "b"], groups=SEXES | {"age": ["young"]})
    plan = fg.EvaluationPlan.for_reports(AXIS_SLICES, SURE, task=task)
    scores, groups = np.array([[0.1, 7.0], [np.nan, 0.2]]), {"sex": ["women"] * 2, "age": ["x"] * 2}
    rows = fg.Examples(["a", "c"], scores, group=groups)
    list(report_rows(plan, rows, done=seen.append))
    odd = seen[0].oddities
    assert (odd.rows, odd.by_row, odd.not_finite, odd.clipped, odd.other_labels) == (2, 2, 1, 1, 1)
    assert seen[0].positives is None


def test_officers_and_plans_know_what_a_report_is_about():
    words = explain(plan_of("models by group", fg.LocalDP(1.0)))
    assert "row, about one of 2 scores, drawn at random, whatever the row holds" in words
    assert "whether the row is positive, of which group and in which of 16 ranges that" in words
    assert "sex (women, men, other)" in words
    words = explain(plan_of("each", fg.LocalDP(1.0)))
    assert "row, about one of 2 ways to group rows, drawn at random" in words
    assert "drawn at random" not in explain(plan_of("groups", fg.LocalDP(1.0)))
    from fedgauge.planner.search import predict

    errors = {
        case: predict(plan_of(case, fg.LocalDP(4.0)), examples=ROWS, positive_rate=0.3)
        for case in ("groups", "models", "models by group")
    }
    assert errors["models"].roc_auc_error < errors["models by group"].roc_auc_error
    (group,) = errors["groups"].groups
    assert group[1].roc_auc_error > errors["groups"].roc_auc_error
