"""Plans survive every form they travel in, name their bytes, and refuse to be altered."""

import json
import math
import re
from datetime import UTC, datetime, timedelta
from functools import partial

import msgspec
import numpy as np
import pytest
from plans import exact_plan, noisy_plan, report_plan
from plans import plan_for as plan_for_sizes
from refusals import refused
from sites import BOSS, PEERS, make_site

import fedgauge as fg
from fedgauge import Axis, BinaryTask, Cohort, DistributedDP, EvaluationPlan, PlanError
from fedgauge.errors import AxisError
from fedgauge.histograms.axis import MOST_BINS, MOST_POINTS
from fedgauge.histograms.calibrator import MOST_KNOTS, Beta, Calibrator
from fedgauge.local.encode import write_reports
from fedgauge.plan import limits, plan
from fedgauge.plan.explain import explain
from fedgauge.plan.rounds import LARGEST
from fedgauge.plan.task import MulticlassTask
from fedgauge.privacy import accounting, noise
from fedgauge.privacy.cohort import MOST_CLIENTS
from fedgauge.results.record import FORMAT, Record
from fedgauge.site.ledger_entries import SumRoster

AXES = {
    "uniform": Axis.uniform(64),
    "uniform of odd range": Axis.uniform(7, -3.5, 0.1, outside="clip"),
    "logit": Axis.logit(16, limit=9.5),
    "edges": Axis.from_edges([-1e300, 0.1, 0.30000000000000004, 5e5, 1e22]),
    "values": Axis.from_values([5e-324, 1 / 3, 2 / 3, 1.0]),
    "one value": Axis.from_values([0.5], outside="clip"),
}
CLIPPED = Axis.uniform(64, outside="clip")
WIDE = Axis.from_edges([-1e308, 0.0, 1e308])
SKELLAM = DistributedDP(1.0, delta=1e-6, noise="skellam")
GAUSSIAN = DistributedDP(1.0, delta=1e-6, noise="discrete-gaussian")
LAST = datetime(2026, 12, 31, 18, tzinfo=UTC)
WRITTEN = "2026-12-31T18:00:00Z"
SECOND = timedelta(seconds=1)
ROWS = ([0, 1], [0.2, 0.9])
POSITIVES = [None, True, False, 0, 1, 2, -7, 0.0, 1.0, 2.5, "yes", "1", "true", "", 'ü"\n\\']


def plan_for(axis=None, positive=None, **options):
    task = BinaryTask(positive)
    return EvaluationPlan.for_histogram(axis or Axis.uniform(64), Cohort(5), task=task, **options)


NOISY_SUMS = plan_for(CLIPPED, privacy=DistributedDP(1.0), tree=(8, 8), score_sums=True)


def altered(plan, **changes):
    return msgspec.json.encode(plain(plan, **changes))


def plain(plan, **changes):
    found = json.loads(plan.to_bytes())
    for path, value in changes.items():
        *parents, name = path.split("__")
        holder = found
        for parent in parents:
            holder = holder[parent]
        holder[name] = value
    return found


def without_none(found):
    if isinstance(found, dict):
        return {key: without_none(value) for key, value in found.items() if value is not None}
    return found


FORMS = (
    *(plan_for(axis) for axis in AXES.values()),
    *(plan_for(positive=positive) for positive in POSITIVES),
    plan_for(score_sums=True),
    NOISY_SUMS,
    plan_for(min_cell=10),
)


@pytest.mark.parametrize("plan", FORMS, ids=range(len(FORMS)))
def test_every_plan_survives_json_and_toml(plan):
    for again in (
        EvaluationPlan.from_bytes(plan.to_bytes()),
        EvaluationPlan.from_toml(plan.to_toml()),
    ):
        assert again == plan
        assert hash(again) == hash(plan)
        assert again.digest == plan.digest
        assert again.axis.edges.tobytes() == plan.axis.edges.tobytes()
        assert again.task.positive == plan.task.positive
        assert type(again.task.positive) is type(plan.task.positive)
        assert again.final.sums == plan.final.sums
        assert again.to_bytes() == plan.to_bytes()
        assert again.to_toml() == plan.to_toml()


def test_a_value_taken_from_an_array_makes_the_same_plan():
    for given, same in (
        (plan_for(positive=np.int64(2)), plan_for(positive=2)),
        (plan_for(positive=np.float64(2.5)), plan_for(positive=2.5)),
        (plan_for(positive=np.True_), plan_for(positive=True)),
        (plan_for(positive=np.str_("yes")), plan_for(positive="yes")),
        (plan_for(Axis.uniform(np.int64(64))), plan_for(Axis.uniform(64))),
        tuple(
            fg.evaluate({"a": ROWS}, axis=CLIPPED, tree=tree).plan
            for tree in (tuple(np.array([8, 8])), (8, 8))
        ),
        (exact_plan(cohort=Cohort(np.int64(5))), exact_plan(cohort=Cohort(5))),
        (plan_for(fg.TwoRound(8, share=np.float64(0.25))), plan_for(fg.TwoRound(8, share=0.25))),
        (
            plan_for(CLIPPED, privacy=DistributedDP(1.0, delta=np.float64(1e-6), noise="skellam")),
            plan_for(CLIPPED, privacy=DistributedDP(1.0, delta=1e-6, noise="skellam")),
        ),
    ):
        assert given.digest == same.digest
        assert EvaluationPlan.from_bytes(given.to_bytes()) == same


def test_a_positive_label_is_one_value_that_json_can_hold():
    refused(PlanError, "one label, got list", BinaryTask, [1])
    for positive in (math.inf, -math.inf, math.nan):  # null in JSON, which is another plan
        with pytest.raises(PlanError):
            plan_for(positive=positive).to_bytes()


@pytest.mark.parametrize("number", [int, np.float64], ids=lambda kind: kind.__name__)
def test_a_number_has_one_spelling_whatever_its_type(number):
    """Else nobody could read the plan, or equal plans would have two digests."""
    for make in (
        lambda number: plan_for(CLIPPED, privacy=DistributedDP(number(1))),
        lambda number: plan_for(
            CLIPPED, privacy=DistributedDP(number(2), delta=1e-6, noise="skellam")
        ),
        lambda number: plan_for(CLIPPED, privacy=DistributedDP(number(1)), score_sums=True),
        lambda number: plan_for(fg.TwoRound(8, narrowest=number(3)), privacy=DistributedDP(1.0)),
        lambda number: plan_for(Axis.uniform(8, number(0), number(2), outside="clip")),
        lambda number: plan_for(Axis.from_edges([number(0), number(2)])),
        lambda number: EvaluationPlan.for_reports(fg.TwoRound(8), fg.LocalDP(number(1))),
        lambda number: EvaluationPlan.for_pairs(
            "adaptive", 5000, DistributedDP(number(1), unit="label", neighbours="flip")
        ),
        lambda number: plan_for().with_calibrator(Calibrator("platt", Beta(number(1), 1.0, 0.0))),
    ):
        plan = make(number)
        assert EvaluationPlan.from_bytes(plan.to_bytes()) == plan
        assert plan.digest == make(float).digest


def test_the_distributed_form_and_its_digest_are_the_same_on_every_machine():
    plan = EvaluationPlan.for_histogram(
        Axis.uniform(64), Cohort(min_survivors=5, max_colluding=2), tree=(8, 8)
    )
    assert plan.digest == "b9971cddd4d19f9d29baa8f155c24bbd8c8e822e1ba5113103b0ef29f8159049"
    assert plan_for(Axis.uniform(4), "yes").to_bytes().decode() == (
        '{"task":{"kind":"binary","positive":"yes"},'
        '"axis":{"kind":"uniform","bins":4,"outside":"refuse",'
        '"digest":"2acfaad7c7946e5ea6672478e98685afa5c97f48de18a4e3fcc0fa1e622cfa88",'
        '"low":0.0,"high":1.0,"limit":null,"points":null},'
        '"tree":[4],"privacy":{"model":"secure-aggregation"},'
        '"cohort":{"min_survivors":5,"max_colluding":1},'
        '"rounds":[{"kind":"histogram","nodes":[4],"noise":[],"largest":1099511627776}]}'
    )
    written = plan_for(Axis.uniform(4), score_sums=True).to_bytes().decode()
    assert written.endswith(
        '"rounds":[{"kind":"histogram","nodes":[4],"noise":[],"largest":1099511627776,'
        '"sums":{"steps":256,"noise":0.0}}]}'
    )
    assert b"sums" not in plan_for(Axis.uniform(4)).to_bytes()


def test_any_difference_changes_the_digest():
    plans = [
        *(plan_for(positive=positive) for positive in POSITIVES),
        *(plan_for(Axis.uniform(65)), plan_for(CLIPPED), plan_for(tree=(8, 8))),
        *(plan_for(score_sums=True), plan_for(min_cell=10), plan_for(min_cell=11)),
        EvaluationPlan.for_histogram(Axis.uniform(64), Cohort(6)),
        EvaluationPlan.for_histogram(Axis.uniform(64), Cohort(5, max_colluding=0)),
        plan_for().with_not_after(WRITTEN),
    ]
    assert len({plan.digest for plan in plans}) == len(set(plans)) == len(plans)


@pytest.mark.parametrize("ending", ["json", "toml"])
def test_save_and_load(ending, tmp_path):
    plan = plan_for(AXES["edges"], "oui, ü")
    plan.save(tmp_path / f"plan.{ending}")
    for path in (tmp_path / f"plan.{ending}", str(tmp_path / f"plan.{ending}")):
        assert EvaluationPlan.load(path) == plan
        assert EvaluationPlan.load(path).digest == plan.digest
    if ending == "json":
        assert (tmp_path / "plan.json").read_bytes() == plan.to_bytes()


def test_a_plan_saved_by_hand_or_not_cannot_be_changed():
    plan = plan_for()
    edited = plan.to_toml().replace("low = 0.0", "low = 0  # probabilities")
    assert edited != plan.to_toml()
    assert EvaluationPlan.from_toml(edited).digest == plan.digest
    for name in ("task", "axis", "tree", "privacy", "cohort", "rounds", "digest"):
        with pytest.raises(AttributeError):
            setattr(plan, name, None)
    with pytest.raises(AttributeError):
        plan.cohort.min_survivors = 1
    with pytest.raises(AttributeError):
        plan.task.positive = "no"


def test_a_plan_for_a_histogram_and_its_size_with_score_sums():
    plan = plan_for(tree=(4, 16))
    assert plan.tree == (4, 16)
    assert plan.rounds == (fg.HistogramRound(nodes=(64,)),)
    assert plan.privacy == fg.SecureAggregation()
    assert plan.task.rows_sent == 2
    assert plan.bytes_per_client == 2 * 64 * 8
    assert plan_for().tree == (64,)
    statement = plan_for().statement("simulated")
    assert (statement.model, statement.claim) == ("secure-aggregation", "simulated")
    assert (statement.epsilon, statement.delta, statement.unit) == (None, None, None)
    assert statement.cohort == Cohort(5)
    plan = plan_for(CLIPPED, score_sums=True)
    assert plan.final.sum_steps == 256
    assert plan.numbers == 2 * (64 + 64)
    assert plan.bytes_per_client == 2 * 128 * 8
    assert NOISY_SUMS.numbers == 2 * (8 + 64 + 64)
    assert plan_for().final.sum_steps == 0


def test_bytes_in_another_form_are_refused():
    for change in (
        lambda data: data + b"\n",
        lambda data: b" " + data,
        lambda data: data.replace(b",", b", "),
        lambda data: data.replace(b'"low":0.0', b'"low":0'),
        lambda data: data.replace(b'"high":1.0', b'"high":1.00'),
        lambda data: data.replace(b',"limit":null', b""),
        lambda data: data.replace(b'"positive":null', b'"positive":null,"positive":null'),
        lambda data: data.replace(b'"binary"', b'"\\u0062inary"'),
        lambda data: json.dumps(json.loads(data), sort_keys=True, separators=(",", ":")).encode(),
        lambda data: json.dumps(json.loads(data), indent=2).encode(),
    ):
        data = change(plan_for().to_bytes())
        assert data != plan_for().to_bytes()
        refused(PlanError, "not in the form it is distributed in", EvaluationPlan.from_bytes, data)


def test_unknown_fields_are_refused():
    for changes in (
        *({f"{path}extra": 1} for path in ("", "task__", "axis__", "privacy__", "cohort__")),
        {"rounds": [{"kind": "histogram", "nodes": [64], "extra": 1}]},
    ):
        refused(
            PlanError, "unknown field", EvaluationPlan.from_bytes, altered(plan_for(), **changes)
        )
        toml = msgspec.toml.encode(without_none(plain(plan_for(), **changes))).decode()
        refused(PlanError, "unknown field", EvaluationPlan.from_toml, toml)


def test_altered_plans_are_refused():
    for changes, told in (
        ({"axis__digest": "f" * 64}, "changed on the way"),
        ({"axis__high": 1.5}, "changed on the way"),
        ({"axis__outside": "clip"}, "changed on the way"),
        ({"axis__bins": 32}, "changed on the way"),
        ({"axis__digest": ""}, "not in the form"),
        ({"axis__kind": "logit"}, "another kind"),
        ({"axis__kind": "quantile"}, "Invalid enum value"),
        ({"axis__outside": "ignore"}, "Invalid enum value"),
        ({"axis__bins": 10**9}, "1,000,000,000 bins; at most 1,048,576"),
        ({"axis__bins": 64.5}, "Expected `int`"),
        ({"axis__low": "0"}, "Expected `float"),
        ({"axis": None}, "not a plan"),
        ({"tree": [8, 9]}, "does not divide 64 bins"),
        ({"tree": []}, "does not divide 64 bins"),
        *(({"tree": tree}, "divide 64 bins") for tree in ([-8, -8], [63], [64, 64], [0])),
        ({"rounds": []}, "a plan has one round, or two where it searches, got 0"),
        *(
            ({"rounds": [{"kind": "histogram", "nodes": nodes}]}, r"one round of \(64,\) counts")
            for nodes in ([], [32], [8, 64])
        ),
        ({"rounds": [{"kind": "histogram", "nodes": [64]}] * 2}, "two where it searches, got 2"),
        ({"rounds": [{"kind": "quantiles", "nodes": [64]}]}, "Invalid value"),
        ({"task__kind": "ranking"}, "Invalid value"),
        ({"task__positive": [1]}, "Expected `bool"),
        ({"privacy__model": "none"}, "Invalid value"),
        ({"cohort__min_survivors": 0}, "min_survivors must be at least 1"),
        ({"cohort__max_colluding": -1}, "max_colluding cannot be negative"),
        ({"cohort__min_survivors": 2.5}, "Expected `int`"),
    ):
        refused(PlanError, told, EvaluationPlan.from_bytes, altered(plan_for(), **changes))


def test_what_is_not_a_plan_is_refused():
    whole = plan_for(positive="SECRETLABEL").to_bytes()
    no_text = (whole[:place] + b"\xff" + whole[place + 1 :] for place in (10, 45))
    fields = json.loads(whole)
    fewer = (msgspec.json.encode({k: v for k, v in fields.items() if k != f}) for f in fields)
    plain = (b"", b"null", b"[]", b"[1]", b"{}", b"7", b'"plan"', b"\xff", b"{", whole[:-1])
    for data in (*plain, b'{"axis":{"bins":1e99}}', *no_text, *fewer):
        refused(PlanError, "not a plan in JSON", EvaluationPlan.from_bytes, data)


def test_any_single_altered_byte_is_refused():
    data = plan_for(positive="yes").to_bytes()
    rng = np.random.default_rng(0)
    accepted = []
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= int(rng.integers(1, 128))  # stays ASCII
        try:
            plan = EvaluationPlan.from_bytes(bytes(changed))
        except PlanError:
            continue
        # A few bytes are free, such as a letter of the label; then the digest tells.
        assert plan.digest != plan_for(positive="yes").digest
        accepted.append(place)
    assert len(accepted) < 10


def test_altered_toml_is_refused():
    for find, put, told in (
        ("bins = 64", "bins = 32", "changed on the way"),
        ("high = 1.0", "high = 2.0", "changed on the way"),
        ('kind = "binary"', 'kind = "other"', "Invalid value"),
        ("bins = 64", 'bins = "64"', "Expected `int`"),
        ("[axis]", "[axes]", "not a plan in TOML"),
        ("[axis]", "[axis", "not a plan in TOML"),
        ("min_survivors = 5", "min_survivors = 0", "at least 1"),
    ):
        text = plan_for().to_toml()
        assert find in text
        refused(PlanError, told, EvaluationPlan.from_toml, text.replace(find, put))


@pytest.mark.parametrize("name", ["plan", "plan.yaml", "plan.txt", "toml"])
def test_other_endings_are_refused(name, tmp_path):
    refused(PlanError, r"ends in \.json or \.toml", plan_for().save, tmp_path / name)
    assert not (tmp_path / name).exists()
    (tmp_path / name).write_bytes(plan_for().to_bytes())
    refused(PlanError, r"ends in \.json or \.toml", EvaluationPlan.load, tmp_path / name)


@pytest.mark.parametrize("ending", ["json", "toml"])
def test_files_of_other_endings_or_that_cannot_be_read(ending, tmp_path):
    refused(PlanError, "cannot read plan", EvaluationPlan.load, tmp_path / f"none.{ending}")
    (tmp_path / f"folder.{ending}").mkdir()
    refused(PlanError, "cannot read plan", EvaluationPlan.load, tmp_path / f"folder.{ending}")
    (tmp_path / f"bytes.{ending}").write_bytes(b"\xff\xfe\x00")
    refused(PlanError, "not", EvaluationPlan.load, tmp_path / f"bytes.{ending}")


def test_cohorts_that_can_and_that_cannot_be():
    assert Cohort() == Cohort(min_survivors=3, max_colluding=1)
    for survivors, colluding in [(1, 0), (1, 1), (3, 0), (10**6, 10), (MOST_CLIENTS,) * 2]:
        cohort = Cohort(survivors, colluding)
        assert (cohort.min_survivors, cohort.max_colluding) == (survivors, colluding)
    for survivors, colluding, told in (
        (0, 1, "min_survivors must be at least 1, got 0"),
        (-1, 1, "min_survivors must be at least 1, got -1"),
        (3, -1, "max_colluding cannot be negative, got -1"),
        (2.5, 1, "min_survivors"),
        ("3", 1, "min_survivors"),
        (3, 2.5, "max_colluding"),
        (3, "3", "max_colluding"),
        (MOST_CLIENTS + 1, 1, "at most 16,777,216 clients"),
        (3, MOST_CLIENTS + 1, "at most 16,777,216 clients"),
    ):
        refused(PlanError, told, Cohort, survivors, colluding)


def with_sums(sums, axis=CLIPPED, privacy=None):
    plan = plan_for(axis, privacy=privacy)
    sent = msgspec.structs.replace(plan.final, sums=sums)
    return msgspec.structs.replace(plan, rounds=(sent,))


@pytest.mark.parametrize(
    "sums", [None, {"steps": 256}, {"noise": 0.0}, {"steps": 256, "noise": 0.0, "extra": 1}]
)
def test_score_sums_in_another_form_are_refused(sums):
    rounds = [{"kind": "histogram", "nodes": [64], "noise": [], "largest": LARGEST, "sums": sums}]
    refused(PlanError, r"form|field", EvaluationPlan.from_bytes, altered(plan_for(), rounds=rounds))


def test_plans_that_cannot_be():
    for options, told in (
        ({"tree": (8.0, 8)}, "tree"),
        *(
            ({"min_cell": m}, "min_cell must be")
            for m in (1, -10, 1_000_001, True, 2.0, "10", None)
        ),
        ({"axis": Axis.uniform(2**18 + 1), "min_cell": 2}, "at most 262,144 bins"),
        ({"axis": AXES["values"], "score_sums": True}, r"known already\. Leave the score sums out"),
        ({"axis": WIDE, "min_cell": 2, "score_sums": True}, "too wide for score sums"),
        *(
            ({"axis": CLIPPED, "privacy": privacy, "score_sums": True}, told)
            for privacy, told in (
                (SKELLAM, r"Use noise='polya', or leave the score sums out"),
                (GAUSSIAN, r"Use noise='polya', or leave the score sums out"),
                (DistributedDP(0.3), r"score sums is too wide.*Raise epsilon, or leave the"),
                (DistributedDP(3.0, unit="subject", max_per_unit=20), r"score sums is too wide"),
            )
        ),
    ):
        refused(PlanError, told, plan_for, **options)


def test_what_is_near_to_plans_that_cannot_be():
    with_sums(fg.ScoreSums(4, 0.06), privacy=DistributedDP(0.3))  # few steps are narrow
    assert plan_for(WIDE, min_cell=2).min_cell == 2


def test_score_sums_that_cannot_be():
    for sums, privacy, told in (
        *(
            (fg.ScoreSums(256, none), DistributedDP(1.0), "positive noise for score sums")
            for none in (0.0, -1.0, math.inf, math.nan)
        ),
        (fg.ScoreSums(256, 0.1), None, "adds no noise"),
        *((fg.ScoreSums(steps), None, "from 1 to 256") for steps in (0, -1, 257, 2**40)),
        *((fg.ScoreSums(256, 0.2), model, r"Use noise='polya'") for model in (SKELLAM, GAUSSIAN)),
    ):
        refused(PlanError, told, with_sums, sums, privacy=privacy)


def test_text_that_no_reader_ends_with_is_refused():
    nested = b"[" * 3000 + b"]" * 3000
    data = b'{"axis":' + nested + b',"tree":[16]}'
    refused(PlanError, "nested too deeply", EvaluationPlan.from_bytes, data)
    for tree in (nested.decode(), "[" + "9" * 5000 + "]"):
        refused(PlanError, "not a plan in TOML", EvaluationPlan.from_toml, f"tree = {tree}")


def test_a_sum_has_a_cohort_and_reports_have_none():
    axis = Axis.uniform(4, outside="clip")
    for privacy in (None, DistributedDP(1.0)):
        with pytest.raises(PlanError, match="needs a cohort"):
            EvaluationPlan.for_histogram(axis, None, privacy=privacy)
    refused(PlanError, "needs a cohort", EvaluationPlan.under, DistributedDP(1.0), axis)
    plan = EvaluationPlan.under(fg.LocalDP(1.0), axis)
    with pytest.raises(PlanError, match="for local reports, which nobody sums"):
        _ = plan.terms.sum_cohort
    refused(
        PlanError, "no score sums", EvaluationPlan.under, fg.LocalDP(1.0), axis, score_sums=True
    )


def test_cells_are_merged_where_a_plan_says_so_and_has_no_noise():
    assert b'"min_cell":10' in plan_for(min_cell=10).to_bytes()
    assert b"min_cell" not in plan_for().to_bytes()
    assert "min_cell" not in plan_for().to_toml()
    words = dict(plan_for(min_cell=12).in_words())
    assert "at least 12" in words["What is shown of small groups"]
    assert "What is shown of small groups" not in dict(plan_for().in_words())
    axis = Axis.uniform(16, outside="clip")
    with pytest.raises(PlanError, match="noise hides small cells"):
        EvaluationPlan.under(DistributedDP(1.0), axis, cohort=Cohort(3), min_cell=10)
    with pytest.raises(PlanError, match="noise hides small cells"):
        EvaluationPlan.under(fg.LocalDP(1.0), axis, min_cell=10)
    plain = json.loads(EvaluationPlan.under(fg.LocalDP(1.0), axis).to_bytes()) | {"min_cell": 10}
    with pytest.raises(PlanError, match="noise hides small cells"):
        EvaluationPlan.from_bytes(msgspec.json.encode(plain))


@pytest.fixture
def clock(monkeypatch):
    return lambda moment: monkeypatch.setattr(plan, "now", lambda: moment)


def test_a_plan_stores_one_form():
    for given, stored in (
        ("2026-12-31", "2026-12-31T23:59:59Z"),
        ("2028-02-29", "2028-02-29T23:59:59Z"),
        (WRITTEN, WRITTEN),
        ("2026-12-31T00:00:00Z", "2026-12-31T00:00:00Z"),
    ):
        plan = noisy_plan().with_not_after(given)
        assert plan.not_after == stored
        for again in (
            EvaluationPlan.from_bytes(plan.to_bytes()),
            EvaluationPlan.from_toml(plan.to_toml()),
            EvaluationPlan.from_toml(plan.to_toml().replace(f'"{stored}"', f'"{given}"')),
            EvaluationPlan.from_toml(plan.to_toml().replace(f'"{stored}"', given)),  # TOML's own
        ):
            assert again == plan
            assert again.digest == plan.digest


def test_only_plans_that_expire_say_so():
    plan = noisy_plan()
    assert plan.not_after is None
    assert b"not_after" not in plan.to_bytes()
    assert "not_after" not in plan.to_toml()
    assert plan.with_not_after(WRITTEN).with_not_after(None).to_bytes() == plan.to_bytes()
    assert WRITTEN not in explain(plan)
    assert f"No site counts under it after {WRITTEN}" in explain(plan.with_not_after(WRITTEN))


def test_the_clock_is_of_now():
    before = datetime.now(UTC)
    assert before <= plan.now() <= datetime.now(UTC)


MALFORMED = [
    *("", "soon", "2026-02-29", "2026-13-01", "2026-1-1", "20261231", "2026-W53-4", "2026-12-31Z"),
    *("2026-12-31T18:00:00", "2026-12-31T18:00Z", "2026-12-31T18:00:00.5Z", "2026-12-31T24:00:00Z"),
    *("2026-12-31T25:00:00Z", "2026-12-31T18:00:00+02:00", "2026-12-31T18:00:00z"),
    *("2026-12-31 18:00:00Z", "2026-12-31T18:00:00Z\n", "٢٠٢٦-12-31"),
]


@pytest.mark.parametrize("moment", MALFORMED)
def test_a_malformed_moment_is_refused(moment):
    toml = f"not_after = {json.dumps(moment)}\n{noisy_plan().to_toml()}"
    for read in (
        lambda: noisy_plan().with_not_after(moment),
        lambda: EvaluationPlan.from_bytes(altered(noisy_plan(), not_after=moment)),
        lambda: EvaluationPlan.from_toml(toml),
    ):
        refused(PlanError, "not_after must be a day or a moment in UTC", read)


def test_a_moment_is_text_in_the_stored_form():
    for moment in ("1", "true", "18:00:00", WRITTEN[:-1], f"{WRITTEN[:-1]}+02:00"):
        with pytest.raises(PlanError, match="not_after"):
            EvaluationPlan.from_toml(f"not_after = {moment}\n{noisy_plan().to_toml()}")
    refused(PlanError, "got datetime", noisy_plan().with_not_after, LAST)
    with pytest.raises(PlanError, match="not in the form it is distributed in"):
        EvaluationPlan.from_bytes(altered(noisy_plan(), not_after="2026-12-31"))


@pytest.mark.parametrize(
    ("moment", "refused"),
    [(LAST, False), (LAST + 0.999 * SECOND, False), (LAST + SECOND, True)],
    ids=["at", "within its second", "after"],
)
@pytest.mark.parametrize("make", [noisy_plan, exact_plan])
def test_a_site_judges_by_its_clock(tmp_path, clock, make, moment, refused):
    site = make_site(tmp_path / "site")
    members = [site.key.public, *(key.public for key in PEERS.values())]
    clock(moment)
    site.judge(make(), members=members, coordinator=BOSS.public)  # does not expire
    asked = {"members": members, "coordinator": BOSS.public}
    if not refused:
        site.judge(make().with_not_after(WRITTEN), **asked)
        return
    with pytest.raises(fg.PlanRefused, match=re.escape(f"until {WRITTEN} (not_after)")):
        site.judge(make().with_not_after(WRITTEN), **asked)


@pytest.mark.parametrize("with_site", [True, False])
def test_no_report_is_made_of_an_expired_plan(tmp_path, clock, with_site):
    site = make_site(tmp_path / "site") if with_site else None
    plan = report_plan(fg.LocalDP(1.0), (8,)).with_not_after(WRITTEN)
    clock(LAST)
    write_reports(plan, ROWS, tmp_path / "in-time.fgr", site=site)
    clock(LAST + SECOND)
    with pytest.raises(fg.PlanRefused, match="not_after"):
        write_reports(plan, ROWS, tmp_path / "late.fgr", site=site)
    refused(fg.PlanRefused, "not_after", next, fg.encode_rows(plan, ROWS))
    assert not (tmp_path / "late.fgr").exists()
    if site is not None:
        refused(fg.PlanRefused, "not_after", site.judge_reports, plan)
        assert [entry.kind for entry in site.ledger.entries()] == ["reserve", "commit", "sent"]


def test_reports_that_were_made_in_time_are_taken_in_later(clock):
    """They are private by themselves, and nothing in them says when they were made."""
    plan = report_plan(fg.LocalDP(1.0), (8,)).with_not_after(WRITTEN)
    clock(LAST)
    messages = list(fg.encode_rows(plan, ROWS))
    clock(LAST + SECOND)
    with fg.ReportServer(plan) as server:
        assert server.accept_all(messages).accepted == 2


def test_exact_sums_go_on_under_a_later_date(tmp_path, clock):
    """One plan for all exact sums on a dataset: a later date measures nothing else."""
    site = make_site(tmp_path / "site")
    roster = SumRoster(frozenset([site.key.public, *(key.public for key in PEERS.values())]), 6)
    clock(LAST)
    for number, moment in enumerate([None, WRITTEN, "2027-12-31"]):
        plan = exact_plan(cohort=fg.Cohort(6)).with_not_after(moment)
        site.reserve(bytes([number]) * 32, plan, roster=roster)
    with pytest.raises(fg.PlanRefused):
        site.reserve(b"x" * 32, exact_plan(cohort=fg.Cohort(6), bins=16), roster=roster)


PLAN = plan_for_sizes(bins=64)
plain_sizes = partial(plain, PLAN)


def names(count):
    return [str(number) for number in range(count)]


def plain_task(**fields):
    return plain_sizes(task={"kind": "binary", "positive": None, **fields})


def plain_classes(count, **fields):
    return plain_sizes(task={"kind": "multiclass", "labels": names(count), **fields})


TOO_LARGE = {
    "bins": (plain_sizes(axis__bins=2**24), "16,777,216 bins"),
    "points": (plain_sizes(axis__points=[0.0] * (MOST_POINTS + 2)), "one of another kind"),
    "levels": (plain_sizes(tree=[2] * 25), "at most 24 levels"),
    "one branch": (plain_sizes(tree=[64, 1]), "level of one branch"),
    "nodes": (plain_sizes(rounds=[{"kind": "histogram", "nodes": [1] * 25}]), r"of \(64,\) counts"),
    "knots": (
        plain_sizes(
            calibrator={
                "method": "test",
                "form": {"kind": "steps", "edges": [0.5] * (MOST_KNOTS + 1), "values": [0.5]},
            }
        ),
        "at most 65,536 numbers",
    ),
    "models": (plain_task(models=names(1001)), "1 to 1,000 names"),
    "classes of models": (plain_classes(40, models=names(26)), "at most 1,000 times"),
    "groupings": (plain_task(groups={name: ["x"] for name in names(1001)}), "1,000 groupings"),
    "crossed": (plain_task(groups={n: ["x"] for n in names(1000)}, crossed=True), "1,000 groups"),
    "counts": (plain_classes(1000, groups={"ward": names(1000)}), "at most 67,108,864 counts"),
    "pairs": (plain_task(models=["a", "b"], pairs=[["a", "b"]] * 65), "at most 64 tables"),
    "rounds": (plain_sizes(rounds=[{"kind": "histogram", "nodes": [64]}] * 9), "got 9"),
}


@pytest.fixture
def _nothing_large_is_built(monkeypatch):
    build = Axis.from_spec

    def refuse(spec):
        assert spec.bins <= PLAN.axis.bins, "a large axis was built"
        return build(spec)

    monkeypatch.setattr(Axis, "from_spec", refuse)


@pytest.mark.usefixtures("_nothing_large_is_built")
@pytest.mark.parametrize("name", TOO_LARGE)
def test_sizes_are_judged_before_anything_large_is_built(name):
    found, told = TOO_LARGE[name]
    record = msgspec.json.encode({"format": FORMAT, "plan": found})
    toml = msgspec.toml.encode(without_none(found)).decode()
    refused(PlanError, told, EvaluationPlan.from_bytes, msgspec.json.encode(found))
    refused(PlanError, told, EvaluationPlan.from_toml, toml)
    refused(fg.RecordError, told, Record.from_json, record)


@pytest.mark.usefixtures("_nothing_large_is_built")
def test_sizes_are_counted_before_anything_is_read():
    with pytest.raises(PlanError, match="at most 8,388,608 bytes"):
        EvaluationPlan.from_bytes(b" " * (limits.MOST_BYTES + 1))
    with pytest.raises(PlanError, match="at most 8,388,608 bytes"):
        EvaluationPlan.from_toml(" " * (limits.MOST_BYTES + 1))
    with pytest.raises(fg.PlanRefused, match=r"64 bins, this site allows 63 \(max_bins\)"):
        EvaluationPlan.from_bytes(PLAN.to_bytes(), most_bins=63)
    data = PLAN.to_bytes()
    axis = data[data.index(b'"axis"') : data.index(b'"tree"')]
    refused(PlanError, "at most 2 axes", EvaluationPlan.from_bytes, data.replace(axis, axis * 3))


def test_the_largest_sizes_can_be_read_and_longer_lists_are_refused():
    plan = plan_for_sizes(DistributedDP(1.0), (2,) * 20)
    assert plan.axis.bins == MOST_BINS
    assert EvaluationPlan.from_bytes(plan.to_bytes()) == plan
    rng = np.random.default_rng(1)
    edges = np.unique(-rng.random(MOST_POINTS + 1) * 1e-300)
    plan = EvaluationPlan.for_histogram(Axis.from_edges(edges), Cohort(3))
    assert len(plan.to_bytes()) < limits.MOST_BYTES
    assert EvaluationPlan.from_bytes(plan.to_bytes()).axis.bins == MOST_POINTS
    for make in (Axis.from_edges, Axis.from_values):
        refused(AxisError, "at most 262,144 bins", make, np.arange(MOST_POINTS + 2.0))


def test_a_tree_of_one_bin_is_one_level_and_levels_of_equal_noise_share_a_table():
    assert plan_for_sizes(DistributedDP(1.0), (1,)).tree == (1,)
    refused(PlanError, "one branch", plan_for_sizes, DistributedDP(1.0), (1, 1))
    # One table of 2^18 values is allowed, and levels that differ would take eight.
    assert with_noise(DistributedDP(1.0), [3.3e-4] * 8).statement("enforced").epsilon == 1.0


def with_noise(model, noise, parties=3):
    tree = (2,) * len(noise)
    nodes = tuple(2 ** (level + 1) for level in range(len(noise)))
    axis = Axis.uniform(nodes[-1], outside="clip")
    rounds = (fg.HistogramRound(nodes, tuple(noise)),)
    return EvaluationPlan(BinaryTask(), axis, tree, model, Cohort(parties, 1), rounds)


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
        monkeypatch.setattr(noise, law, refuse)
    refused(PlanError, "too wide to be drawn", DEAR_TO_DRAW[name].statement, "enforced")


def of_subjects(most, noise):
    return DistributedDP(1.0, delta=1e-6, noise=noise, unit="subject", max_per_unit=most)


def test_noise_that_cannot_be_accounted_for_is_refused():
    long, few = "too long to be accounted for", "its noise costs more"
    for model, variances, parties, told in (
        (GAUSSIAN, [9e7 + n for n in range(20)], 2**24, long),
        (of_subjects(30_000, "discrete-gaussian"), [4e6 + n for n in range(20)], 3, long),
        (of_subjects(1_000_000, "skellam"), [1e4] * 2, 3, few),  # two hardly share such noise
    ):
        refused(PlanError, told, with_noise(model, variances, parties).check_promise)


def test_the_gap_of_very_many_shares_is_bounded_from_above():
    # The first 2^16 terms are summed, the others bounded by the last of these.
    parties, sigma2 = 100_000, 60_000.0
    k = np.arange(1, parties)
    exact = float(10 * np.exp(-2 * np.pi**2 * sigma2 / parties * k / (k + 1)).sum())
    bound = accounting.gaussian_tau(sigma2, parties)
    assert exact <= bound <= exact * 1.001
    assert accounting.gaussian_tau(1e8, 2**24) < 1e-20


def test_slices_that_no_site_could_hold_make_no_plan():
    many = [str(i) for i in range(1000)]
    for task in (
        MulticlassTask(labels=many[:400], models=("new", "old", "third")),
        MulticlassTask(labels=many, groups={"ward": many[:100]}),
    ):
        refused(PlanError, "Tell less apart", plan_for_sizes, bins=4, task=task)
