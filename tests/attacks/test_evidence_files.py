"""Files that a member, or whoever can write to the shared folder, leaves for others to trip over.
`exchange status` and `exchange evidence` read them at every site, and say what they show. Sites
choose their own names, so those of their files may fall together."""

import os
import subprocess
import sys

import msgspec
import pytest
from commands import run
from consortium import COORDINATOR, Consortium
from counts import counts_of
from envelopes import sealed
from hostile_member import false_complaint, turn
from plans import exact_plan, noisy_plan
from rows import draw_client
from sites import open_policy

from fedgauge.keys import SigningKey, key_to_text
from fedgauge.protocol import COORDINATOR as SERVER
from fedgauge.protocol import EVERYONE, Envelope, session_id
from fedgauge.secagg import Stage
from fedgauge.secagg.evidence import Dispute, File, Signed, WrongDealing
from fedgauge.secagg.messages import Advertisement, Opened, Shares, complaint
from fedgauge.secagg.secret_sharing import Box, Kind, SharePair
from fedgauge.site import add_trust, create_site

HOSTILE, READER = "site-1", "site-0"
SHARE = bytes(33)


class Folder:
    """An evaluation that has just begun, and one hostile member with its own key alone."""

    def __init__(self, folder):
        self.run = folder / "run"
        names = [f"site-{i}" for i in range(5)]
        self.sites = Consortium.make(folder / "sites", names, policy=open_policy())
        self.sites.start(self.run, noisy_plan(1.0))
        self.invitation = self.sites.exchange(self.run).invitation()
        self.key = self.sites.site(HOSTILE).key
        self.me = self.invitation.members.index(self.key.public)

    def said(self, pattern):
        """What a member wrote into the folder, which all can read."""
        (path,) = self.run.glob(pattern)
        envelope = Envelope.from_bytes(path.read_bytes())
        return Signed(envelope.body, envelope.signature)

    def signed(self, body, stage, to):
        envelope = sealed(self.key, self.invitation.session, stage, self.me, to, body.to_bytes())
        return Signed(envelope.body, envelope.signature)

    def accuse_myself(self, holders):
        """Evidence that the hostile member dealt wrongly, to holders of its choice."""
        session, pair = self.invitation.session, SharePair(SHARE, SHARE)
        boxes = [Box(to, b"", b"", pair.checks(session, self.me, to)) for to in holders]
        shares = Shares(commitment=b"", own=b"", boxes=boxes)
        keys = Advertisement(mask_key=b"", box_key=b"", seed=b"", setting=b"")
        found = WrongDealing(
            self.me,
            Kind.MASK,
            self.signed(shares, Stage.SHARE, SERVER),
            self.signed(keys, Stage.ADVERTISE, EVERYONE),
            [Opened(holder, SHARE) for holder in holders],
        )
        data = File(invitation=self.invitation.data, found=[found]).to_bytes()
        (self.run / "evidence.fgx").write_bytes(data)
        return data

    def command(self, verb, place):
        return ("exchange", verb, place, "--site", self.sites.site_file(READER))


@pytest.fixture
def place(folder):
    return Folder(folder)


def test_a_holder_that_does_not_exist_is_no_traceback_and_there_are_no_more_than_members(place):
    others = [m for m in range(5) if m != place.me]
    place.accuse_myself([-1, *others])
    assert run(*place.command("status", place.run)).exit_code == 0
    done = run(*place.command("evidence", place.run / "evidence.fgx"))
    assert done.stderr.startswith("fedgauge: ")
    # Of 2000 holders among five members: 3 s; of 4000, in 450 kB, 19 s; of 20,000, an hour.
    place.accuse_myself(range(10, 60))
    done = run(*place.command("status", place.run))
    assert "Set aside evidence.fgx" in done.stdout


def test_the_name_of_a_file_says_nothing_in_the_name_of_fedgauge(place):
    said = "site-3 dealt shares that do not belong together."
    (place.run / f"1-join.\r\x1b[2K\n{said}\n.reply.fgx").write_bytes(b"")
    told = run(*place.command("status", place.run)).stdout
    assert said not in told.splitlines()
    assert "\x1b" not in told


def test_a_file_name_that_is_no_text_is_no_traceback(place):
    path = os.fsencode(place.run) + b"/1-join.\xff.reply.fgx"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
    script = "from fedgauge.cli import main; main()"
    command = [sys.executable, "-c", script, *map(str, place.command("status", place.run))]
    environment = os.environ | {"PYTHONUTF8": "0", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, capture_output=True, env=environment, check=False)
    assert b"Traceback" not in done.stderr
    assert done.returncode == 0


def test_a_file_in_the_way_of_a_request_is_replaced(place):
    for name in place.sites.names:
        place.sites.answer(place.run, name, Stage.ADVERTISE, ([0, 1], [0.0, 1.0]))
    name = f"2-share.{place.me + 1}.{HOSTILE}.request.fgx"
    with (place.run / name).open("wb") as file:
        file.truncate((1 << 28) + 1)
    done = run("exchange", "advance", place.run, "--site", place.sites.site_file(COORDINATOR))
    assert done.exit_code == 0
    assert Envelope.from_bytes((place.run / name).read_bytes()).stage == Stage.SHARE


def test_a_complaint_that_the_dealer_never_heard_of_shows_nothing(place):
    """The evaluation went well. Then one member alone writes what all others are told."""
    sites, session = place.sites, place.invitation.session
    sites.play(place.run, {name: draw_client(50, seed=3) for name in sites.names})
    dealer = place.invitation.members.index(sites.keys[READER])
    shares = place.said(f"2-share.{dealer + 1}.*.reply.fgx")
    (box,) = [box for box in Shares.from_bytes(shares.body).boxes if box.member == place.me]
    told = complaint(session, box.digest(dealer, place.me))
    found = Dispute(
        dealer,
        place.me,
        shares,
        place.said(f"1-join.{place.me + 1}.*.reply.fgx"),
        place.signed(told, Stage.MASK, EVERYONE).signature,
        None,
    )
    evidence = File(invitation=place.invitation.data, found=[found])
    (place.run / "evidence.fgx").write_bytes(evidence.to_bytes())
    told = run(*place.command("status", place.run)).stdout
    assert "so nothing is shown." in told
    assert "restart" not in told


def test_a_file_in_the_way_of_evidence_does_not_stop_the_sum(place, monkeypatch):
    """Also where evidence of an earlier round was itself too long to be read."""
    sites = place.sites
    clients = {name: draw_client(50, seed=3) for name in sites.names}
    turn(monkeypatch, place.key, [false_complaint()], peer=sites.keys[READER])
    sites.play(place.run, clients, until=Stage.MASK)
    with (place.run / "evidence.fgx").open("wb") as file:
        file.truncate((1 << 28) + 1)
    assert sites.play(place.run, clients, since=Stage.AGREE) is not None


@pytest.mark.parametrize("change", [{"plan": b"junk"}, {"members": []}, {"degree": -1}])
def test_an_invitation_by_a_stranger_is_no_traceback(place, change):
    stranger = SigningKey.generate()
    terms = msgspec.structs.replace(place.invitation._terms, coordinator=stranger.public, **change)
    body = terms.to_bytes()
    envelope = sealed(stranger, session_id(body), 1, SERVER, EVERYONE, body)
    (place.run / "invitation.fgx").write_bytes(envelope.to_bytes())
    run(*place.command("status", place.run))


def test_what_was_not_joined_is_not_said_to_be_abandoned(place):
    """Whoever swaps the invitation keeps a site in an evaluation that it wants to leave."""
    sites = place.sites
    sites.answer(place.run, READER, Stage.ADVERTISE, draw_client(50, seed=3))
    (place.run / "invitation.fgx").unlink()
    sites.start(place.run, noisy_plan(1.0))
    done = run(*place.command("abandon", place.run))
    kept = sites.site(READER).ledger.status(place.invitation.session)
    assert kept == "released" or "Abandoned" not in done.stdout


FOLDERS = ("first", "second", "third")


@pytest.fixture
def sites(folder):
    """Three sites that all call themselves `hospital`, one of them in other letters."""
    made = {
        name: create_site(folder / name, name=own, dataset="stroke", policy=open_policy())
        for name, own in zip(FOLDERS, ("hospital", "hospital", "Hospital"), strict=True)
    }
    boss = create_site(folder / COORDINATOR, name=COORDINATOR, dataset="none")
    for name, site in made.items():
        add_trust(boss.path, "peer", name, key_to_text(site.key.public))
        add_trust(site.path, "coordinator", COORDINATOR, key_to_text(boss.key.public))
        for other in set(made) - {name}:
            add_trust(site.path, "peer", other, key_to_text(made[other].key.public))
    return Consortium(folder, FOLDERS)


def test_sites_of_one_name_do_not_overwrite_each_other(sites, folder):
    clients = {name: draw_client(40, seed=i) for i, name in enumerate(FOLDERS)}
    run, plan = folder / "run", exact_plan()
    sites.start(run, plan)
    result = sites.play(run, clients)
    assert result.clients == len(FOLDERS)
    assert counts_of(result).sum() == sum(len(labels) for labels, _ in clients.values())
    # Where letters count alike, too: some disks take two such names for one.
    names = [path.name.lower() for path in run.glob("*.reply.fgx")]
    assert len(set(names)) == 5 * len(FOLDERS)
