"""Silence that tells of data: questions whose answer is whether a site answers. The attacker is an
approved coordinator. It chooses plans, labels and weights such that a site falls silent if and only
if something is true of its rows. Silence costs no budget, so it asks as often as it likes. Under
noise, and for local reports, nothing about rows may change the number or the size of a site's
messages, nor what its ledger says."""

import functools
import logging
from contextlib import suppress

import numpy as np
import pytest
from commands import run as command
from conformance import ExchangeEngine, FlowerEngine
from consortium import COORDINATOR, NAMES, A, Consortium
from counts import counts_of
from exchange import make_world
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from hostile import VICTIM, Attacker, exact_plan, exact_policy, invite, noisy_plan
from odd import Raises
from rows import draw_client
from standin import StandInGrid

import fedgauge as fg
from fedgauge.engines import flower
from fedgauge.engines.contribution import count_leniently
from fedgauge.engines.participant import STEPS
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.local.encode import write_reports
from fedgauge.local.messages import ReportFormat
from fedgauge.local.rounds import SecondPlan
from fedgauge.plan.task import BinaryTask
from fedgauge.plan.two_rounds import Found
from fedgauge.protocol import Envelope
from fedgauge.secagg import Stage
from fedgauge.site import Policy, create_site
from fedgauge.site.setup import add_trust

OTHERS = {f"site-{i}": draw_client(100 + i, seed=i) for i in range(4)}
ROWS = 300


@pytest.fixture(autouse=True)
def quiet(caplog):
    """What nodes tell their operators is not what is tested here."""
    caplog.set_level(logging.CRITICAL, logger="flwr.fedgauge")


def clean(seed=50):
    return draw_client(ROWS, seed=seed)


# Weights that give NaN if and only if a feature exceeds a bound


def overflowing(bound):
    """A weight with which features above the bound overflow: infinity less infinity is NaN."""
    return np.finfo(np.float64).max / bound


def nan_score(rows, weight):
    with np.errstate(all="ignore"):
        return 0.5 + (rows * weight - rows * weight)


class Nodes:
    """Flower nodes that score one feature with the weight that is sent, in one session."""

    def __init__(self, folder, features):
        clients = {VICTIM: features, **{name: np.linspace(0, 0.1, 50) for name in OTHERS}}
        self.names = dict(enumerate(clients, start=100))
        self.sites = Consortium.make(folder, list(clients))
        apps = {node: ClientApp() for node in self.names}
        for node, name in self.names.items():
            flower.attach(apps[node], lambda m, _, rows=clients[name]: self.score(m, rows))
        configs = {
            node: {"fedgauge-site": str(self.sites.site_file(name))}
            for node, name in self.names.items()
        }
        self.grid = StandInGrid(apps, configs)

    @staticmethod
    def score(message, rows):
        weight = message.content["arrays"]["weight"].numpy()
        return (np.arange(len(rows)) % 2, nan_score(rows, weight[0]))

    def ask(self, node, request, weight=None):
        content = RecordDict({"fedgauge": ConfigRecord({"request": request})})
        if weight is not None:
            content["arrays"] = arrays(weight)
        message = Message(content, dst_node_id=node, message_type="evaluate.fedgauge")
        (reply,) = self.grid.send_and_receive([message])
        return reply.content["fedgauge"].get("reply", b"")

    def until_scored(self, first):
        """The requests to score, by member, in a session begun with the first weight."""
        site = self.sites.site(COORDINATOR)
        members = [key for key in site.peers if key != site.key.public]
        server = invite(noisy_plan(4), members, site.key, arrays(first))
        node_of = {}
        for stage in (Stage.ADVERTISE, Stage.SHARE):
            asked, replies = server.requests, {}
            for node in self.names:
                if stage == Stage.ADVERTISE:
                    reply = self.ask(node, asked[0])
                    node_of[node] = Envelope.from_bytes(reply).sender
                else:
                    reply = self.ask(node, asked[node_of[node]])
                replies[node_of[node]] = reply
            server.step(replies)
        return {node: server.requests[node_of[node]] for node in self.names}


def arrays(weight):
    return ArrayRecord({"weight": Array(np.array([weight]))})


def question_by_question(folder, highest, bounds):
    """How long the victim's answer to each question is, and what its ledger says after."""
    nodes = Nodes(folder, np.linspace(0, highest, 200))
    weights = [overflowing(bound) for bound in bounds]
    requests = nodes.until_scored(weights[0])
    answers = [len(nodes.ask(100, requests[100], weight)) for weight in weights]
    return answers, nodes.sites.entries(VICTIM)


def test_weights_that_give_nan_do_not_find_the_largest_value(folder):
    """One session, 221 questions, each a hundredth higher; silence until the bound is reached. The
    number of questions until the first answer locates the hospital's largest value to 0.01. The
    ledger shows one reservation. It must not depend on the value."""
    bounds = np.arange(101, 322) / 100
    low, high = (
        question_by_question(folder / str(highest), highest, bounds) for highest in (1.314, 2.372)
    )
    located = [bounds[np.flatnonzero(answers)[:1]] for answers, _ in (low, high)]
    np.testing.assert_array_equal(*located)
    assert low == high


def test_one_question_does_not_tell_which_side_of_a_bound_a_node_is_on(folder):
    """The model that all agreed on gives NaN at one hospital and not at another."""
    low, high = (
        question_by_question(folder / str(highest), highest, [2.0]) for highest in (1.314, 2.372)
    )
    assert low == high


def test_a_node_is_asked_once_in_a_session(folder):
    """A failed attempt to score is an attempt: `score` is not called again with other weights."""
    nodes = Nodes(folder, np.linspace(0, 2.372, 200))
    scored = []
    nodes_score = Nodes.score
    nodes.score = lambda message, rows: scored.append(len(rows)) or nodes_score(message, rows)
    weights = [overflowing(bound) for bound in np.arange(11, 21) / 10]
    requests = nodes.until_scored(weights[0])
    for weight in weights:
        nodes.ask(100, requests[100], weight)
    assert scored.count(200) <= 1


def test_silence_in_an_exact_sum_is_counted(folder):
    """There a site has to stop, since zeros would be bare; so it stops few times only."""
    clients = {VICTIM: scores_like(np.nan)(*clean()), **OTHERS}
    attack = Attacker(folder, clients, policy=exact_policy())
    answers = [attack.ask(exact_plan(5)) for _ in range(5)]
    joined = [a for a in answers if a.refusals.get(VICTIM, (Stage.OPEN,))[0] > Stage.ADVERTISE]
    assert len(joined) <= 3
    assert attack.entries().count("commit") == len(joined)


def with_positives(count):
    _, scores = clean()
    return np.where(np.arange(ROWS) < count, 1, 0), scores


def messages(engine, plan, rows, *, others=OTHERS, raising=False):
    """Sizes of the victim's replies by stage, what its ledger gained, whether there is a result."""
    sizes = {}
    clients = Clients({VICTIM: rows, **others}, raising=raising)
    before = [] if engine._sites is None else engine._sites.entries(VICTIM)

    def on_reply(name, stage, data):
        if name == VICTIM:
            sizes.setdefault(stage, []).append(len(data))
        return data

    try:
        engine.run(plan, clients, on_reply=on_reply)
        finished = True
    except (fg.FedgaugeError, RuntimeError, OSError):
        finished = False
    return sizes, engine._sites.entries(VICTIM)[len(before) :], finished


class Clients(dict):
    """Clients' rows; asked for the victim's by itself, as a node's `score` does, it may raise."""

    def __init__(self, rows, *, raising):
        super().__init__(rows)
        self._raising = raising

    def __getitem__(self, name):
        if self._raising and name == VICTIM:
            raise RuntimeError("the model cannot score these rows")
        return super().__getitem__(name)


EXPECTED = {}


def expected_of(engine, plan):
    """What a site with clean rows sends: played once for each engine and plan."""
    key = type(engine), plan.digest
    if key not in EXPECTED:
        EXPECTED[key] = messages(engine, plan, clean())
    return EXPECTED[key]


@pytest.fixture(params=["exchange", "flower"])
def engine(request, folder, monkeypatch):
    kind = {"exchange": ExchangeEngine, "flower": FlowerEngine}[request.param]
    return kind(folder, monkeypatch)


@pytest.mark.parametrize("positive", [7, "dead", 0.5, 0])
def test_a_positive_label_does_not_ask_for_labels(engine, positive):
    """With `positive=7` a site of 0s and 1s has a third label and falls silent. A site of 0s does
    not: one positive among 300 rows shows with certainty, at epsilon 0.01."""
    plan = noisy_plan(4, 0.01, positive=positive)
    assert messages(engine, plan, with_positives(0)) == messages(engine, plan, with_positives(1))


# Rows that cannot be counted: the same messages as of rows that can


def scores_like(value, count=3):
    def change(labels, scores):
        return labels, np.where(np.arange(ROWS) < count, value, scores)

    return change


def labels_like(value, count=3):
    def change(labels, scores):
        changed = labels.astype(object)
        changed[:count] = value
        return changed, scores

    return change


def missing_scores(labels, scores):
    changed = scores.astype(object)
    changed[:3] = None
    return labels, changed


def stream(*chunks):
    """Data that comes in chunks; an exception among them is raised."""

    def read():
        for chunk in chunks:
            if isinstance(chunk, BaseException):
                raise chunk
            yield chunk

    return read


class Panic(BaseException):
    """As PyO3 raises when a library in Rust panics: no Exception."""


COUNTABLE_KINDS = {
    "NaN": scores_like(np.nan),
    "infinity": scores_like(np.inf),
    "minus infinity": scores_like(-np.inf),
    "all NaN": scores_like(np.nan, ROWS),
    "beyond the axis": scores_like(1e308),
    "missing scores": missing_scores,
    "a third label": labels_like(2),
    "a label of text": labels_like("unknown"),
    "missing labels": labels_like(None),
    "NaN labels": labels_like(float("nan")),
    "above largest": lambda labels, _: (labels, np.full(ROWS, 0.5)),
}
OTHER_KINDS = {
    "no rows": lambda y, s: (y[:0], s[:0]),
    "a stream that breaks off": lambda y, s: stream((y[:100], s[:100]), OSError(5, "disk gone")),
    "a stream that fails": lambda *_: stream(RuntimeError("no model")),
    "a stream that panics": lambda y, s: stream((y[:100], s[:100]), Panic()),
    "a stream that exits": lambda *_: stream(SystemExit(1)),
    "a stream of junk": lambda y, s: stream((y[:100], s[:100]), "junk"),
    "None": lambda *_: None,
    "text": lambda *_: "junk",
    "one column": lambda labels, _: (labels,),
    "three columns": lambda labels, scores: (labels, scores, scores),
    "unequal columns": lambda labels, scores: (labels, scores[:-1]),
    "two dimensions": lambda labels, scores: (labels, np.stack([scores, scores], axis=1)),
    "scores of text": lambda labels, _: (labels, np.array(["high"] * ROWS)),
    "complex scores": lambda labels, scores: (labels, scores + 1j),
    "labels of lists": lambda _, scores: ([[0]] * ROWS, scores),
    "masked scores": lambda labels, scores: (labels, np.ma.masked_less(scores, 0.3)),
    "huge whole numbers": lambda labels, _: (labels, [10**400] * ROWS),
    "a number": lambda *_: 3.0,
}
KINDS = COUNTABLE_KINDS | OTHER_KINDS


@functools.cache
def small_counts():
    """A plan under which a bin has room for 50 rows of a site."""
    return noisy_plan(4, largest=50)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_do_not_change_a_sites_messages(engine, kind):
    """Under differential privacy; at every stage, and in the ledger."""
    expected = expected_of(engine, small_counts())
    assert len(expected[0]) == len(Stage)
    assert messages(engine, small_counts(), KINDS[kind](*clean())) == expected


def test_a_score_that_raises_does_not_change_what_is_sent(folder, monkeypatch):
    engine = FlowerEngine(folder, monkeypatch)
    expected = expected_of(engine, small_counts())
    assert messages(engine, small_counts(), clean(), raising=True) == expected
    expected = between(expected_of(engine, two_rounds()))
    assert between(messages(engine, two_rounds(), clean(), raising=True)) == expected


@functools.cache
def two_rounds():
    """As small counts, in both rounds."""
    axis = fg.TwoRound(4, coarse=fg.Axis.uniform(8, outside="clip"))
    return fg.EvaluationPlan.for_histogram(
        axis, fg.Cohort(4, 1), privacy=fg.DistributedDP(1.0), largest=50
    )


def between(messages):
    """How many replies there are at each stage of two rounds, and what else does not vary. The bins
    of the second are as noise has it, and what is sent there is as long as they are many."""
    sizes, gained, finished = messages
    return {stage: (len(both), both[0]) for stage, both in sizes.items()}, gained, finished


@pytest.mark.parametrize("kind", ["all NaN", "above largest", "no rows", "a stream that panics"])
def test_rows_do_not_change_what_is_sent_in_two_rounds(engine, kind):
    expected = between(expected_of(engine, two_rounds()))
    assert [replies for replies, _ in expected[0].values()] == [2] * len(Stage)
    assert between(messages(engine, two_rounds(), KINDS[kind](*clean()))) == expected


def with_subjects(labels, scores, ids):
    return fg.Examples(labels, scores, subject=ids)


SUBJECTS = {
    "no ids": lambda: clean(),
    "some without": lambda: with_subjects(*clean(), [None, *range(1, ROWS)]),
    "all without": lambda: with_subjects(*clean(), [None] * ROWS),
    "one person": lambda: with_subjects(*clean(), ["a"] * ROWS),
    "mixed kinds": lambda: with_subjects(*clean(), np.array([1, "a"] * (ROWS // 2), dtype=object)),
    "lists": lambda: with_subjects(*clean(), np.array([*([[1]] * ROWS), 0], dtype=object)[:ROWS]),
}


@pytest.mark.parametrize("kind", SUBJECTS)
def test_subjects_do_not_change_a_sites_messages(engine, kind):
    """Where a plan protects subjects, whose ids some rows lack."""
    plan = noisy_plan(4, privacy=fg.DistributedDP(1.0, unit="subject", max_per_unit=3))
    others = {name: with_subjects(*rows, np.arange(len(rows[0]))) for name, rows in OTHERS.items()}
    key = type(engine), "subjects"
    if key not in EXPECTED:
        rows = with_subjects(*clean(), np.arange(ROWS) // 2)
        EXPECTED[key] = messages(engine, plan, rows, others=others)
    expected = EXPECTED[key]
    assert len(expected[0]) == len(Stage)
    assert messages(engine, plan, SUBJECTS[kind](), others=others) == expected


def test_clean_rows_of_any_kind_give_the_same_messages(engine):
    """The control: other rows, other numbers of them, other labels."""
    expected = expected_of(engine, small_counts())
    for rows in (clean(seed=51), with_positives(0), with_positives(ROWS), draw_client(3, seed=1)):
        assert messages(engine, small_counts(), rows) == expected


FEW = sorted(COUNTABLE_KINDS.keys() - {"all NaN", "above largest"})


@pytest.mark.filterwarnings("ignore:epsilon 30 protects nobody")
@pytest.mark.parametrize("kind", FEW)
def test_three_broken_rows_move_three_rows(engine, kind):
    """What noise hides is one row: a row that cannot be counted must not move all others. Of
    epsilon 30 no noise is left, so that the counts themselves show."""
    plan = noisy_plan(4, 30.0)
    clients = {VICTIM: clean(), **OTHERS}
    key = type(engine), "counts"
    if key not in EXPECTED:
        EXPECTED[key] = counts_of(engine.run(plan, clients))
    expected = EXPECTED[key]
    broken = counts_of(engine.run(plan, clients | {VICTIM: COUNTABLE_KINDS[kind](*clean())}))
    assert np.abs(expected - broken).sum() <= 2 * 3 + 0.5


CELLS = {
    "empty score": "1,",
    "NaN": "1,nan",
    "infinity": "1,inf",
    "third label": "2,0.4",
    "empty label": ",0.4",
    "text label": "dead,0.4",
}
SPOILED = (0, -1)  # the first row and the last


def write_rows(path, cell=None, place=0):
    """A file of rows, one of which may be spoiled."""
    lines = [f"{y},{p!r}" for y, p in zip(*map(np.ndarray.tolist, clean()), strict=True)]
    if cell is not None:
        lines[place] = cell
    path.write_text("y,p\n" + "\n".join(lines) + "\n")


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("place", SPOILED)
def test_cells_of_a_file_do_not_change_an_exchange(folder, kind, place):
    """`fedgauge exchange`, as operators run it: exit codes, sizes of replies, ledger."""
    outcomes = []
    for name, cell in (("clean", None), ("broken", CELLS[kind])):
        world = make_world(folder / name, NAMES, noisy_plan(3))
        write_rows(world.folder / f"{A}.csv", cell, place)
        world.start(world.run, noisy_plan(3))
        outcomes.append(([said(world, stage) for stage in Stage], world.entries(A)))
    assert outcomes[0] == outcomes[1]


def said(world, stage):
    """The exit code of the first site in a round, and how much it said."""
    for name in NAMES[1:]:
        world.answer(world.run, name, stage, world.clients[name])
    done = command(*world.arguments(A, STEPS[stage], "--quiet"))
    with suppress(fg.FedgaugeError):
        world.advance(world.run, without_missing=True)
    reply = world.reply(stage)
    return done.exit_code, reply.exists() and reply.stat().st_size


def report_plan(positive=None, epsilon=0.01):
    return fg.EvaluationPlan.for_reports(
        fg.Axis.uniform(8, outside="clip"), fg.LocalDP(epsilon), task=BinaryTask(positive)
    )


class Reporter:
    """A site that makes files of reports."""

    def __init__(self, folder):
        self.folder, self.made = folder, 0
        policy = Policy(models=("local-dp",), budget_epsilon=50.0)
        self.site = create_site(folder / "site", name="hospital", dataset="d", policy=policy)

    def report(self, plan, rows):
        """The size of the file, None where there is none, and what the ledger gained."""
        self.made += 1
        path, before = self.folder / f"{self.made}.fgr", len(self.site.ledger.entries())
        with suppress(fg.FedgaugeError, RuntimeError, OSError):
            write_reports(plan, rows, path, site=self.site)
        kinds = [entry.kind for entry in self.site.ledger.entries()][before:]
        return (path.stat().st_size if path.exists() else None), kinds


@pytest.fixture
def reporter(folder):
    return Reporter(folder)


@pytest.mark.parametrize("positive", [7, "dead", 0.5, 0])
def test_reports_do_not_ask_for_labels(reporter, positive):
    """As with sums: no file, no charge, if and only if there is a positive among 300 rows."""
    plan = report_plan(positive)
    assert reporter.report(plan, with_positives(0)) == reporter.report(plan, with_positives(1))


@pytest.mark.parametrize("kind", COUNTABLE_KINDS)
def test_rows_do_not_change_a_file_of_reports(reporter, kind):
    expected = reporter.report(report_plan(), clean())
    assert expected == (reporter.report(report_plan(), clean(seed=51)))
    assert reporter.report(report_plan(), COUNTABLE_KINDS[kind](*clean())) == expected


TWO = fg.TwoRound(4, share=0.4, coarse=fg.Axis.uniform(8, outside="clip"))


@pytest.mark.parametrize("kind", COUNTABLE_KINDS)
def test_rows_do_not_change_how_many_report_in_two_rounds(reporter, kind):
    """Each file has the rows whose turn it is, which the site's secret says, and both have all."""
    intake, rows = SigningKey.generate(), COUNTABLE_KINDS[kind](*clean())
    reporter.site = add_trust(
        reporter.site.path, "coordinator", "intake", key_to_text(intake.public)
    )
    first = fg.EvaluationPlan.for_reports(TWO, fg.LocalDP(0.01))
    second = first.located(Found(TWO, (1,) * 8, 8))
    size, entries = reporter.report(first, rows)
    assert entries == ["reserve", "commit", "data", "sent"]
    more, entries = reporter.report(SecondPlan.sign(second, intake), rows)
    assert entries == ["sent"]
    assert reports_in(first, size) + reports_in(second, more) == ROWS


def reports_in(plan, size):
    """How many there are in a file of one message."""
    body = size - ReportFormat(plan).header_bytes - 4
    return body / (16 + plan.oracles[0].payload_bytes)


@pytest.mark.parametrize("kind", ["no rows", *(kind for kind in KINDS if "stream that" in kind)])
def test_an_attempt_to_report_is_charged(reporter, kind):
    """Where rows cannot be read to the end: how many there are is told, whether it failed is not.
    The number of reports is public under local DP, so the size may differ."""
    size, entries = reporter.report(report_plan(), OTHER_KINDS[kind](*clean()))
    assert "commit" in entries
    assert size is not None


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("place", SPOILED)
def test_cells_of_a_file_do_not_change_its_reports(folder, kind, place):
    """`fedgauge encode`, as an operator runs it: exit code and file."""
    site = create_site(
        folder / "site", name="hospital", dataset="d", policy=Policy(models=("local-dp",))
    ).path
    report_plan().save(folder / "plan.json")
    outcomes = []
    for name, cell in (("clean", None), ("broken", CELLS[kind])):
        path, out = folder / f"{name}.csv", folder / f"{name}.fgr"
        write_rows(path, cell, place)
        done = command(
            *("encode", folder / "plan.json", path, "--label", "y", "--score", "p"),
            *("-o", out, "--site", site, "--quiet"),
        )
        outcomes.append((done.exit_code, out.exists() and out.stat().st_size))
    assert outcomes[0] == outcomes[1]


# Slices: groups, classes and scores that a row lacks, or has too many of. Each row counts in
# stated places that it decides by itself

FEW, ODD = 40, 3
GROUPS = fg.BinaryTask(groups={"sex": ["women", "men"], "age": ["old"]}, models=("new", "old"))
CLASSES = fg.MulticlassTask(labels=["cat", "dog", "owl"], also=["confusion", "ranks", "top"])
LABELS = fg.MultilabelTask(labels=["fever", "cough"])
PAIR = fg.BinaryTask(models=("new", "old"), pairs=[("new", "old")])


def plan_of(task, *, exact=False):
    return fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(4, outside="clip"),
        fg.Cohort(4, 1),
        task=task,
        privacy=None if exact else fg.DistributedDP(1.0),
    )


class Columns:
    """Rows as columns that can be changed before they are handed over."""

    def __init__(self, task, seed):
        rng, layout = np.random.default_rng(seed), task.layout
        kinds = rng.integers(0, layout.by_block, FEW)
        classes = np.array(layout.classes or (0, 1), dtype=object)
        self.labels = classes[kinds]
        if layout.labels > 1:
            self.labels = rng.integers(0, 2, (FEW, layout.labels)).astype(object)
        shape = (FEW,) if layout.scores == 1 else (FEW, layout.scores)
        self.scores = {name: rng.random(shape) for name in layout.models or (None,)}
        self.groups = {
            name: rng.choice(values, FEW).astype(object) for name, values in layout.groups
        }

    def rows(self):
        scores = self.scores.get(None, self.scores)
        return fg.Examples.leniently(self.labels, scores, group=self.groups or None)


def changed(columns, part, value, key, place):
    column, rows = getattr(columns, part), slice(ODD * place, ODD * place + ODD)
    if key:
        target = column[key[0]].astype(object)
        target[(rows, *key[1:])] = value
        column[key[0]] = target
    else:
        column[rows] = value


def with_scores(change):
    return lambda columns: columns.scores.update({None: change(columns.scores[None])})


def cell(part, value, *key):
    return lambda columns, place=0: changed(columns, part, value, key, place)


# What is odd, and where such a row counts: the same change with what it counts as.
ROW_BY_ROW = {
    "no group": (GROUPS, cell("groups", None, "sex"), cell("groups", "unlisted", "sex")),
    "NaN as a group": (GROUPS, cell("groups", np.nan, "age"), cell("groups", "x", "age")),
    "a number as a group": (GROUPS, cell("groups", 7.5, "sex"), cell("groups", "x", "sex")),
    "bytes as a group": (GROUPS, cell("groups", b"men", "sex"), cell("groups", "x", "sex")),
    "a group that raises": (GROUPS, cell("groups", Raises(), "sex"), cell("groups", "x", "sex")),
    "NaN in two groupings": (GROUPS, cell("scores", np.nan, "new"), cell("scores", 0, "new")),
    "a label of no class": (CLASSES, cell("labels", "ant"), cell("labels", "cat")),
    "no class": (CLASSES, cell("labels", None), cell("labels", "cat")),
    "a class that raises": (CLASSES, cell("labels", Raises()), cell("labels", "cat")),
    "NaN in one of three": (CLASSES, cell("scores", np.nan, None, 1), cell("scores", 0, None, 1)),
    "text in one of three": (CLASSES, cell("scores", "low", None, 2), cell("scores", 0, None, 2)),
    "a score that raises": (CLASSES, cell("scores", Raises(), None, 0), cell("scores", 0, None, 0)),
    "infinite": (CLASSES, cell("scores", np.inf, None, 1), cell("scores", 1, None, 1)),
    "one of two labels": (LABELS, cell("labels", [1, None]), cell("labels", [1, 0])),
    "a third value": (LABELS, cell("labels", ["x", 1]), cell("labels", [0, 1])),
    "NaN of one model": (PAIR, cell("scores", np.nan, "old"), cell("scores", 0, "old")),
    "beyond the axis": (PAIR, cell("scores", 7.0, "new"), cell("scores", 1, "new")),
}
ALL_AT_ONCE = {
    "two of three columns": (CLASSES, with_scores(lambda scores: scores[:, :2])),
    "six columns": (CLASSES, with_scores(lambda scores: np.tile(scores, 2))),
    "one column": (CLASSES, with_scores(lambda scores: scores[:, 0])),
    "one of two labels": (LABELS, lambda rows: vars(rows).update(labels=rows.labels[:, 0])),
    "no such model": (PAIR, lambda rows: rows.scores.pop("old")),
    "no such grouping": (GROUPS, lambda rows: rows.groups.pop("age")),
}


def assert_alike(one, other):
    """All counts, and those in tables."""
    np.testing.assert_array_equal(one.counts, other.counts)
    assert len(one.tables) == len(other.tables)
    for ours, theirs in zip(one.tables, other.tables, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", ROW_BY_ROW)
def test_an_odd_row_counts_in_a_stated_place(kind):
    """Which it decides by itself: the rows beside it stay where they are."""
    task, spoil, mend = ROW_BY_ROW[kind]
    spoiled, placed = Columns(task, 50), Columns(task, 50)
    spoil(spoiled)
    mend(placed)
    (one, odd), (other, _) = (
        count_leniently(plan_of(task), each.rows) for each in (spoiled, placed)
    )
    assert odd.failure == ""
    assert odd.rows == FEW
    assert odd.not_finite in (0, ODD)  # a score counts once, however rows are grouped
    assert_alike(one, other)


def test_masked_scores_count_in_the_first_bin():
    masked, placed = Columns(CLASSES, 50), Columns(CLASSES, 50)
    scores = masked.scores[None]
    masked.scores[None] = np.ma.MaskedArray(scores, np.tile(np.arange(FEW) < ODD, (3, 1)).T)
    changed(placed, "scores", 0, (None, slice(None)), 0)
    (one, odd), (other, _) = (count_leniently(plan_of(CLASSES), c.rows) for c in (masked, placed))
    assert odd.not_finite == 3 * ODD
    assert_alike(one, other)


@pytest.mark.parametrize("kind", ALL_AT_ONCE)
def test_columns_that_do_not_fit_count_as_no_rows(kind):
    """Nothing that one row holds decides that."""
    task, spoil = ALL_AT_ONCE[kind]
    columns, plan = Columns(task, 50), plan_of(task)
    spoil(columns)
    counted, odd = count_leniently(plan, columns.rows)
    assert odd.failure
    assert_alike(counted, plan.histogram())


TASKS = {"groups": GROUPS, "classes": CLASSES, "labels": LABELS, "pair": PAIR}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())
def test_rows_of_slices_do_not_change_a_sites_messages(engine, task):
    """Clean ones; all kinds of odd ones, some of each; columns that do not fit."""
    plan, others = plan_of(task), {f"site-{i}": Columns(task, seed=i).rows() for i in range(4)}
    clean, odd, unfit = (Columns(task, 50) for _ in range(3))
    kinds = [spoil for of, spoil, _ in ROW_BY_ROW.values() if of is task]
    for place, spoil in enumerate(kinds):
        spoil(odd, place)
    next(spoil for of, spoil in ALL_AT_ONCE.values() if of is task)(unfit)
    expected = messages(engine, plan, clean.rows(), others=others)
    assert len(expected[0]) == len(Stage)
    for each in (odd, unfit):
        assert messages(engine, plan, each.rows(), others=others) == expected


@pytest.mark.parametrize("kind", ["a label of no class", "NaN in one of three"])
def test_an_exact_sum_stops_at_rows_of_no_class_or_score(folder, kind):
    """Zeros would be bare; that is one bit, and it costs one of the site's exact sums."""
    task, spoil, _ = ROW_BY_ROW[kind]
    task, columns = fg.MulticlassTask(labels=task.labels), Columns(task, 50)
    spoil(columns)
    others = {f"site-{i}": Columns(task, seed=i).rows() for i in range(4)}
    policy = exact_policy(labels=("cat", "dog", "owl"), exact_scores=3, min_cell=0)
    attack = Attacker(folder, {VICTIM: columns.rows(), **others}, policy=policy)
    plan = fg.EvaluationPlan.for_histogram(
        fg.Axis.uniform(4, outside="clip"), fg.Cohort(5, 1), task=task
    )
    stage, error = attack.ask(plan).refusals[VICTIM]
    assert stage == Stage.MASK
    assert "3 of " in str(error)
    assert attack.entries() == ["reserve", "commit"]
