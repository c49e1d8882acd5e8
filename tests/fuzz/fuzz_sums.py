"""What members and coordinators of secure sums say to each other, by files and over Flower."""

import shutil
from collections import OrderedDict
from contextlib import suppress
from unittest import mock

import fuzz_inputs
import msgspec
import pytest
from consortium import COORDINATOR, A
from exchange import make_world
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from fuzz_plans import look_at, some_plans
from hostile_member import false_complaint, junk_boxes, turn, wrong_opening, wrong_shares
from nodes import FIRST, MODEL, Federation
from plans import small_noisy_plan, small_plan
from scene import BOSS, KEYS, VICTIM, Scene
from shops import Shops
from sites import make_site
from standin import StandInGrid

import fedgauge as fg
from fedgauge.engines import flower
from fedgauge.engines.exchange import EVIDENCE, Exchange, examine
from fedgauge.engines.participant import judge_invitation
from fedgauge.errors import FedgaugeError
from fedgauge.protocol import COORDINATOR as BOSS_PLACE
from fedgauge.protocol import EVERYONE, Envelope, session_id
from fedgauge.secagg import Invitation, Stage, SummationClient, SummationServer, messages
from fedgauge.secagg.evidence import File
from fedgauge.secagg.masking import AgreementKey, derive, pair, seal
from fedgauge.secagg.secret_sharing import Box, SharePair
from fedgauge.vertical import flower as flower_labels


def some_scenes():
    yield lambda **options: Scene(small_plan(), **options)
    yield lambda **options: Scene(small_noisy_plan(), **options)


def invitation():
    site = make_site(fuzz_inputs.new_folder() / "a")
    members = sorted([site.key.public, *(key.public for key in KEYS[:5])])
    plans = [plan for plan in some_plans() if not plan.privacy.sends_reports]
    seeds = []
    for plan in plans:
        with suppress(FedgaugeError):
            made = SummationServer.invite(plan, members, BOSS).invitation
            seeds.append(Envelope.from_bytes(made.data).body)

    def run(data):
        place = {"stage": Stage.ADVERTISE, "sender": BOSS_PLACE, "recipient": EVERYONE}
        signed = Envelope.sealed(BOSS, session=session_id(data), body=data, **place)
        found = Invitation(signed.to_bytes())
        with suppress(FedgaugeError):
            judge_invitation(site, found)
        look_at(found.plan)
        key = next((key for key in KEYS if key.public in found.members), KEYS[0])
        SummationClient.join(found, key, None).receive(found.data)

    return seeds, run


def requests():
    """What a hostile coordinator says to a member."""
    states, seeds = [], []
    for make in some_scenes():
        for stage in list(Stage)[1:]:
            scene = make(silent={4: Stage.MASK}).until(stage) if stage > 3 else make().until(stage)
            seeds.append(fuzz_inputs.pack([len(states), scene.server.requests[VICTIM]]))
            states.append((scene.clients[VICTIM].to_bytes(), scene.duties[VICTIM]))

    def run(data):
        place, request = fuzz_inputs.parts_of(data, int, bytes)
        state, duty = states[place % len(states)]
        client = SummationClient.from_bytes(state, KEYS[VICTIM], duty)
        client.receive(fuzz_inputs.signed_again(request, BOSS))
        SummationClient.from_bytes(client.to_bytes(), KEYS[VICTIM], duty)

    return seeds, run


def replies():
    """What a hostile member says to the coordinator."""
    states, seeds = [], []
    for make in some_scenes():
        for stage in Stage:
            scene = make().until(stage)
            answers = scene.answers()
            seeds.append(fuzz_inputs.pack([len(states), 1, answers[1]]))
            states.append((scene.server.to_bytes(), answers))

    def run(data):
        place, member, reply = fuzz_inputs.parts_of(data, int, int, bytes)
        state, honest = states[place % len(states)]
        member %= 6
        server, reply = (
            SummationServer.from_bytes(state, BOSS),
            fuzz_inputs.signed_again(reply, KEYS[member]),
        )
        with suppress(FedgaugeError):
            server.check(member, reply)
        server.step([(member, reply), *honest.items()])
        server.evidence.to_bytes()
        assert not any(fault.proved and fault.member != member for fault in server.faults)

    return seeds, run


def openings():
    """What a member opens for the coordinator, sealed anew."""
    seeds, scenes = [], []
    for make in some_scenes():
        scene = make(silent={4: Stage.MASK}) if "Distributed" in repr(make().plan) else make()
        scene.until(Stage.OPEN)
        answers = scene.answers()
        seeds.append(fuzz_inputs.pack([len(scenes), 1, scene.opening(answers[1]).to_bytes()]))
        scenes.append((scene, scene.server.to_bytes(), answers))

    def run(data):
        place, member, plain = fuzz_inputs.parts_of(data, int, int, bytes)
        scene, state, honest = scenes[place % len(scenes)]
        member = member % 4
        reply = None
        with fuzz_inputs.forgiving():
            reply = scene.reply(member, messages.Opening.from_bytes(plain))
        if reply is None:
            secret = scene.box_keys[member].agree(scene.invitation.box)
            key, about = messages._opening_key(scene.session, member, secret)
            reply = scene.reply(member, messages.SealedOpening(sealed=seal(key, plain, about)))
        server = SummationServer.from_bytes(state, BOSS)
        server.step(honest | {member: reply})
        server.evidence.to_bytes()
        assert not any(fault.proved and fault.member != member for fault in server.faults)

    return seeds, run


def boxes():
    """What a hostile dealer puts into a box for a member, sealed anew."""
    scene = Scene(small_noisy_plan()).until(Stage.MASK)
    inbox = scene.asked(VICTIM)
    state, duty = scene.clients[VICTIM].to_bytes(), scene.duties[VICTIM]
    holder, box_key = scene.box_keys[VICTIM], AgreementKey(bytes([7]) * 32)
    mine = inbox.boxes[0]
    plain = mine.opened(holder, scene.session, mine.member, VICTIM)

    def run(data):
        place, mask, key, rest = fuzz_inputs.parts_of(data, int, bytes, bytes, bytes)
        boxes = list(inbox.boxes)
        place %= len(boxes)
        dealer = boxes[place].member
        about = b"box " + pair(dealer, VICTIM)
        with_ = derive(box_key.agree(holder.public), session=scene.session, purpose=about)
        sealed = seal(with_, mask + key + rest, scene.session + about)
        checks = SharePair(mask, key).checks(scene.session, dealer, VICTIM)
        boxes[place] = Box(dealer, box_key.public, sealed, checks)
        client = SummationClient.from_bytes(state, KEYS[VICTIM], duty)
        told = msgspec.structs.replace(inbox, boxes=boxes)
        assert isinstance(told, messages.Inbox)
        client.receive(scene.request(VICTIM, told))

    return [fuzz_inputs.pack([0, *plain, b""]), fuzz_inputs.pack([2, *plain, b"x"])], run


def evidence():
    stories = [[junk_boxes()], [false_complaint()], [wrong_opening(of_all=True)], [wrong_shares()]]
    seeds = []
    for deeds in stories:
        with pytest.MonkeyPatch.context() as turned:
            turn(turned, KEYS[0], deeds, peer=KEYS[VICTIM].public)
            scene = Scene(small_noisy_plan())
            with suppress(FedgaugeError):
                scene.until(Stage.OPEN).step()
        seeds.append(scene.server.evidence.to_bytes())
    site, path = (
        make_site(fuzz_inputs.new_folder() / "a"),
        fuzz_inputs.new_folder() / "evidence.fgx",
    )

    def run(data):
        with fuzz_inputs.forgiving():
            tree = fuzz_inputs.unpack(data)
            for each in tree[1]:
                with fuzz_inputs.forgiving():
                    sign_evidence(each, scene.invitation)
            data = fuzz_inputs.pack(tree)
        path.write_bytes(data)
        with suppress(FedgaugeError):
            examine(path, site)
        File.from_bytes(data).judged()

    return seeds, run


def sign_evidence(found, invitation):
    """Sign what evidence says that members said, each with its own key."""
    session = invitation.session

    def said(place, member, stage, to=EVERYONE):
        found[place][1] = signature(member, stage, found[place][0], to)

    def signature(member, stage, body, to=EVERYONE):
        place = {"stage": stage, "sender": member, "recipient": to}
        return Envelope.sealed(KEYS[member], session=session, body=body, **place).signature

    kind, dealer, holder = found[:3]
    said(3 if kind == "dispute" else 5 if kind == "share" else 3, dealer, Stage.SHARE, BOSS_PLACE)
    if kind == "dispute":
        said(4, holder, Stage.ADVERTISE)
        if found[6] is not None:
            said(6, dealer, Stage.AGREE, BOSS_PLACE)
        dealt = messages.Shares.from_bytes(found[3][0]).boxes
        (box,) = [each for each in dealt if each.member == holder]
        told = messages.complaint(session, box.digest(dealer, holder)).to_bytes()
        found[5] = signature(holder, Stage.MASK, told)
    elif kind == "share":
        found[7] = signature(holder, Stage.MASK, messages.receipt(session, found[6]).to_bytes())
        found[9] = signature(holder, Stage.OPEN, messages.opening(session, found[8]).to_bytes())
    else:
        said(4, dealer, Stage.ADVERTISE)


def exchange_folder():
    """What lies in a folder that many can write to."""
    world = make_world(fuzz_inputs.new_folder(), ["hospital-a", "hospital-b", "hospital-c"])
    plan = fg.EvaluationPlan.load(world.folder / "plan.json")
    world.start(world.run, plan)
    seeds, clients = [], world.clients
    keys = [world.site(name).key for name in sorted(clients, key=lambda n: world.keys[n])]
    boss = world.site(COORDINATOR).key
    for stage in Stage:
        for name in clients:
            world.answer(world.run, name, stage, clients[name])
        files = world.published()
        seeds.append(fuzz_inputs.pack([list(files), list(files.values())]))
        world.advance(world.run)
    files = world.published()
    seeds.append(fuzz_inputs.pack([list(files), list(files.values())]))
    run_folder, site = fuzz_inputs.new_folder(), world.site(A)

    def again(content):
        with fuzz_inputs.forgiving():
            sender = Envelope.from_bytes(content).sender
            return fuzz_inputs.signed_again(content, boss if sender == BOSS_PLACE else keys[sender])
        return content

    def run(data):
        names, contents = fuzz_inputs.parts_of(data, list, list)
        shutil.rmtree(run_folder, ignore_errors=True)
        contents = [again(each) if isinstance(each, bytes) else each for each in contents]
        fuzz_inputs.write_files(run_folder, names, contents)
        exchange = Exchange(run_folder, site)
        fuzz_inputs.each_alone(
            exchange.sessions,
            lambda: exchange.request_to_me(exchange.invitation(), Stage.MASK),
            lambda: examine(run_folder / EVIDENCE, site),
            lambda: exchange.require_open(exchange.invitation()),
        )
        exchange.progress()

    return seeds, run


KINDS = {"config": ConfigRecord, "metrics": MetricRecord, "arrays": ArrayRecord}


def array_of(dtype, shape, stype, data):
    return Array(dtype, tuple(shape), stype, data)


def records_of(tree):
    """Records as Flower carries them; what it refuses to make cannot be sent."""
    made = RecordDict()
    with fuzz_inputs.forgiving(AssertionError):
        for name, kind, fields in tree:
            values = OrderedDict(
                (key, array_of(*value) if kind == "arrays" else value) for key, value in fields
            )
            made[name] = KINDS[kind](values)
        return made
    raise fuzz_inputs.Unmade


def tree_of(records):
    def plain(value):
        if isinstance(value, Array):
            return [value.dtype, list(value.shape), value.stype, value.data]
        return value

    kinds = {kind: name for name, kind in KINDS.items()}
    return [
        [name, kinds[type(each)], [[key, plain(value)] for key, value in each.items()]]
        for name, each in records.items()
    ]


def with_signature(tree, what, key):
    """The tree with fedgauge's own field signed anew."""
    with fuzz_inputs.forgiving():
        for name, _, fields in tree:
            for field in fields:
                if name == flower.ACTION and field[0] == what and isinstance(field[1], bytes):
                    field[1] = fuzz_inputs.signed_again(field[1], key)
    return tree


def played(world, evaluate):
    """All messages of an evaluation to the first node, and what it remembered before each."""
    seen = []
    call = world.grid.call

    def watched(node, message):
        memory = dict(world.grid.contexts[node].state.get(flower.ACTION, {}))
        if node == FIRST:
            seen.append((tree_of(message.content), memory, message))
        return call(node, message)

    world.grid.call = watched
    if world.grid._courier == call:
        world.grid._courier = watched
    boss = mock.Mock(generate=lambda: BOSS)
    patched = [mock.patch.object(each, "SigningKey", boss) for each in (flower, flower_labels)]
    with patched[0], patched[1]:
        evaluate()
    return seen


def node_target(world, evaluate):
    seen = played(world, evaluate)
    assert len(seen) > 4
    context = world.grid.contexts[FIRST]

    def run(data):
        place, tree = fuzz_inputs.parts_of(data, int, list)
        _, memory, message = seen[place % len(seen)]
        records = records_of(with_signature(tree, "request", BOSS))
        context.state[flower.ACTION] = ConfigRecord(dict(memory))
        world.grid.call(FIRST, Message(records, metadata=message.metadata))

    return [fuzz_inputs.pack([place, tree]) for place, (tree, _, _) in enumerate(seen)], run


def flower_node():
    world = Federation()
    return node_target(world, lambda: world.evaluate(arrays=MODEL))


def flower_label_node():
    world = Shops()
    return node_target(world, world.evaluate)


def flower_server():
    """Records that nodes send to the server."""
    scene = Scene(small_noisy_plan())
    states, seeds = [], []
    for stage in Stage:
        scene.until(stage)
        honest = scene.answers()
        states.append((scene.server.to_bytes(), honest))
        config = [["reply", honest[1]]]
        seeds.append(fuzz_inputs.pack([len(seeds), 1, [[flower.ACTION, "config", config]]]))
    nodes = {member: FIRST + member for member in range(6)}

    def run(data):
        place, member, tree = fuzz_inputs.parts_of(data, int, int, list)
        state, honest = states[place % len(states)]
        member %= 6
        records = records_of(with_signature(tree, "reply", KEYS[member]))

        def reply(_app, message):
            node = message.metadata.dst_node_id - FIRST
            plain = RecordDict({flower.ACTION: ConfigRecord({"reply": honest.get(node, b"")})})
            return Message(records if node == member else plain, reply_to=message)

        grid = StandInGrid(
            dict.fromkeys(nodes.values()), {node: {} for node in nodes.values()}, reply
        )
        server = SummationServer.from_bytes(state, BOSS)
        carrier = flower._GridCarrier(grid, None, 1.0)
        carrier._nodes = dict(nodes)
        server.step(carrier.carry(server, server.requests))

    return seeds, run
