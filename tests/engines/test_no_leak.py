"""Nothing that belongs to one client is ever on the server's side, in any form. Everything is kept
that the coordinator's side writes, logs, prints, raises or is sent, at every step, and searched for
the scores, labels and counts of each client: as text, as numbers in the byte forms that a leak
would take, and as whole vectors, alone and summed over some of the clients. All randomness is
seeded, so that a test passes always or never. What the search can find is tested too."""

import logging
import os
import random
import re
import struct
import traceback
from itertools import combinations

import msgspec
import numpy as np
import pytest
from consortium import COORDINATOR, Consortium
from sites import open_policy

import fedgauge as fg
from fedgauge.engines import participant, simulation
from fedgauge.keys import SigningKey
from fedgauge.secagg import Stage, Sum, SummationServer, masking, secret_sharing

NAMES = ["clinic-a", "clinic-b", "clinic-c", "clinic-d", "clinic-e"]
POSITIVE, NEGATIVE, THIRD = "malignant-xq", "benign-kz", "unsure-wy"
HIGH = (0.7318529, 0.7294731, 0.7351847, 0.7412983, 0.7389617)
LOW = (0.1318527, 0.1294737, 0.1351843, 0.1412989, 0.1389613)
SCORES = dict(zip(NAMES, zip(HIGH, LOW, strict=True), strict=True))
# Primes above 2^16, so that no short form of one is likely by chance.
MANY = (104_729, 99_991, 93_047, 88_883, 95_803)
FEW = (70_879, 81_647, 76_541, 67_759, 72_661)
COUNTS = dict(zip(NAMES, zip(MANY, FEW, strict=True), strict=True))
AXIS = fg.Axis.uniform(4, outside="clip")
TASK = fg.BinaryTask(positive=POSITIVE)
PLANS = {
    "64 bits": fg.EvaluationPlan.for_histogram(AXIS, fg.Cohort(3, 1), task=TASK),
    "32 bits": fg.EvaluationPlan.for_histogram(AXIS, fg.Cohort(3, 1), task=TASK, largest=2**20),
    "noise": fg.EvaluationPlan.for_histogram(
        AXIS, fg.Cohort(3, 1), task=TASK, privacy=fg.DistributedDP(1.0)
    ),
}
pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")
every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())


def rows_of(name):
    """Scores in two bins, each with one label, as often as the name's counts say."""
    (high, low), (many, few) = SCORES[name], COUNTS[name]
    labels = np.repeat([POSITIVE, NEGATIVE], [many, few])
    return labels, np.repeat([high, low], [many, few])


CLIENTS = {name: rows_of(name) for name in NAMES}


def vector_of(*names):
    """The counts that some clients have together, in the order they are sent."""
    total = np.zeros((2, 4), dtype=np.int64)
    for name in names:
        many, few = COUNTS[name]
        total[1, 2] += many
        total[0, 0] += few
    return total.ravel()


def number_forms(number):
    """A count as bytes."""
    for form in ("<I", ">I", "<Q", ">Q", "<d", ">d"):
        yield form, struct.pack(form, number)
    yield "msgpack", msgspec.msgpack.encode(number)


def vector_forms(values):
    """Many counts as bytes."""
    for kind in ("<i4", ">i4", "<i8", ">i8", "<f8", ">f8"):
        yield kind, np.asarray(values).astype(kind).tobytes()
    yield "msgpack", msgspec.msgpack.encode(np.asarray(values).tolist())
    yield "json", msgspec.json.encode(np.asarray(values).tolist())
    yield "text", str(np.asarray(values).tolist()).encode()
    yield "numpy", str(np.asarray(values)).encode()


def text_of(number):
    """A pattern for a number in decimal digits, alone or with separators."""
    plain, grouped = f"{number}", f"{number:,}"
    return re.compile(rf"(?<![\d.])(?:{plain}|{grouped})(?![\d])".encode())


def traces_of(name, contributed=()):
    """All that must not be found of one client: what it is, and its bytes or a pattern."""
    for score in SCORES[name]:
        yield f"score of {name}", re.compile(str(score)[2:].encode())
        for form in ("<d", ">d", "<f", ">f"):
            yield f"score of {name} as {form}", struct.pack(form, score)
    yield f"label of {name}", NEGATIVE.encode()
    for count in COUNTS[name]:
        yield f"count of {name}", text_of(count)
        for form, data in number_forms(count):
            yield f"count of {name} as {form}", data
    for values in (vector_of(name), *contributed):
        for form, data in vector_forms(values):
            yield f"counts of {name} as {form}", data


def traces_of_some(names):
    """Sums over some but not all of those in the sum."""
    for size in range(2, len(names)):
        for some in combinations(names, size):
            for form, data in vector_forms(vector_of(*some)):
                yield f"sum over {', '.join(some)} as {form}", data


def found_in(places, traces):
    """What was found, and where."""
    traces = list(traces)
    return {
        (what, place)
        for place, data in places
        for what, trace in traces
        if (trace.search(data) if isinstance(trace, re.Pattern) else trace in data)
    }


class Watch:
    """All that the server's side wrote, logged, printed, raised or was sent."""

    def __init__(self, caplog, capfd):
        self._caplog, self._capfd = caplog, capfd
        self._kept = set()
        self.contributed = {}

    def keep(self, place, data):
        self._kept.add((place, bytes(data)))

    def keep_folders(self, *folders):
        for folder in folders:
            for path in folder.rglob("*"):
                self.keep(f"a name in {folder.name}", path.name.encode())
                if path.is_file():
                    self.keep(f"{folder.name}/{path.name}", path.read_bytes())

    def keep_error(self, error):
        told = traceback.format_exception(error)  # with what it was raised from
        self.keep("an error", "".join([*told, repr(error), str(error)]).encode())

    def places(self):
        out, err = self._capfd.readouterr()
        self.keep("what was printed", f"{out}{err}".encode())
        for record in self._caplog.records:
            self.keep("the log", f"{record.getMessage()} {record.args} {record.exc_text}".encode())
        return sorted(self._kept)

    def assert_clean(self, names):
        places = self.places()
        assert len(places) > 20
        for name in CLIENTS:
            contributed = self.contributed.get(name, ())
            assert found_in(places, traces_of(name, contributed)) == set()
        assert found_in(places, traces_of_some(names)) == set()
        # The sum itself is in the result and nowhere else.
        total = list(vector_forms(vector_of(*names)))
        elsewhere = [(place, data) for place, data in places if place != "run/result.json"]
        assert found_in(elsewhere, total) == set()


@pytest.fixture
def watch(caplog, capfd):
    caplog.set_level(logging.DEBUG)
    return Watch(caplog, capfd)


@pytest.fixture(autouse=True)
def seeded(monkeypatch):
    """Keys, masks and noise from a seed."""
    source = random.Random(20)  # noqa: S311  (a seed is the point)
    monkeypatch.setattr(os, "urandom", source.randbytes)
    monkeypatch.setattr(
        SigningKey, "generate", classmethod(lambda cls: cls.from_bytes(source.randbytes(32)))
    )
    monkeypatch.setitem(secret_sharing.split.__kwdefaults__, "random_below", source.randrange)


def record_contributions(monkeypatch, watch, who):
    """Keep what each client is about to mask: noise included, it is as private as its counts."""
    work = participant.same_contribution

    def contribution(*args):
        values = work(*args)
        watch.contributed.setdefault(who(), []).append(values.copy())
        return values

    monkeypatch.setattr(participant, "same_contribution", contribution)


def exchange(folder, watch, monkeypatch, plan, clients=CLIENTS, silent=None):
    """An exchange of which everything on the coordinator's side is kept after every step."""
    sites = Consortium.make(
        folder / "sites", NAMES, policy=open_policy(rows_per_bin=1, labels=(POSITIVE,))
    )
    run = folder / "run"
    now = []
    record_contributions(monkeypatch, watch, lambda: now[-1])
    central = (run, folder / "sites" / COORDINATOR)
    sites.start(run, plan)
    outcome = None
    for stage in Stage:
        for name, data in clients.items():
            now.append(name)
            if stage >= (silent or {}).get(name, len(Stage) + 1):
                continue
            try:
                sites.answer(run, name, stage, data)
            except fg.FedgaugeError as error:
                watch.keep_error(error)
            watch.keep_folders(*central)
        progress = sites.exchange(run).progress()
        watch.keep("status", repr(progress).encode())
        try:
            outcome = sites.advance(run, without_missing=True)
        except fg.FedgaugeError as error:
            watch.keep_error(error)
            watch.keep_folders(*central)
            return None
        watch.keep_folders(*central)
    return outcome


@every_plan
def test_exchange(tmp_path, watch, monkeypatch, plan):
    result = exchange(tmp_path, watch, monkeypatch, plan)
    assert result.clients == 5
    assert sorted(watch.contributed) == NAMES
    watch.assert_clean(NAMES)
    if not plan.final.noise:
        np.testing.assert_array_equal(result.released.counts.ravel(), vector_of(*NAMES))
        # The search is able to find a sum in the file where it may be.
        counts = msgspec.json.encode(vector_of(*NAMES).reshape(2, 4).tolist())
        assert counts in (tmp_path / "run" / "result.json").read_bytes()


@every_plan
@pytest.mark.parametrize("stage", Stage, ids=lambda stage: stage.name.lower())
def test_exchange_that_one_leaves(tmp_path, watch, monkeypatch, plan, stage):
    result = exchange(tmp_path, watch, monkeypatch, plan, silent={"clinic-b": stage})
    stay = [name for name in NAMES if stage > Stage.MASK or name != "clinic-b"]
    if stage == Stage.AGREE and not plan.is_noisy:  # not opened without everybody's vote
        assert result is None
        assert not (tmp_path / "run" / "result.json").exists()
    else:
        assert result.clients == len(stay)
    watch.assert_clean(stay)


@pytest.mark.parametrize("stage", list(Stage)[1:], ids=lambda stage: stage.name.lower())
def test_exchange_that_too_many_leave(tmp_path, watch, monkeypatch, stage):
    silent = {"clinic-b": stage, "clinic-d": stage}
    assert exchange(tmp_path, watch, monkeypatch, PLANS["64 bits"], silent=silent) is None
    assert not (tmp_path / "run" / "result.json").exists()
    watch.assert_clean(NAMES)


@pytest.mark.parametrize(
    ("plan", "rows"),
    [
        (PLANS["64 bits"], ([NEGATIVE, THIRD, POSITIVE], [0.1318527, 0.5, 0.7318529])),
        (PLANS["64 bits"], ([NEGATIVE, POSITIVE], [0.7318529, float("nan")])),
        (
            fg.EvaluationPlan.for_histogram(AXIS, fg.Cohort(3, 1), task=TASK, largest=100_000),
            CLIENTS["clinic-a"],
        ),
    ],
    ids=["a third label", "not a number", "count too large"],
)
def test_errors_of_a_client_say_nothing_of_its_rows(tmp_path, watch, monkeypatch, plan, rows):
    """They are for its operator, who may pass them on."""
    result = exchange(tmp_path, watch, monkeypatch, plan, CLIENTS | {"clinic-a": rows})
    assert result.clients == 4
    assert [place for place, _ in watch.places()].count("an error") >= 1
    watch.assert_clean(NAMES[1:])
    more = [("label", THIRD.encode()), ("score", b"7.318529"), ("score", b"318529")]
    assert found_in(watch.places(), more) == set()


class Recorded(SummationServer):
    """A server that shows all it is sent, sends and remembers."""

    watch: Watch

    def step(self, replies):
        kept = [(member, bytes(reply)) for member, reply in replies]
        for member, reply in kept:
            self.watch.keep(f"reply {self.stage:d} of {member}", reply)
        try:
            outcome = super().step(kept)
        except fg.FedgaugeError as error:
            self.watch.keep_error(error)
            raise
        finally:
            self.watch.keep("state of the server", self.to_bytes())
        if not isinstance(outcome, Sum):
            for member, request in outcome.items():
                self.watch.keep(f"request {self.stage:d} to {member}", request)
        return outcome


@every_plan
def test_rounds(watch, monkeypatch, plan):
    monkeypatch.setattr(Recorded, "watch", watch, raising=False)
    monkeypatch.setattr(simulation, "SummationServer", Recorded)
    drawn = []
    work = simulation.contribution

    def contribution(made_for, histogram, source):
        drawn.append(work(made_for, histogram, source))
        return drawn[-1]

    monkeypatch.setattr(simulation, "contribution", contribution)
    result = simulation.simulate(CLIENTS, plan, summation="secure")
    assert result.clients == len(drawn) == 5
    watch.contributed["clinic-a"] = drawn
    watch.assert_clean(NAMES)


def is_reply(place, name):
    """Whether this is the file in which a site submits."""
    return re.fullmatch(rf"run/3-submit\.\d\.{name}\.reply\.fgx", place) is not None


@pytest.mark.parametrize("plan", [PLANS["64 bits"], PLANS["32 bits"]], ids=["64 bits", "32 bits"])
def test_search_finds_counts_without_masks(tmp_path, watch, monkeypatch, plan):
    def no_mask(_, length, bits):
        return np.zeros(length, dtype=f"<u{bits // 8}")

    monkeypatch.setattr(masking, "mask", no_mask)
    exchange(tmp_path, watch, monkeypatch, plan)
    width = {"64 bits": 8, "32 bits": 4}[next(n for n, p in PLANS.items() if p is plan)]
    for name in NAMES:
        found = found_in(watch.places(), traces_of(name))
        what = f"counts of {name} as <i{width}"
        assert any(each == what and is_reply(place, name) for each, place in found)
        assert any(f"count of {name} as" in what for what, _ in found)
    with pytest.raises(AssertionError):
        watch.assert_clean(NAMES)


def test_search_finds_noisy_contributions_without_masks(tmp_path, watch, monkeypatch):
    monkeypatch.setattr(masking, "mask", lambda _, length, bits: np.zeros(length, f"<u{bits // 8}"))
    exchange(tmp_path, watch, monkeypatch, PLANS["noise"])
    found = found_in(watch.places(), traces_of("clinic-c", watch.contributed["clinic-c"]))
    what = "counts of clinic-c as <i8"
    assert any(each == what and is_reply(place, "clinic-c") for each, place in found)


PLANTED = {
    "score": str(SCORES["clinic-a"][0]),
    "label": NEGATIVE,
    "count": f"there are {COUNTS['clinic-a'][0]} rows",
    "grouped count": f"there are {COUNTS['clinic-a'][0]:,} rows",
    "vector": str(vector_of("clinic-a")),
    "sum over some": str(vector_of("clinic-a", "clinic-b").tolist()),
    "sum over all": str(vector_of(*NAMES).tolist()),
}


@pytest.mark.parametrize("text", PLANTED.values(), ids=PLANTED.keys())
@pytest.mark.parametrize("way", ["file", "log", "print", "error", "stderr"])
def test_search_finds_what_is_planted(tmp_path, watch, way, text):
    for number in range(30):
        watch.keep(f"clean {number}", f"nothing here {number}".encode())
    watch.assert_clean(NAMES)
    match way:
        case "file":
            (tmp_path / "trace").write_text(text)
            watch.keep_folders(tmp_path)
        case "log":
            logging.getLogger("fedgauge.engines").debug("found %s", text)
        case "print":
            print(text)  # noqa: T201
        case "stderr":
            os.write(2, text.encode())
        case _:
            watch.keep_error(fg.ProtocolError(text))
    with pytest.raises(AssertionError):
        watch.assert_clean(NAMES)


@pytest.mark.parametrize("form", ["<I", ">I", "<Q", ">Q", "<d", ">d"])
def test_search_finds_numbers_among_others(watch, form):
    for number in range(30):
        watch.keep(f"clean {number}", bytes([number]) * 50)
    watch.keep("state", b"\x01\x02\x03" + struct.pack(form, COUNTS["clinic-d"][1]) + b"\xff")
    with pytest.raises(AssertionError, match="count of clinic-d"):
        watch.assert_clean(NAMES)
