"""Plans and results that others made, and what is read with them."""

import base64
import json
import shutil
from contextlib import suppress
from pathlib import Path

import commands
import fuzz_inputs
import msgspec
import numpy as np
from alone_world import NOISE
from calibrators import FORMS
from consortium import COORDINATOR
from exchange import make_world
from plans import plan_for, report_plan
from rows import draw_clients
from sites import make_site

import fedgauge as fg
from fedgauge.errors import FedgaugeError
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.local.rounds import SecondPlan, load_plan
from fedgauge.plan.explain import brief, explain
from fedgauge.plan.task import BinaryTask, MulticlassTask, MultilabelTask
from fedgauge.plan.two_rounds import Found
from fedgauge.results import signature
from fedgauge.vertical.auc import LabelAuc, is_auc


def some_plans():
    axis = fg.Axis.uniform(8, outside="clip")
    noisy, label = fg.DistributedDP(1.0), fg.LocalDP(1.0, unit="label")
    two = fg.TwoRound(4, coarse=fg.Axis.uniform(4, 0.0, 4.0, outside="clip"))
    searching = fg.EvaluationPlan.for_reports(two, fg.LocalDP(1.0))
    steps = fg.Calibrator("test", FORMS["steps"])
    tasks = [
        BinaryTask("yes", groups={"sex": ["women", "men"], "ward": ["1"]}, crossed=True),
        BinaryTask(models=("new", "old"), pairs=(("new", "old"),)),
        MulticlassTask(labels=("a", "b", "c"), also=("confusion", "top")),
        MultilabelTask(labels=("a", "b")),
    ]
    plans = [
        plan_for(bins=8, outside="refuse", min_cell=10),
        plan_for(noisy, (2, 4), score_sums=True, largest=1000),
        plan_for(fg.DistributedDP(1.0, delta=1e-6, noise="skellam"), bins=4),
        plan_for(fg.DistributedDP(1.0, delta=1e-6, noise="discrete-gaussian"), bins=4),
        plan_for(fg.DistributedDP(1.0, unit="subject"), bins=4),
        msgspec.structs.replace(plan_for(bins=4), not_after="2030-01-01", calibrator=steps),
        fg.EvaluationPlan.for_histogram(fg.Axis.from_values([0.1, 0.4, 2.0]), fg.Cohort(3, 1)),
        fg.EvaluationPlan.for_histogram(two, fg.Cohort(3, 1), privacy=noisy),
        report_plan(fg.LocalDP(1.0), (2, 3)),
        report_plan(fg.LocalDP(5.0, oracle="hadamard"), (3, 2)),
        searching,
        searching.located(Found(two, (10, 50, 0, 10), 70)),
        fg.EvaluationPlan.for_flips(axis, label),
        fg.EvaluationPlan.for_pairs("adaptive", 5000, NOISE),
    ]
    for task in tasks:
        for privacy in (None, noisy):
            with suppress(FedgaugeError):
                plans.append(plan_for(privacy, bins=8, task=task))
    return plans


def look_at(plan):
    """All that is asked of a plan before anybody agrees to it."""
    fuzz_inputs.each_alone(
        plan.check_promise,
        plan.check_time,
        lambda: plan.statement("enforced"),
        lambda: repr(plan),
        lambda: explain(plan),
        lambda: brief(plan),
        lambda: plan.bytes_per_client,
    )


def plan_bytes():
    site = make_site(fuzz_inputs.new_folder() / "a")

    def run(data):
        plan = fg.EvaluationPlan.from_bytes(data)
        look_at(plan)
        fuzz_inputs.each_alone(plan.to_toml, lambda: site.judge_reports(plan))

    return [plan.to_bytes() for plan in some_plans()], run


def plan_toml():
    path = fuzz_inputs.new_folder() / "plan.toml"

    def run(data):
        path.write_bytes(data)
        look_at(load_plan(path))

    return [plan.to_toml().encode() for plan in some_plans()], run


def second_plan():
    key = SigningKey.from_bytes(bytes(31) + b"\1")
    seeds = [plan.to_bytes() for plan in some_plans() if plan.found is not None]

    def run(data):
        text, signature = key_to_text(key.public), key.sign(b"fedgauge second plan\0" + data)
        head = msgspec.json.encode({"signer": text, "signature": signature})[:-1]
        look_at(SecondPlan.from_bytes(head + b',"plan":' + data + b"}").signed_by([key.public]))

    return seeds, run


def second_file():
    path, key = fuzz_inputs.new_folder() / "second.json", SigningKey.from_bytes(bytes(31) + b"\1")
    found = [plan for plan in some_plans() if plan.found is not None]

    def run(data):
        path.write_bytes(data)
        plan = load_plan(path)
        look_at(plan.signed_by([plan.signer]) if isinstance(plan, SecondPlan) else plan)

    return [SecondPlan.sign(plan, key).data for plan in found], run


def some_results():
    folder = Path(__file__).parent.parent / "fixtures" / "results"
    kept = [path for path in folder.glob("*.json") if ".numbers" not in path.name]
    seeds = [p.read_bytes() for p in sorted(kept) if p.stat().st_size < 60_000]
    sites, path = draw_clients(3), fuzz_inputs.new_folder() / "result.json"
    plans = [plan for plan in some_plans() if isinstance(plan.task, BinaryTask)]
    for plan in plans:
        with suppress(FedgaugeError):
            fg.evaluate(sites, plan, seed=1).to_json(path)
            seeds.append(path.read_bytes())
    return seeds


def look_at_result(result, data):
    steps = [
        lambda: result.signature.in_words,
        lambda: str(result),
        lambda: repr(result),
        lambda: result.roc_auc,
        lambda: result.record,
        lambda: result.to_frame(thresholds=[0.5]),
        lambda: result.calibrator(),
    ]
    fuzz_inputs.each_alone(*fuzz_inputs.part_of(data, steps))


def result_json():
    path, page = fuzz_inputs.new_folder() / "result.json", fuzz_inputs.new_folder() / "page.html"
    map_ = fg.Calibrator("test", FORMS["beta"])

    def run(data):
        path.write_bytes(data)
        result = fg.Evaluation.from_json(path)
        look_at_result(result, data)
        if fuzz_inputs.every(data, 5):
            look_at_result(result.with_calibrator(map_), data)
        if fuzz_inputs.every(data, 20):
            result.to_html(page)

    return some_results(), run


def signed_result():
    world = make_world(fuzz_inputs.new_folder(), ["hospital-a", "hospital-b", "hospital-c"])
    world.start(world.run, fg.EvaluationPlan.load(world.folder / "plan.json"))
    world.finish()
    saved, key = (world.run / "result.json").read_bytes(), world.site(COORDINATOR).key
    path = fuzz_inputs.new_folder() / "result.json"

    def run(data):
        with fuzz_inputs.forgiving():
            fields = json.loads(data)
            signed = key.sign(signature._covered(fields))
            fields["proof"]["signature"] = base64.b64encode(signed).decode()
            data = msgspec.json.encode(fields)
        path.write_bytes(data)
        look_at_result(fg.Evaluation.from_json(path), data)

    return [saved], run


def auc_result():
    path = fuzz_inputs.new_folder() / "auc.json"
    scores = {i: (i % 10) / 10 for i in range(200)}
    labels = {"a": {i: i % 10 > 6 for i in range(100)}}
    labels["b"] = {i: i % 10 > 4 for i in range(100, 200)}
    fg.evaluate_vertical(
        scores, labels, only="roc_auc", mechanism="adaptive", privacy=NOISE, seed=1
    ).to_json(path)
    seed = path.read_bytes()

    def run(data):
        path.write_bytes(data)
        is_auc(path)
        found = LabelAuc.from_json(path)
        fuzz_inputs.each_alone(
            lambda: str(found), found._repr_html_, lambda: found.record.to_json()
        )

    return [seed], run


def calibrator():
    scores = np.linspace(0, 1, 50)

    def run(data):
        found = fg.Calibrator.from_bytes(data)
        fuzz_inputs.each_alone(
            lambda: repr(found),
            lambda: found.digest,
            found.in_words,
            lambda: found.transform(scores),
            lambda: look_at(msgspec.structs.replace(plan_for(bins=4), calibrator=found)),
        )
        assert fg.Calibrator.from_bytes(found.to_bytes()).digest == found.digest

    return [fg.Calibrator("test", form).to_bytes() for form in FORMS.values()], run


def trend():
    folder = fuzz_inputs.new_folder()
    results = []
    for week in (1, 2, 3):
        fg.evaluate(draw_clients(3, seed=week), plan_for(bins=8)).to_json(folder / "r.json")
        results.append((folder / "r.json").read_bytes())
    names = ["2026-W01.json", "2026-W02.json", "2026-W03.json"]

    def run(data):
        names, contents = fuzz_inputs.parts_of(data, list, list)
        shutil.rmtree(folder, ignore_errors=True)
        fuzz_inputs.write_files(folder, names, contents)
        found = fg.read_trend(folder)
        looks = list(found.results.values())
        steps = [
            lambda: str(found),
            lambda: found.to_csv(folder / "t.csv"),
            lambda: found.to_json(folder / "t.json"),
            lambda: str(fg.diff(looks[0], looks[-1])),
        ]
        fuzz_inputs.each_alone(*fuzz_inputs.part_of(data, steps))

    return [
        fuzz_inputs.pack([names, results]),
        fuzz_inputs.pack([["week-9.json", "b.json"], results[:2]]),
    ], run


def shown():
    """Commands that print something of somebody else's; a crash of theirs is a finding."""
    path = fuzz_inputs.new_folder() / "given.json"
    plans = [plan.to_bytes() for plan in some_plans()[:6]]

    def run(data):
        path.write_bytes(data)
        for command in fuzz_inputs.part_of(
            data, [["show"], ["verify"], ["explain"], ["diff", path]], 4
        ):
            done = commands.run(command[0], path, *command[1:])
            assert done.exit_code in (0, 1, 2), done.exit_code
            assert "Traceback" not in done.output
            assert "Usage:" not in done.output  # it was asked in the right way

    return [*some_results()[:20], *plans], run
