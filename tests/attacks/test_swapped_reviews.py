"""An invitation put in the place of the one that the officer read.

An approved coordinator chooses what its evaluations' ids are made of, so it can make two of them
that begin alike: one to be read, and one to be signed.
"""

import os

import pytest
from consortium import COORDINATOR
from envelopes import sealed
from hostile import VICTIM, Attacker, exact_policy, noisy_plan
from rows import draw_client

from fedgauge.engines.exchange import INVITATION
from fedgauge.engines.review import approve, review
from fedgauge.errors import FedgaugeError, SiteError
from fedgauge.keys import SigningKey, key_to_text, verify
from fedgauge.protocol import COORDINATOR as SENDER
from fedgauge.protocol import EVERYONE, session_id
from fedgauge.secagg import Invitation
from fedgauge.secagg.graph import choose_graph
from fedgauge.secagg.messages import Terms, box_key
from fedgauge.site import add_approver, add_trust

HARMLESS, HARMFUL = noisy_plan(4, 0.1), noisy_plan(4, 1.0)
DIGITS = 8  # as `status` and `approve` show an id; 16, as `review` does, take 2^32 tries


@pytest.fixture
def attack(folder):
    clients = {name: draw_client(50, seed=i) for i, name in enumerate([VICTIM, "a", "b", "c"])}
    made = Attacker(folder, clients, policy=exact_policy())
    add_approver(made.sites.site_file(VICTIM), "officer", folder / "officer.key")
    return made


def begins_alike(key, members):
    """Two invitations, to another plan each, whose ids begin with the same digits."""
    graph, seen = choose_graph(len(members), HARMLESS.cohort), {HARMLESS: {}, HARMFUL: {}}
    box, ordered = box_key(key, b""), sorted(members)

    def body(plan, run):
        terms = Terms(
            plan=plan.to_bytes(),
            run=run,
            members=ordered,
            coordinator=key.public,
            degree=graph.degree,
            threshold=graph.threshold,
            model=b"",
            box=box.public,
        )
        return terms.to_bytes()

    place = body(HARMLESS, b"\0" * 32).index(b"\0" * 32)
    starts = {plan: body(plan, bytes(32)) for plan in seen}
    for _ in range(1 << 22):
        for plan, runs in seen.items():
            run, start = os.urandom(32), starts[plan]
            at = place + len(start) - len(starts[HARMLESS])
            digest = session_id(start[:at] + run + start[at + 32 :])[: DIGITS // 2]
            runs[digest] = run
            (other,) = seen.keys() - {plan}
            if digest in seen[other]:
                return [
                    _invitation(key, body(each, seen[each][digest])) for each in (HARMLESS, HARMFUL)
                ]
    pytest.fail("no two ids begin alike")


def _invitation(key, body):
    envelope = sealed(key, session_id(body), 1, SENDER, EVERYONE, body)
    return Invitation(envelope.to_bytes())


def test_what_was_not_reviewed_is_not_signed_though_its_id_begins_alike(attack):
    sites = attack.sites
    read, swapped = begins_alike(
        sites.site(COORDINATOR).key, [sites.keys[name] for name in sites.names]
    )
    assert read.session != swapped.session
    run, site = attack.folder / "run", sites.site(VICTIM)
    run.mkdir()
    (run / INVITATION).write_bytes(read.data)
    seen = review(site, sites.exchange(run, VICTIM).invitation())
    assert seen.plan == HARMLESS
    (run / INVITATION).write_bytes(swapped.data)
    with pytest.raises(FedgaugeError):
        approve(
            site,
            sites.exchange(run, VICTIM).invitation(),
            SigningKey.load(attack.folder / "officer.key"),
            evaluation=read.session.hex()[:DIGITS],
        )


# Points of small order, as public keys: 1, -1, and each again in a second form.
ANYBODYS = [
    b"\1" + bytes(31),
    b"\xec" + b"\xff" * 30 + b"\x7f",
    b"\1" + bytes(30) + b"\x80",
    b"\xee" + b"\xff" * 30 + b"\x7f",
]


@pytest.mark.parametrize("kind", ["approver", "peer", "coordinator"])
@pytest.mark.parametrize("key", ANYBODYS, ids=["one", "minus one", "one again", "p plus one"])
def test_a_key_that_anybody_can_sign_with_is_nobodys(attack, kind, key):
    """Evidence against a member with such a key shows nothing, and its approval is no approval."""
    signatures = [point + bytes(32) for point in ANYBODYS]
    assert any(verify(key, b"%d" % i, each) for each in signatures for i in range(16))
    with pytest.raises(SiteError):
        add_trust(attack.sites.site_file(VICTIM), kind, "anybody", key_to_text(key))
