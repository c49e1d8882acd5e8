"""Whatever bytes come, a machine refuses them with an error of ours, and goes on as if unasked.
Other messages come where ``FEDGAUGE_FUZZ_SEED`` is another one. `make fuzz` runs longer, with
coverage, over these machines and over all else that reads what others sent; each of its targets
reads some mutants here."""

import json
import os
import random
import signal
import tracemalloc
from collections import Counter
from contextlib import contextmanager, suppress

import msgspec
import numpy as np
import pytest
from duties import Giving
from mutants import bytes_mutant, mutant, mutants, raw_mutant
from plans import small_noisy_plan, small_plan
from targets import TARGETS, ready

from fedgauge import Axis, Cohort, DistributedDP, EvaluationPlan
from fedgauge.errors import FedgaugeError, ProtocolError
from fedgauge.keys import SigningKey
from fedgauge.protocol import COORDINATOR, EVERYONE, VERSION, Envelope, session_id
from fedgauge.secagg import Invitation, Stage, Sum, SummationClient, SummationServer
from fedgauge.secagg import messages as messages_module
from fedgauge.secagg.graph import Graph, choose_graph
from fedgauge.secagg.messages import Terms

MESSAGES = 8000
SEED = os.environ.get("FEDGAUGE_FUZZ_SEED", "1")
PER_TARGET = 15  # messages for each of two machines at each stage of a run
SECONDS = 60  # after which a machine counts as hanging; none takes a tenth of a second
MOST_MEMORY = 4 << 20  # for a message of at most some kilobytes
KEYS = sorted((SigningKey.from_bytes(bytes([i] * 32)) for i in range(8)), key=lambda k: k.public)
BOSS = SigningKey.from_bytes(b"c" * 32)


def signed_mutant(rng, data, key):
    """Another message, rightly signed by whoever may say it."""
    envelope = Envelope.from_bytes(data)
    fields = {f: getattr(envelope, f) for f in ("session", "stage", "sender", "recipient", "body")}
    if rng.random() < 0.1:
        field = rng.choice(["session", "stage", "sender", "recipient"])
        fields[field] = mutant(rng, fields[field])
    elif rng.random() < 0.15:
        fields["body"] = bytes_mutant(rng, envelope.body)
    else:
        tree = msgspec.msgpack.decode(envelope.body)
        for _ in range(rng.choice([1, 1, 2])):
            tree = mutant(rng, tree)
        fields["body"] = msgspec.msgpack.encode(tree)
    try:
        return Envelope.sealed(key, **fields).to_bytes()
    except (ProtocolError, TypeError, AttributeError, msgspec.MsgspecError, OverflowError):
        # Not to be signed: it travels with the signature of something else.
        tree = [VERSION, *fields.values(), envelope.signature]
        return msgspec.msgpack.encode(tree)


class Watch:
    """What became of the messages, and where we are, for a failure to be found again."""

    def __init__(self, name):
        self.name = name
        self.number = 0
        self.accepted = 0
        self.reasons = Counter()

    @contextmanager
    def one(self, data):
        """Only our own errors, in time, with little memory; the error is swallowed."""
        self.number += 1
        traced = self.number % 10 == 0
        if traced:
            tracemalloc.start()
        signal.alarm(SECONDS)
        try:
            yield
            self.accepted += 1
        except FedgaugeError as error:
            self.reasons[type(error).__name__, "".join(filter(str.isalpha, str(error)))] += 1
        except Exception as error:
            pytest.fail(f"{self.place}: {error!r} for {data.hex()[:4000]}", pytrace=True)
        finally:
            signal.alarm(0)
            peak = tracemalloc.get_traced_memory()[1]
            if traced:
                tracemalloc.stop()
        if traced and len(data) < 100_000:
            assert peak < MOST_MEMORY, f"{self.place}: {peak:,} bytes for {data.hex()[:4000]}"

    @property
    def place(self):
        return f"FEDGAUGE_FUZZ_SEED={SEED} {self.name} #{self.number}"


@pytest.fixture
def alarm():
    def hangs(*_):
        raise TimeoutError("a machine hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def rng(monkeypatch, request):
    """Randomness from the seed alone, the machines' included."""
    rng = random.Random(f"{SEED} {request.node.name}")  # noqa: S311  (to be repeated)
    monkeypatch.setattr(os, "urandom", rng.randbytes)
    monkeypatch.setattr(random, "_urandom", rng.randbytes)  # what `secrets` draws from
    return rng


class Run:
    """One honest run; between its messages, machines meet others."""

    def __init__(self, members, graph, plan, watch, rng, others):
        self.watch, self.rng, self.others = watch, rng, others
        publics = [key.public for key in KEYS[:members]]
        self.invitation = Invitation.made(plan, publics, BOSS, rng.randbytes(32), graph)
        self.server = SummationServer(self.invitation, BOSS)
        rows = [[rng.randint(-1000, 1000) for _ in range(plan.numbers)] for _ in range(members)]
        self.values = np.array(rows)
        self.duties = [Giving(row) for row in self.values]
        self.clients = [
            SummationClient.join(self.invitation, key, duty)
            for key, duty in zip(KEYS[:members], self.duties, strict=True)
        ]
        # An exact sum is not opened without the vote of everybody in it.
        stages = [2, 3, 5, 6] if self.invitation.is_unanimous else [2, 3, 4, 5, 6]
        self.lost = {rng.randrange(members): rng.choice(stages)}

    def play(self):
        outcome = None
        while not isinstance(outcome, Sum):
            requests = dict(self.server.requests)
            if self.server.stage > Stage.ADVERTISE:
                for _ in range(PER_TARGET):
                    self.bother_client(requests)
            here = [m for m in requests if self.lost.get(m, 9) > self.server.stage]
            replies = {m: self.clients[m].receive(requests[m]) for m in here}
            for place in range(PER_TARGET):
                self.bother_server(replies, at_once=place % 3 == 0)
            outcome = self.server.step(replies)
            self.others += [*requests.values(), *replies.values()][:4]
            del self.others[:-40]
        self.right(outcome)

    def right(self, outcome):
        expected = self.values[list(outcome.survivors)].sum(axis=0)
        assert (outcome.total == expected).all(), self.watch.place

    def mutant(self, data, key):
        """A message that somebody might send in place of this one, and whether it is signed."""
        if self.rng.random() < 0.25:
            return raw_mutant(self.rng, data, self.others), False
        return signed_mutant(self.rng, data, key), True

    def bother_client(self, requests):
        member = self.rng.choice(list(requests))
        client, before = self.clients[member], self.clients[member].to_bytes()
        data, signed = self.mutant(requests[member], BOSS)
        accepted = self.watch.accepted
        with self.watch.one(data):
            client.receive(data)
        if client.to_bytes() != before:
            assert self.watch.accepted > accepted, self.watch.place
            assert signed or data == requests[member], self.watch.place
            # Another thing that a coordinator may say, such as fewer survivors: back to before.
            self.clients[member] = SummationClient.from_bytes(
                before, KEYS[member], self.duties[member]
            )

    def bother_server(self, replies, *, at_once):
        member = self.rng.choice(list(replies))
        data, signed = self.mutant(replies[member], KEYS[member])
        before, accepted = self.server.to_bytes(), self.watch.accepted
        with self.watch.one(data):
            if at_once:
                outcome = self.server.step([(member, data), *replies.items()])
                if isinstance(outcome, Sum):
                    self.right(outcome)
            else:
                self.server.check(member, data)
        if at_once and self.watch.accepted > accepted:
            self.server = SummationServer.from_bytes(before, BOSS)
        else:
            assert self.server.to_bytes() == before, self.watch.place
            taken = self.watch.accepted > accepted
            assert not taken or signed or data == replies[member], self.watch.place


def fuzzed(name, members, graph, plan, rng):
    watch, others = Watch(name), [b"", b"\x97"]
    while watch.number < MESSAGES * 2 // 5:
        Run(members, graph, plan, watch, rng, others).play()
    # Nothing is tested where all is refused for the same few reasons.
    assert watch.accepted > watch.number // 50
    assert len(watch.reasons) > 25
    assert max(watch.reasons.values()) < watch.number // 2


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("make_plan", [small_plan, small_noisy_plan], ids=["exact", "noisy"])
def test_machines_where_all_are_neighbours(rng, make_plan):
    plan = make_plan(Cohort(3, 1))
    fuzzed("complete", 5, choose_graph(5, plan.cohort), plan, rng)


@pytest.mark.usefixtures("alarm")
def test_machines_where_few_are_neighbours(rng, monkeypatch):
    """The graph is too small to be safe, so that check is off."""
    monkeypatch.setattr(messages_module, "is_safe", lambda *_: True)
    monkeypatch.setattr(messages_module, "survivors_needed", lambda *_: 3)
    fuzzed("sparse", 8, Graph(8, 4, 2), small_plan(Cohort(3, 1)), rng)


def terms_mutant(rng, terms):
    """Other terms of an invitation; most often another plan."""
    tree = msgspec.msgpack.decode(terms.to_bytes())
    if rng.random() < 0.3:
        return msgspec.msgpack.encode(mutant(rng, tree))
    plan = json.loads(tree[0])
    for _ in range(rng.choice([1, 1, 2])):
        plan = mutant(rng, plan)
    try:
        tree[0] = msgspec.json.encode(plan)
    except (TypeError, ValueError, RecursionError):
        tree[0] = b"{" * 2000
    return msgspec.msgpack.encode(tree)


def signed_terms(body):
    place = {"stage": Stage.ADVERTISE, "sender": COORDINATOR, "recipient": EVERYONE}
    return Envelope.sealed(BOSS, session=session_id(body), body=body, **place).to_bytes()


@pytest.mark.filterwarnings("ignore::fedgauge.PrivacyWarning")
@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("privacy", [None, DistributedDP(epsilon=1.0)], ids=["sum", "noise"])
def test_invitations(rng, privacy):
    watch = Watch(f"invitations {privacy}")
    axis = Axis.uniform(6, outside="clip")
    plan = EvaluationPlan.for_histogram(axis, Cohort(4, 1), tree=(2, 3), privacy=privacy)
    publics = [key.public for key in KEYS[:6]]
    graph = choose_graph(6, plan.cohort)
    good = Invitation.made(plan, publics, BOSS, bytes(32), graph)
    terms = Terms.from_bytes(Envelope.from_bytes(good.data).body)
    while watch.number < MESSAGES // 10:
        if rng.random() < 0.25:
            data = raw_mutant(rng, good.data, [b"", good.data])
        else:
            data = signed_terms(terms_mutant(rng, terms))
        with watch.one(data):
            invitation = Invitation(data)
            assert invitation.plan.to_bytes() in data
            assert invitation.bits in (32, 64)
            invitation.plan.check_promise()
            member = next((key for key in KEYS if key.public in invitation.members), KEYS[0])
            client = SummationClient.join(invitation, member, Giving(None))
            assert client.receive(data)
    assert watch.accepted
    assert len(watch.reasons) > 20


@pytest.mark.parametrize(("degree", "threshold"), [(2999, 1600), (1500, 800), (2, 2)])
def test_an_invitation_to_many_is_judged_in_little_memory(degree, threshold):
    """A coordinator's invitation of a hundred kilobytes must not fill a site's memory."""
    rng = random.Random(SEED)  # noqa: S311  (to be repeated)
    members = [rng.randbytes(32) for _ in range(3000)]
    plan = small_plan(Cohort(1000, 1))
    graph = Graph(3000, degree, threshold)
    invitation = Invitation.made(plan, members, BOSS, bytes(32), graph)
    tracemalloc.start()
    with suppress(FedgaugeError):
        assert invitation.plan == plan
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 << 20


DEAR = {"commands", "csv", "packed-csv", "result", "signed-result", "trend"}


@pytest.mark.filterwarnings("ignore::fedgauge.PrivacyWarning", "ignore::fedgauge.InputWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", TARGETS)
def test_a_target(name):
    with ready(name) as (seeds, attempt):
        # Where seeds are not read, mutants are refused for that alone.
        assert [attempt(seed) for seed in seeds] == [True] * len(seeds)
        count = 20 if name in DEAR else 200
        for data in mutants(1, TARGETS[name].form, seeds, count):
            attempt(data)
