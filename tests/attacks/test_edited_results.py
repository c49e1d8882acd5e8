"""Results that were edited: what a reader is told of numbers and promises that nobody stands for.
The attacker passes a result on, and edits it first: it makes a simulation look enforced, adds an
epsilon, changes counts. A reader runs `fedgauge show`. It must refuse, or say that the result is
broken, or that nobody signed it."""

import copy
import itertools
import json

import numpy as np
import pytest
from commands import run
from hostile import Attacker, exact_plan, exact_policy, noisy_plan
from limits import MOST_CALLS, limited
from matplotlib.figure import Figure
from rows import draw_rows

import fedgauge as fg
from fedgauge.histograms.calibrator import Steps
from fedgauge.plots import save_plots

STANDINGS = ("verified", "unknown key", "unsigned", "broken")
CLIENTS = {f"site-{i}": draw_rows(2000, seed=i, rate=0.4) for i in range(3)}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results as they were made: between sites, exact and noisy, and in one process."""
    folder = tmp_path_factory.mktemp("results")
    policy = exact_policy(mix_exact=True)
    attack = Attacker(folder, CLIENTS, policy=policy)
    attack.ask(exact_plan(3))
    attack.ask(noisy_plan(3))
    made = {
        kind: json.loads((folder / f"run-{i}" / "result.json").read_text())
        for i, kind in enumerate(("exact", "noisy"))
    }
    fg.evaluate(CLIENTS, exact_plan(3)).to_json(folder / "simulated.json")
    return made | {"simulated": json.loads((folder / "simulated.json").read_text())}


def told(path):
    """What `show` says of who stands for a result; "refused" where it shows nothing."""
    shown = run("show", path)
    if shown.exit_code:
        return "refused"
    said = [standing for standing in STANDINGS if standing in shown.stdout.lower()]
    return said[0] if said else "nothing"


def save(folder, record):
    path = folder / "edited.json"
    path.write_text(json.dumps(record))
    return path


def put(*path, to):
    def edit(record):
        *outer, last = path
        for each in outer:
            record = record[each]
        record[last] = to

    return edit


def counts_changed(record):
    record["slices"][0]["counts"][1][0] += 100


def epsilon_added(record):
    record["privacy"].update(epsilon=0.1, delta=0.0, unit="example", neighbours="add-remove")


def noise_hidden(record):
    """A noisy result that says it is an exact one."""
    record["privacy"].update(epsilon=None, delta=None, unit=None, neighbours=None)


def signature_removed(record):
    """Whatever was added to a result so that it can be checked."""
    known = {"format", "plan", "privacy", "estimator", "clients", "slices", "reports", "level"}
    for name in set(record) - known:
        del record[name]


IN_ALL = {
    "counts changed": counts_changed,
    "clients changed": put("clients", to=30),
    "level changed": put("level", to=0.5),
    "metrics changed": put("slices", 0, "metrics", "roc_auc", "value", to=0.99),
    "curve changed": put("slices", 0, "curves", "roc", "tpr", 1, to=0.5),
    "plan changed": put("plan", "task", "positive", to="dead"),
    "inputs added": put("privacy", "public_inputs", to=["examples=100"]),
    "signature removed": signature_removed,
}
TO_EXACT = {
    "epsilon added": epsilon_added,
    "model renamed": put("privacy", "model", to="distributed-dp"),
}
TO_NOISY = {
    "epsilon lowered": put("privacy", "epsilon", to=0.01),
    "neighbours changed": put("privacy", "neighbours", to="replace-one"),
    "unit changed": put("privacy", "unit", to="client"),
    "noise hidden": noise_hidden,
}
STATEMENTS = [("exact", each) for each in TO_EXACT] + [("noisy", each) for each in TO_NOISY]
EDITS = [*STATEMENTS, *itertools.product(("exact", "noisy"), IN_ALL)]


def edited(record, edit):
    changed = copy.deepcopy(record)
    (IN_ALL | TO_EXACT | TO_NOISY)[edit](changed)
    return changed


@pytest.mark.parametrize(("kind", "edit"), EDITS)
def test_an_edited_result_is_not_shown_as_enforced(results, tmp_path, kind, edit):
    standing = told(save(tmp_path, edited(results[kind], edit)))
    assert standing in ("refused", "broken", "unsigned")
    assert standing != "unsigned" or edit == "signature removed"


@pytest.mark.parametrize("epsilon", [False, True])
def test_a_simulation_does_not_become_enforced(results, tmp_path, epsilon):
    """One word in a JSON file."""
    record = copy.deepcopy(results["simulated"])
    record["privacy"]["claim"] = "enforced"
    if epsilon:
        epsilon_added(record)
    assert told(save(tmp_path, record)) in ("refused", "broken", "unsigned")


@pytest.mark.parametrize(
    ("kind", "edit"), [*STATEMENTS, *(("simulated", each) for each in TO_EXACT)]
)
def test_a_statement_that_the_plan_does_not_make_is_refused(results, tmp_path, kind, edit):
    """Nobody's key is needed to see it: the plan is in the result."""
    with pytest.raises(fg.FedgaugeError):
        fg.Evaluation.from_json(save(tmp_path, edited(results[kind], edit)))


def test_a_signature_is_not_moved_to_another_result(results, tmp_path):
    record = copy.deepcopy(results["exact"])
    other = results["noisy"]
    for name in set(other) - {"format", "plan", "privacy", "estimator", "clients", "slices"}:
        record[name] = copy.deepcopy(other[name])
    record["slices"][0]["counts"][1][0] += 100
    assert told(save(tmp_path, record)) in ("refused", "broken")


@pytest.mark.parametrize("kind", ["exact", "noisy"])
def test_nothing_is_added_to_a_signed_result(results, tmp_path, kind):
    """Fields that this version does not know are not read, but people and other programs do."""
    record = copy.deepcopy(results[kind])
    record["privacy"]["approved_by"] = "the ethics board"
    assert told(save(tmp_path, record)) in ("refused", "broken")


def test_no_field_comes_twice(results, tmp_path):
    """Of two fields with one name some programs read the first and some the last."""
    text = json.dumps(results["exact"])
    path = tmp_path / "edited.json"
    path.write_text(text.replace('"clients": 3', '"clients": 30, "clients": 3', 1))
    assert path.read_text() != text
    assert told(path) in ("refused", "broken")


@pytest.mark.parametrize("kind", ["exact", "noisy"])
def test_a_result_between_sites_can_be_checked(results, tmp_path, kind):
    """The control: as it was made, somebody stands for it."""
    assert told(save(tmp_path, results[kind])) in ("verified", "unknown key")


def test_pictures_say_what_stands_behind_them(results, tmp_path, monkeypatch):
    """A figure travels further than its file: its footer says so, too."""
    from matplotlib.figure import Figure

    record = copy.deepcopy(results["exact"])
    counts_changed(record)
    figures, words = [], lambda artist: hasattr(artist, "get_text")
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    if run("show", save(tmp_path, record), "--plots", tmp_path / "plots").exit_code == 0:
        texts = [text.get_text() for figure in figures for text in figure.findobj(match=words)]
        assert figures
        assert any("broken" in text for text in texts)


@pytest.mark.parametrize("clients", [10**6, 2**70])
def test_a_made_up_number_of_clients_costs_a_reader_nothing(results, tmp_path, clients):
    """The noise of so many clients is not drawn up to say how wide it is."""
    record = copy.deepcopy(results["noisy"])
    record["clients"] = clients
    with limited(10 * MOST_CALLS):
        assert told(save(tmp_path, record)) in ("broken", "refused")


@pytest.mark.parametrize("count", [2**63, -(2**63), 1e300])
def test_made_up_counts_are_refused(results, tmp_path, count):
    record = copy.deepcopy(results["noisy"])
    record["slices"][0]["counts"][0][0] = count
    assert told(save(tmp_path, record)) == "refused"


def test_a_map_put_into_a_signed_result_is_told_wherever_its_signature_is(
    results, tmp_path, monkeypatch
):
    """A map that falls turns the AUC around, and all that was signed is as it was."""
    before = fg.Evaluation.from_json(save(tmp_path, results["exact"]))
    negatives, positives = before.released.counts
    shares = positives / np.maximum(negatives + positives, 1)
    form = Steps(before.released.axis.edges[1:-1], shares[::-1])
    after = before.with_calibrator(fg.Calibrator("auto", form))
    assert after.roc_auc.value < 0.5 < before.roc_auc.value
    after.to_json(tmp_path / "mapped.json")
    again = fg.Evaluation.from_json(tmp_path / "mapped.json")
    assert again.signature.state == "unknown key"  # what was signed is there
    assert not again.in_sample  # as the map says of itself
    covered = "which no signature covers"
    assert covered in str(again)
    assert covered in again._repr_html_()
    assert covered in " ".join(run("show", tmp_path / "mapped.json").stdout.split())
    drawn = []
    monkeypatch.setattr(Figure, "text", lambda *args, **_: drawn.append(args[3]))
    save_plots(again, tmp_path / "plots")
    assert len(drawn) == 4
    assert all(covered in " ".join(words.split()) for words in drawn)


@pytest.fixture(scope="module")
def sliced(tmp_path_factory):
    """A result between sites of two classes, by group, with a confusion matrix."""
    folder = tmp_path_factory.mktemp("sliced")
    clients = {
        name: fg.Examples(
            labels,
            np.column_stack([1 - scores, scores]),
            group=np.where(np.arange(len(labels)) % 3, "women", "men"),
        )
        for name, (labels, scores) in CLIENTS.items()
    }
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(8, outside="clip"),
        fg.Cohort(3, 1),
        task=fg.MulticlassTask(labels=[0, 1], groups={"sex": ["women", "men"]}, also=["confusion"]),
        privacy=fg.DistributedDP(1.0),
    )
    Attacker(folder, clients, policy=exact_policy(max_groups=3, labels=("0", "1"))).ask(plan)
    return json.loads((folder / "run-0" / "result.json").read_text())


def slices_made_to_fit(record):
    """Counts of slices that follow from those of the channels."""
    plain = {name: value for name, value in record["plan"]["task"].items() if name != "kind"}
    task, channels = fg.MulticlassTask(**plain), record["channels"]
    for slice_, part in zip(task.slices, record["slices"], strict=True):
        contrast = task.contrast(slice_)
        part["counts"] = [np.array(channels)[list(rows)].sum(axis=0).tolist() for rows in contrast]


def cell_moved(record):
    values = record["tables"][0]["values"]
    values[0], values[1] = values[0] + 50, values[1] - 50


def channel_moved(record):
    """From one group to another; every slice that is made of them follows."""
    first, second = record["channels"][0], record["channels"][2]
    first[3], second[3] = first[3] + 50, second[3] - 50
    slices_made_to_fit(record)


def groups_renamed(record):
    record["plan"]["task"]["groups"]["sex"].reverse()
    for part in record["slices"]:
        part["group"] = {"women": "men", "men": "women"}.get(part["group"], part["group"])
    names = list(dict.fromkeys(part["group"] for part in record["slices"]))
    record["slices"].sort(key=lambda part: [None, "men", "women", "other"].index(part["group"]))
    assert len(names) == 4


def noise_lowered(record):
    record["tables"][0]["table"]["noise"] *= 2


def slice_moved(record):
    record["slices"][2]["counts"][0][3] += 50


TO_FITTING = {"cell": cell_moved, "channel": channel_moved, "groups": groups_renamed}
TO_UNFIT = {
    "model": put("tables", 0, "table", "model", to="new"),
    "noise": noise_lowered,
    "slice": slice_moved,
    "group hidden": put("joined", to=["men"]),
    "table removed": lambda record: record.pop("tables"),
}


def standing(path):
    try:
        return fg.Evaluation.from_json(path).signature.state
    except fg.RecordError:
        return "refused"


def test_a_result_of_slices_as_it_was_made(sliced, tmp_path):
    assert standing(save(tmp_path, sliced)) == "unknown key"
    slices_made_to_fit(same := copy.deepcopy(sliced))
    assert np.allclose(same["slices"][2]["counts"], sliced["slices"][2]["counts"])


@pytest.mark.parametrize("edit", [*TO_FITTING, *TO_UNFIT])
def test_edited_slices_and_tables_are_noticed(sliced, tmp_path, edit):
    edited = copy.deepcopy(sliced)
    (TO_FITTING | TO_UNFIT)[edit](edited)
    assert standing(save(tmp_path, edited)) == ("broken" if edit in TO_FITTING else "refused")
