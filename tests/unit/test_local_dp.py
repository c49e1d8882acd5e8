"""LocalDP in specs, plans, statements, explanations, sites and evaluations."""

import math

import msgspec
import numpy as np
import pytest
from rows import draw_rows

import fedgauge as fg
from fedgauge.engines.comparison import compare
from fedgauge.engines.reporting import write_reports
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.plan import ReportRound
from fedgauge.plan.explain import explain
from fedgauge.privacy.oracles import MOST_CELLS
from fedgauge.secagg import SummationServer
from fedgauge.site import Account, add_trust, create_site

AXIS = fg.Axis.uniform(64, outside="clip")
SPECS = [fg.LocalDP(1.0), fg.LocalDP(5.0, oracle="hadamard")]
every_spec = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.oracle)
every_tree = pytest.mark.parametrize("tree", [(64,), (8, 8), (4, 4, 4)], ids=str)


# Specs.


@pytest.mark.parametrize("epsilon", [0, -1.0, math.inf, math.nan, "1", None, True, 1e-9], ids=repr)
def test_epsilon_is_a_positive_number(epsilon):
    with pytest.raises(fg.PlanError, match="epsilon"):
        fg.LocalDP(epsilon)


def test_large_epsilons_are_warned_of():
    with pytest.warns(fg.PrivacyWarning, match="protects nobody"):
        fg.LocalDP(21.0)


def test_unknown_oracles_are_refused():
    with pytest.raises(fg.PlanError, match="oue, hadamard"):
        fg.LocalDP(1.0, oracle="rappor")


def test_whole_epsilons_are_the_same_plan():
    plans = [fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(epsilon)) for epsilon in (1, 1.0)]
    assert plans[0].to_bytes() == plans[1].to_bytes()


# Plans.


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


def test_the_digests_are_the_same_on_every_machine():
    plans = [fg.EvaluationPlan.for_reports(AXIS, spec, tree=(8, 8)) for spec in SPECS]
    assert [plan.digest[:16] for plan in plans] == DIGESTS


DIGESTS = ["46188bf4900a3acd", "e41c7b6c639f2240"]


def test_axes_that_refuse_scores_are_refused():
    with pytest.raises(fg.PlanError, match="leak"):
        fg.EvaluationPlan.for_reports(fg.Axis.uniform(64), fg.LocalDP(1.0))


def test_too_many_cells_are_refused():
    axis = fg.Axis.uniform(MOST_CELLS, outside="clip")
    with pytest.raises(fg.PlanError, match="fewer bins"):
        fg.EvaluationPlan.for_reports(axis, fg.LocalDP(1.0))


def test_reports_and_sums_do_not_mix():
    local = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(1.0))
    exact = fg.EvaluationPlan.for_histogram(AXIS, fg.Cohort(3))
    with pytest.raises(fg.PlanError, match="for_reports"):
        fg.EvaluationPlan.for_histogram(AXIS, fg.Cohort(3), privacy=fg.LocalDP(1.0))
    with pytest.raises(fg.PlanError, match="mixes"):
        msgspec.structs.replace(local, rounds=exact.rounds)
    with pytest.raises(fg.PlanError, match="mixes"):
        msgspec.structs.replace(exact, rounds=local.rounds)
    with pytest.raises(fg.PlanError, match="no cohort"):
        msgspec.structs.replace(local, cohort=fg.Cohort(3))


@pytest.mark.parametrize(
    "wrong",
    [
        ReportRound((64,), ()),
        ReportRound((64,), (0,)),
        ReportRound((64,), (2**63,)),
        ReportRound((64,), (2**63 - 1,)),  # so near to a fair coin that no report says anything
        ReportRound((64,), (-5,)),
        ReportRound((64,), (5, 5)),
        ReportRound((64,), (5,), (1,)),
        ReportRound((32,), (5,)),
        ReportRound((), ()),
    ],
    ids=str,
)
def test_rounds_that_no_oracle_has_are_refused(wrong):
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(1.0))
    with pytest.raises(fg.PlanError, match=r"reports|counts"):
        msgspec.structs.replace(plan, rounds=(wrong,))


@pytest.mark.parametrize("blocks", [(), (0,), (3,), (256,), (1, 1)], ids=str)
def test_blocks_that_hadamard_has_not_are_refused(blocks):
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(1.0, oracle="hadamard"))
    wrong = msgspec.structs.replace(plan.final, blocks=blocks)
    with pytest.raises(fg.PlanError, match="hadamard"):
        msgspec.structs.replace(plan, rounds=(wrong,))


def test_reports_of_hadamard_that_say_nothing_are_refused():
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(1.0, oracle="hadamard"))
    wrong = msgspec.structs.replace(plan.final, noise=(2**64 - 1,))
    with pytest.raises(fg.PlanError, match="hadamard"):
        msgspec.structs.replace(plan, rounds=(wrong,))


def test_sizes_are_of_one_report():
    assert fg.EvaluationPlan.for_reports(AXIS, SPECS[0]).bytes_per_client == 16
    assert fg.EvaluationPlan.for_reports(AXIS, SPECS[1]).bytes_per_client == 1


# What is claimed and explained.


@every_spec
def test_the_statement_says_whom_it_protects(spec):
    plan = fg.EvaluationPlan.for_reports(AXIS, spec)
    stated = plan.statement("enforced", ("examples 10",))
    assert stated == fg.PrivacyStatement(
        model="local-dp",
        unit="example",
        neighbours="replace-one",
        epsilon=spec.epsilon,
        delta=0.0,
        cohort=None,
        public_inputs=("examples 10", "number of reports"),
        claim="enforced",
    )


@every_spec
def test_the_explanation_is_about_reports(spec):
    text = explain(fg.EvaluationPlan.for_reports(AXIS, spec))
    assert f"epsilon {spec.epsilon:g}" in text
    assert "One report for each row" in text
    assert "pays its epsilon again" in text
    assert "sum over all sites" not in text


# Sums over sites have no place for reports.


def test_a_secure_sum_of_reports_is_refused():
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(1.0))
    keys = [SigningKey.generate() for _ in range(3)]
    with pytest.raises(fg.PlanError, match="local reports"):
        SummationServer.invite(plan, [key.public for key in keys], keys[0])
    clients = {"a": draw_rows(50), "b": draw_rows(50)}
    with pytest.raises(fg.PlanError, match="leave out"):
        fg.evaluate(clients, privacy=fg.LocalDP(1.0), cohort=fg.Cohort(2))


# Evaluations.


@every_spec
@every_tree
def test_evaluations_see_every_row(spec, tree):
    clients = {"a": draw_rows(6_000, 1), "b": draw_rows(2_000, 2)}
    options = {"privacy": spec, "axis": AXIS, "tree": tree}
    result = fg.evaluate(clients, **options, seed=1)
    assert (result.clients, result.reports) == (2, 8_000)
    assert result.negatives + result.positives == 8_000
    assert result.privacy.claim == "simulated"
    np.testing.assert_array_equal(
        result.released.counts, fg.evaluate(clients, **options, seed=1).released.counts
    )
    assert not np.array_equal(
        result.released.counts, fg.evaluate(clients, **options, seed=2).released.counts
    )
    assert not np.array_equal(
        result.released.counts, fg.evaluate(clients, **options).released.counts
    )


def test_a_plan_for_reports_evaluates():
    plan = fg.planner.propose(privacy=fg.LocalDP(4.0), clients=3, examples=20_000)
    assert plan.predicted.roc_auc_error > 0
    result = fg.evaluate({"a": draw_rows(20_000)}, plan, seed=4)
    low, high = result.roc_auc.bounds
    assert 0.5 < low < result.roc_auc.value < high < 1
    assert "20,000 reports" in str(result)
    assert "per report" in str(result)


@pytest.mark.parametrize(("epsilon", "bins"), [(1.0, 16), (5.0, 32)])
def test_auto_reads_no_data(epsilon, bins):
    plans = [
        fg.evaluate({"a": draw_rows(300, seed)}, privacy=fg.LocalDP(epsilon)).plan
        for seed in range(2)
    ]
    assert plans[0].to_bytes() == plans[1].to_bytes()
    assert plans[0].tree == (bins,)


def test_noise_that_hides_a_class_is_said_so():
    result = fg.evaluate({"a": draw_rows(200)}, privacy=fg.LocalDP(0.1), seed=1)
    with pytest.raises(fg.NoSignal):
        result.roc_curve()


def test_clients_without_rows_send_no_reports():
    result = fg.evaluate({"a": draw_rows(500), "b": ([], [])}, privacy=fg.LocalDP(4.0))
    assert (result.clients, result.reports) == (2, 500)


@every_spec
def test_planning_takes_more_bins_for_more_data(spec):
    few = fg.planner.propose(privacy=spec, clients=1, examples=20_000, positive_rate=0.3)
    many = fg.planner.propose(privacy=spec, clients=1, examples=50_000_000, positive_rate=0.3)
    assert few.axis.bins < many.axis.bins
    assert few.predicted.roc_area_error > 3 * many.predicted.roc_area_error


def test_comparing_models_on_the_same_rows():
    clients = {"a": draw_rows(30_000, 1), "b": draw_rows(30_000, 2)}
    models = [fg.SecureAggregation(), fg.DistributedDP(1.0), fg.LocalDP(3.0)]
    found = compare(clients, models, seed=2)
    exact, central, local = found.models
    assert exact.roc_auc_error < central.roc_auc_error < local.roc_auc_error < 0.05
    assert (exact.bytes_per_client, central.bytes_per_client) == (65_536, 1_024)
    assert local.bytes_per_client == 30_000 * (16 + 8)
    assert local.trust.startswith("nobody")
    assert found.exact_auc == pytest.approx(exact.result.roc_auc.value, abs=1e-3)
    hidden = compare({"a": draw_rows(100)}, [fg.LocalDP(0.1)], seed=1).models[0]
    assert hidden.roc_auc_error is None


# Sites.


@pytest.fixture
def site(tmp_path):
    return create_site(tmp_path / "site", name="clinic", dataset="stroke")


def spent(site):
    return {balance.account: balance.spent.epsilon for balance in site.ledger.balances()}


def test_reports_are_charged_for_each_row(site, tmp_path):
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(0.5))
    account = Account("stroke", "example", "replace-one")
    for number in (1, 2):
        write_reports(plan, draw_rows(300), tmp_path / f"{number}.fgr", site=site)
        assert spent(site) == {account: 0.5 * number}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(([0, 1], [[0.1, 0.2]]), id="lengths"),
        pytest.param(([0, 1], np.zeros((2, 2))), id="shape"),
        pytest.param(([0, 1], np.zeros(2, dtype="M8[s]")), id="type"),
        pytest.param(7, id="no rows"),
    ],
)
def test_data_that_are_no_rows_are_refused_before_they_are_paid_for(site, tmp_path, data):
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(0.5))
    with pytest.raises(fg.InputError):
        write_reports(plan, data, tmp_path / "a.fgr", site=site)
    assert spent(site) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_a_file_without_numbers_is_refused_before_it_is_paid_for(site, tmp_path):
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(0.5))
    path = tmp_path / "rows.csv"
    path.write_text("y,name\n0,Ann\n1,Bob\n")
    data = fg.ScoreFile(path, label="y", score="name")
    with pytest.raises(fg.InputError, match="not numbers"):
        write_reports(plan, data, tmp_path / "a.fgr", site=site)
    assert spent(site) == {}


def test_broken_rows_stop_no_report(site, tmp_path):
    """Whether one is broken, and how, is no matter of the file's size or of the charge."""
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(0.5))
    told = []
    clean, broken = tmp_path / "clean.fgr", tmp_path / "broken.fgr"
    write_reports(plan, ([0, 1], [0.1, 0.2]), clean, site=site, tell=told.append)
    assert told == []
    write_reports(plan, ([0, 3], [0.1, math.nan]), broken, site=site, tell=told.append)
    assert clean.stat().st_size == broken.stat().st_size
    assert list(spent(site).values()) == [1.0]
    assert [sentence[:6] for sentence in told] == ["1 of 2", "1 of 2", "none o"]


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
        "rows were reported only as far as they could be read: reading the rows ended in OSError."
    ]
    with fg.ReportServer(plan) as server, path.open("rb") as file:
        assert server.accept_all(server.form.split(file)).accepted == 2


def test_an_interrupted_report_costs_budget_and_leaves_no_file(site, tmp_path):
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(0.5))

    def chunks():
        yield [0, 1], [0.1, 0.2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_reports(plan, chunks, tmp_path / "a.fgr", site=site)
    assert list(spent(site).values()) == [0.5]
    assert [path.name for path in tmp_path.iterdir()] == ["site"]


def test_no_rows_make_an_empty_file(tmp_path):
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(0.5))
    write_reports(plan, ([], []), tmp_path / "a.fgr")
    assert (tmp_path / "a.fgr").read_bytes() == b""


@pytest.mark.parametrize(
    ("plan", "match"),
    [
        (fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(1.5)), "max_epsilon"),
        (
            fg.EvaluationPlan.for_reports(fg.Axis.uniform(8192, outside="clip"), fg.LocalDP(0.5)),
            "max_bins",
        ),
    ],
    ids=["epsilon", "bins"],
)
def test_reports_outside_the_site_file_are_refused(site, tmp_path, plan, match):
    with pytest.raises(fg.PlanRefused, match=match):
        write_reports(plan, draw_rows(10), tmp_path / "a.fgr", site=site)
    assert spent(site) == {}


def test_a_site_joins_no_sum_of_reports(site):
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(0.5))
    boss = SigningKey.generate().public
    trusting = add_trust(site.path, "coordinator", "boss", key_to_text(boss))
    with pytest.raises(fg.PlanRefused, match="fedgauge encode"):
        trusting.judge(plan, members=[site.key.public], coordinator=boss)


def test_report_files_are_never_made_twice(tmp_path):
    plan = fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(1.0))
    path = tmp_path / "a.fgr"
    write_reports(plan, draw_rows(300), path)
    with pytest.raises(fg.RecordError, match="cost privacy again"):
        write_reports(plan, draw_rows(300), path)
    with fg.ReportServer(plan) as server, path.open("rb") as file:
        assert server.accept_all(server.form.split(file)).accepted == 300
    with pytest.raises(fg.RecordError, match="cannot write"):
        write_reports(plan, draw_rows(300), tmp_path / "no" / "a.fgr")
