"""What a plan costs before it is judged: seconds and memory of a site that only had to say no. The
attacker is an approved coordinator. It writes the bytes of a plan by hand, a few kilobytes that ask
for a lot, and sends them as an invitation. The site must refuse after little work."""

import os
import tracemalloc

import msgspec
import pytest
from consortium import COORDINATOR
from envelopes import sealed
from hostile import VICTIM, Attacker, exact_plan, exact_policy, noisy_plan, small_sites
from limits import limited
from rows import draw_client

import fedgauge as fg
from fedgauge.engines.participant import Participant
from fedgauge.protocol import COORDINATOR as FROM_COORDINATOR
from fedgauge.protocol import EVERYONE, session_id
from fedgauge.secagg import Stage
from fedgauge.secagg.messages import Terms

MOST_BYTES = 64 << 20


def invitation(attack, plan_bytes):
    """An invitation that holds whatever the coordinator wrote."""
    site = attack.sites.site(COORDINATOR)
    body = Terms(
        plan=plan_bytes,
        run=os.urandom(32),
        members=sorted(attack.sites.keys[name] for name in attack.clients),
        coordinator=site.key.public,
        degree=2,
        threshold=3,
        model=b"",
        box=bytes(32),
    ).to_bytes()
    return sealed(
        site.key, session_id(body), Stage.ADVERTISE, FROM_COORDINATOR, EVERYONE, body
    ).to_bytes()


def written(plan, **changes):
    """A plan's bytes, some fields of which are changed by hand."""
    plain = msgspec.json.decode(plan.to_bytes())
    for path, value in changes.items():
        *folders, name = path.split("__")
        at = plain
        for folder in folders:
            at = at[int(folder)] if isinstance(at, list) else at[folder]
        at[name] = value
    return msgspec.json.encode(plain)


def many_levels(count=300):
    """One-branch levels, each with noise of its own: a table for each."""
    noise = [0.9 / (count + 1) * (1 - i * 1e-5) for i in range(count + 1)]
    nodes = [1] * count + [8]
    return written(noisy_plan(3), tree=nodes, rounds__0__nodes=nodes, rounds__0__noise=noise)


def many_reports(count=300):
    axis = fg.Axis.uniform(8, outside="clip")
    plan = fg.EvaluationPlan.for_reports(axis, fg.LocalDP(1.0))
    nodes, chances = [1] * count + [8], plan.final.noise * (count + 1)
    return written(plan, tree=nodes, rounds__0__nodes=nodes, rounds__0__noise=chances)


def many_bins(plan=None, bins=1 << 24, **more):
    changes = {"axis__bins": bins, "axis__digest": "", "tree": [bins], "rounds__0__nodes": [bins]}
    return written(plan or exact_plan(3), **changes, **more)


def odd_bins():
    """Edges that are no short fractions are worked out one by one."""
    plan = exact_plan(3, fg.Axis.uniform(8, 0.1, 0.9, outside="clip"))
    return many_bins(plan, axis__low=0.123456789012345, axis__high=0.923456789012346)


def sliced(**task):
    """Slices that a few kilobytes name."""
    return written(exact_plan(3), task={"kind": "binary", "positive": None, **task})


def names(count, start=""):
    return [f"{start}{i}" for i in range(count)]


def many_groups():
    """A thousand cells of two groupings, crossed, of a thousand classes each of two models."""
    by = {"a": names(31), "b": names(31)}
    classes = {"kind": "multiclass", "labels": names(500), "models": ["new", "old"]}
    return sliced(**classes, groups=by, crossed=True)


def fine_pairs():
    """Each pair of models in a million cells."""
    models = names(12)
    task = fg.BinaryTask(models=models, pairs=[(models[0], each) for each in models[1:]])
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(512, outside="clip"), fg.Cohort(3, 1), task=task
    )
    tables = [{"kind": "joint", "models": pair} for pair in task.pairs]
    return written(plan, rounds__0__tables=tables)


def many_tables():
    """As many as a plan may have, each with noise of its own: a table of it for each."""
    models = names(64)
    task = fg.BinaryTask(models=models, pairs=[(models[0], each) for each in models[1:]])
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(4, outside="clip"),
        fg.Cohort(3, 1),
        task=task,
        privacy=fg.DistributedDP(1.0),
    )
    tables = [
        {"kind": "joint", "models": pair, "noise": 1e-3 * (1 + i * 1e-4)}
        for i, pair in enumerate(task.pairs)
    ]
    return written(plan, rounds__0__tables=tables)


PLANS = {
    "models": lambda: sliced(models=names(1000)),
    "groups": many_groups,
    "groupings": lambda: sliced(groups={name: ["x"] for name in names(3000)}),
    # Groups whose number has six thousand digits: it is never worked out.
    "crossed groups": lambda: sliced(groups={n: ["x"] for n in names(21_000)}, crossed=True),
    "classes": lambda: sliced(kind="multiclass", labels=names(1000)),
    "fine pairs": fine_pairs,
    "tables": many_tables,
    "levels": many_levels,
    "reports": many_reports,
    "bins": many_bins,
    "odd bins": odd_bins,
    "logit bins": lambda: many_bins(exact_plan(3, fg.Axis.logit(8, outside="clip")), 1 << 18),
    # Branchings whose product is a number of two megabytes.
    "a long product": lambda: written(exact_plan(3), tree=[2**62] * 100_000 + [8]),
}


@pytest.fixture
def attack(folder):
    return Attacker(folder, small_sites(2), policy=exact_policy())


def answered(attack, data):
    """The site's answer to an invitation, if it takes little work."""
    site = attack.sites.site(VICTIM)
    with limited():
        return Participant(site, lambda: attack.clients[VICTIM]).answer(data)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_a_costly_plan_is_refused_after_little_work_and_in_little_memory(attack, plan):
    data = invitation(attack, plan())
    with pytest.raises(fg.FedgaugeError) as refused:
        answered(attack, data)
    assert len(str(refused.value)) < 1000  # what is said of it is not as long as the plan
    tracemalloc.start()
    try:
        with pytest.raises(fg.FedgaugeError):
            answered(attack, data)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < MOST_BYTES


def test_a_plan_of_many_levels_is_not_read(tmp_path):
    """A careless operator explains, or encodes with, a plan that came by mail."""
    path = tmp_path / "plan.json"
    path.write_bytes(many_levels())
    with limited(), pytest.raises(fg.PlanError):
        fg.EvaluationPlan.load(path).statement("enforced")


@pytest.mark.parametrize("plan", [many_levels, many_bins], ids=["levels", "bins"])
def test_a_costly_plan_in_a_result_is_refused(tmp_path, plan):
    """A reader opens a result that came by mail; the plan is inside."""
    result = fg.evaluate({"a": draw_client(50, seed=1)}, axis=fg.Axis.uniform(8))
    record = msgspec.json.decode(result.record.to_json())
    record["plan"] = msgspec.json.decode(plan())
    record["privacy"]["cohort"] = record["plan"]["cohort"]
    path = tmp_path / "result.json"
    path.write_bytes(msgspec.json.encode(record))
    with limited(), pytest.raises(fg.FedgaugeError):
        str(fg.Evaluation.from_json(path))


def test_a_refusal_does_not_quote_megabytes(attack):
    """It goes to the operator's log, each time that the coordinator asks."""
    plan = noisy_plan(3, positive="x" * 1_000_000)
    refused = attack.ask(plan).refusals[VICTIM][1]
    assert len(str(refused)) < 300
