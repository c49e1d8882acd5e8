"""Two evaluations of one plan, by the same members and coordinator: neither is good for the other.
The coordinator keeps all that was said in the first and says it in the second, under its own
signature: whole bodies, and every part of one in the place of its like."""

import msgspec
import pytest
from envelopes import sealed
from plans import small_noisy_plan
from scene import BOSS, KEYS, Scene

from fedgauge.errors import FedgaugeError, ProtocolError
from fedgauge.protocol import COORDINATOR, Envelope
from fedgauge.secagg import Stage, SummationClient
from fedgauge.secagg.messages import Masked


def parts(body, place=()):
    """All parts of a body, and where they are."""
    if isinstance(body, list):
        for index, part in enumerate(body):
            yield (*place, index), part
            yield from parts(part, (*place, index))


def exchanged(body, place, part):
    if not place:
        return part
    first, *rest = place
    return [exchanged(each, rest, part) if i == first else each for i, each in enumerate(body)]


def mixtures(one, other):
    """Bodies of the second with something of the first."""
    first, second = (msgspec.msgpack.decode(Envelope.from_bytes(r).body) for r in (one, other))
    yield first
    places = dict(parts(second))
    for place, part in parts(first):
        if place in places and places[place] != part:
            yield exchanged(second, place, part)


def request(scene, stage, member, body):
    return sealed(
        BOSS, scene.session, stage, COORDINATOR, member, msgspec.msgpack.encode(body)
    ).to_bytes()


@pytest.fixture
def sessions():
    made = [Scene(small_noisy_plan(), members=4, run=run * 32) for run in (b"a", b"b")]
    assert made[0].session != made[1].session
    return made


@pytest.mark.parametrize(
    "stage", [Stage.SHARE, Stage.MASK, Stage.OPEN]
)  # who survives is no secret
def test_what_was_said_in_one_is_refused_in_another(sessions, stage):
    first, second = (each.until(stage) for each in sessions)
    one, other = (dict(each.server.requests) for each in (first, second))
    tried = 0
    for member in one:
        for body in mixtures(one[member], other[member]):
            tried += 1
            state = second.clients[member].to_bytes()
            client = SummationClient.from_bytes(state, KEYS[member], second.duties[member])
            mixed = request(second, stage, member, body)
            if stage != Stage.MASK:
                with pytest.raises(ProtocolError):
                    client.receive(mixed)
                continue
            # Boxes that do not open are no reason to stop: then the member holds nothing by them.
            try:
                reply = Envelope.from_bytes(client.receive(mixed))
            except ProtocolError:
                continue
            assert Masked.from_bytes(reply.body).complaints
    assert tried > len(one)
    second.finish()  # nobody remembers any of it


def test_what_members_said_in_one_is_set_aside_in_another(sessions):
    first, second = sessions
    while first.server.stage < Stage.OPEN:
        stage = first.server.stage
        for each in sessions:
            each.step()
        for said, told in ((first, second), (second, first)):
            for member, reply in said.replied[stage].items():
                with pytest.raises(FedgaugeError):
                    told.clients[member].receive(reply)
                with pytest.raises(FedgaugeError):
                    told.server.check(member, reply)
