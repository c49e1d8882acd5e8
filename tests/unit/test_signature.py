"""Signed results: what is noticed when one is edited, and who is said to have signed it."""

import json
import os
from pathlib import Path

import msgspec
import pytest
from consortium import COORDINATOR, NAMES, A
from exchange import EXACT, make_world
from forks import fast_folder
from plans import noisy_plan
from scene import BOSS
from sites import open_policy

import fedgauge as fg
from fedgauge.engines.network import conclude
from fedgauge.histograms.calibrator import Beta, Calibrator, Steps
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.results.record import Record
from fedgauge.results.signature import Proof, prove
from fedgauge.secagg import Confirmed, Stage
from fedgauge.secagg.messages import to_bitmap

KEPT = Path(__file__).parents[1] / "fixtures" / "results"
NOISY = noisy_plan(bins=8, score_sums=True)
CHANGED = "BROKEN: it was changed after it was signed"
MAPS = {
    "smooth": Calibrator("beta", Beta(0.7, 1.3, 0.2)),
    "steps": Calibrator("binning", Steps([0.3, 0.61], [0.1, 0.4, 0.8])),
}
OTHER = "a site's confirmation is of something else"
TWICE, FEW = "not in its sum, or twice by one", "too few of its sites confirmed it"
DEEP = json.loads("[" * 500 + "]" * 500)


class Signed:
    """A result between sites, as plain data, with all keys that were used."""

    def __init__(self, world, plan):
        world.start(world.run, plan)
        world.finish()
        self.plan = plan
        self.text = (world.run / "result.json").read_bytes()
        self.keys = {name: world.site(name).key for name in (COORDINATOR, *world.names)}
        for path in world.run.iterdir():
            path.unlink()  # for the next run

    @property
    def key(self):
        return self.keys[COORDINATOR]

    @property
    def plain(self):
        return json.loads(self.text)

    @property
    def proof(self):
        return msgspec.convert(self.plain["proof"], Proof)

    def signed_anew(self, *, key=None, record=None, **proof):
        """What a coordinator that keeps no promise would sign."""
        of = self.proof
        parts = {name: proof.get(name, getattr(of, name)) for name in Confirmed._fields}
        record = msgspec.structs.replace(Record.from_json(self.text), **record or {})
        proof = prove(record, Confirmed(**parts), key or self.key)
        return json.loads(msgspec.structs.replace(record, proof=proof).to_json())


def make_signed(folder, plan, *, times=1):
    world = make_world(folder, NAMES, plan, open_policy(score_sums=True))
    return [Signed(world, plan) for _ in range(times)]


@pytest.fixture(scope="module")
def made():
    """Two exact results of the same sites, one with noise, and one of strangers."""
    with fast_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        first, second = make_signed(folder / "exact", EXACT, times=2)
        (noisy,) = make_signed(folder / "noisy", NOISY)
        (strange,) = make_signed(folder / "strange", EXACT)
    return {"exact": first, "another": second, "noisy": noisy, "strange": strange}


@pytest.fixture
def exact(made):
    return made["exact"]


@pytest.fixture(params=["exact", "noisy"])
def signed(made, request):
    return made[request.param]


@pytest.fixture
def read(tmp_path):

    def read(saved):
        path = tmp_path / "r.json"
        path.write_bytes(saved if isinstance(saved, bytes) else json.dumps(saved).encode())
        return fg.Evaluation.from_json(path)

    return read


@pytest.fixture
def state_of(read):
    return lambda saved: read(saved).signature.in_words


def test_a_result_between_sites_is_verified(signed, read):
    signature = read(signed.text).signature
    assert signature.state == "unknown key"
    assert signature.key == key_to_text(signed.key.public)
    assert signature.clients == len(signed.keys) - 1
    members = {key_to_text(key.public) for name, key in signed.keys.items() if name != COORDINATOR}
    assert set(signature.members) == members
    known = signature.by({signed.key.public: "consortium"})
    assert (known.state, known.name) == ("verified", "consortium")
    assert known.in_words == (
        f"verified: signed by consortium, confirmed by {len(members)} of {len(members)} sites"
    )


def rebuilt(value, order=lambda names: names, number=lambda value: value):
    """Plain data with its names in another order and its numbers in another form."""
    if isinstance(value, dict):
        return {name: rebuilt(value[name], order, number) for name in order(value)}
    if isinstance(value, list):
        return [rebuilt(item, order, number) for item in value]
    return number(value)


def one_kind(value):
    return int(value) if isinstance(value, float) and value.is_integer() else value


@pytest.mark.parametrize(
    "form",
    [
        lambda plain: json.dumps(plain, indent=4),
        lambda plain: json.dumps(rebuilt(plain, order=reversed)),
        lambda plain: json.dumps(rebuilt(plain, number=one_kind)),
    ],
    ids=["indented", "reversed", "one kind of number"],
)
def test_how_the_json_is_written_does_not_matter(signed, read, form):
    written = form(signed.plain).encode()
    assert written != signed.text
    assert read(written).signature.state == "unknown key"


def test_another_level_or_estimator_keeps_the_signature(signed, read, tmp_path):
    result = read(signed.text).at_level(0.8).with_estimator(fg.Range())
    assert result.signature.state == "unknown key"
    result.to_json(tmp_path / "again.json")
    again = fg.Evaluation.from_json(tmp_path / "again.json")
    assert again.level == 0.8
    assert again.signature == read(signed.text).signature


@pytest.mark.parametrize("name", MAPS)
def test_reading_through_a_map_keeps_the_signature(signed, read, tmp_path, name):
    result = read(signed.text).with_calibrator(MAPS[name])
    assert result.signature == read(signed.text).signature
    result.to_json(tmp_path / "again.json")
    again = fg.Evaluation.from_json(tmp_path / "again.json")
    assert again.mapped_by == MAPS[name]
    assert again.signature == again.with_calibrator(None).signature == result.signature
    assert again.signature.state == "unknown key"


def test_numbers_of_another_map_are_noticed(signed, read):
    """The map itself is not signed: whoever reads the counts through another says so."""
    saved = json.loads(read(signed.text).with_calibrator(MAPS["smooth"]).record.to_json())
    saved["calibrator"]["form"]["c"] = 0.21
    assert "its metrics or curves are not those of its counts" in read(saved).signature.in_words
    del saved["calibrator"]
    assert "its metrics or curves are not those of its counts" in read(saved).signature.in_words


def test_a_smaller_number_of_votes_is_enough_under_noise(made, state_of):
    noisy = made["noisy"]
    votes = noisy.proof.votes
    assert "confirmed by 3 of 4 sites" in state_of(noisy.signed_anew(votes=votes[1:]))
    assert "too few of its sites confirmed it" in state_of(noisy.signed_anew(votes=votes[2:]))


def test_among_few_neighbours_a_threshold_of_votes_is_enough(sparse):
    scene = sparse(silent={9: Stage.AGREE})
    for duty in scene.duties:
        duty.values = abs(duty.values)
    outcome = scene.finish()
    result = conclude(scene.server, outcome, key=BOSS, estimator=fg.Aligned())
    assert result.signature.in_words.endswith("confirmed by 9 of 10 sites")
    confirmed = scene.server.confirmed
    too_few = result.signed(confirmed._replace(votes=confirmed.votes[:2]), BOSS)
    assert too_few.signature.in_words == "BROKEN: too few of its sites confirmed it"


def leaves(value, place=()):
    """Places of all that is no object and no list."""
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for name, item in pairs:
            yield from leaves(item, (*place, name))
    else:
        yield place


def edited(plain, place, change):
    copy = json.loads(json.dumps(plain))
    inner = copy
    for name in place[:-1]:
        inner = inner[name]
    change(inner, place[-1])
    return copy


def slightly_other(inner, name):
    value = inner[name]
    if isinstance(value, str):
        at = len(value) // 2
        inner[name] = value[:at] + ("A" if value[at : at + 1] != "A" else "B") + value[at + 1 :]
    elif value is None:
        inner[name] = "A" if name in ("model", "group", "label") else 1
    else:
        inner[name] = value + 1 if isinstance(value, int) else value * 1.001 + 1e-5


def is_noticed(read, saved, key):
    try:
        return read(saved).signature.by({key.public: ""}).state != "verified"
    except fg.RecordError:
        return True


@pytest.mark.parametrize(
    "field",
    ["format", "plan", "privacy", "estimator", "clients", "slices", "reports", "level", "proof"],
)
def test_every_edit_is_noticed(signed, read, field):
    places = [place for place in leaves(signed.plain) if place[0] == field]
    assert places
    unnoticed = [
        place
        for place in places
        if not is_noticed(read, edited(signed.plain, place, slightly_other), signed.key)
    ]
    assert unnoticed == []


@pytest.mark.parametrize("place", [(), ("slices", 0), ("proof",), ("privacy",)])
def test_fields_of_later_versions_are_signed_too(exact, state_of, place):
    later = edited(exact.plain, (*place, "later"), lambda inner, name: inner.update({name: 1}))
    assert state_of(later) == CHANGED


def test_an_older_version_and_a_second_text_of_a_signature(exact, state_of):
    text = exact.plain["proof"]["signature"]
    other = text[:-3] + chr(ord(text[-3]) + 1) + "=="  # the last bits of base64 say nothing
    assert msgspec.convert(other, bytes) == msgspec.convert(text, bytes)
    put = edited(exact.plain, ("proof", "signature"), lambda at, name: at.update({name: other}))
    assert state_of(put) == CHANGED
    plain = exact.plain
    del plain["slices"][0]["metrics"]["brier_score"]
    assert "not checked" in state_of(plain)


@pytest.mark.parametrize(
    "change",
    [
        lambda part: part["metrics"]["roc_auc"].update(value=0.99),
        lambda part: part["metrics"].update(f1=part["metrics"]["roc_auc"]),
        lambda part: part["curves"]["roc"]["tpr"].__setitem__(1, 1.0),
        lambda part: part["metrics"]["roc_auc"].pop("parts"),
    ],
    ids=["metric", "unknown metric", "curve", "parts"],
)
def test_stored_numbers_that_the_counts_do_not_give(exact, read, change):
    plain = exact.plain
    change(plain["slices"][0])
    result = read(plain)
    assert result.signature.in_words == "BROKEN: its metrics or curves are not those of its counts"
    assert result.at_level(0.9).signature.state == "broken"
    assert result.roc_auc == read(exact.text).roc_auc


def test_what_a_copied_proof_is_worth(made, state_of):
    first, second = made["exact"], made["another"]
    copied = {**first.plain, "clients": 2, "proof": second.plain["proof"]}
    assert state_of(copied) == CHANGED
    for name in Confirmed._fields:
        proof = {**first.plain["proof"], name: second.plain["proof"][name]}
        if proof != first.plain["proof"]:
            assert state_of({**first.plain, "proof": proof}) == CHANGED


def replaced(part, **fields):
    return msgspec.structs.replace(part, **fields)


def plan_of_two():
    plan = fg.EvaluationPlan.for_histogram(EXACT.axis, fg.Cohort(2, 1))
    return {"plan": plan, "privacy": plan.statement("enforced")}


def swapped(first, second, *rest):
    one, other = (replaced(first, signature=second.signature), first.signature)
    return {"votes": (one, replaced(second, signature=other), *rest)}


def of_two(votes):
    return {"survivors": to_bitmap([0, 1], 4), "votes": votes[:2], "record": {"clients": 2}}


FORGED = {
    "other votes": (lambda _, other: {"votes": other.votes}, OTHER),
    "swapped votes": (lambda votes, _: swapped(*votes), OTHER),
    "other invitation": (lambda _, other: {"invitation": other.invitation}, OTHER),
    "a vote missing": (lambda votes, _: {"votes": votes[1:]}, FEW),
    "a vote twice": (lambda votes, _: {"votes": (votes[0], votes[0], *votes[2:])}, TWICE),
    "of nobody": (lambda v, _: {"votes": (replaced(v[0], member=7), *v[1:])}, TWICE),
    "fewer": (lambda votes, _: of_two(votes), "fewer sites are in its sum than its plan needs"),
    "not shared": (lambda *_: {"sharers": to_bitmap([0, 1, 2], 4)}, "did not take part from the"),
    "more": (lambda *_: {"record": {"clients": 5}}, "not the one that its members confirmed"),
    "plan": (lambda *_: {"record": plan_of_two()}, "its plan is not the one that its members were"),
    "simulated": (
        lambda *_: {"record": {"privacy": EXACT.statement("simulated")}},
        "only results between sites are signed",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_members_did_not_confirm(made, state_of, name):
    forge, reason = FORGED[name]
    forged = forge(made["exact"].proof.votes, made["another"].proof)
    told = state_of(made["exact"].signed_anew(**forged))
    assert told.startswith("BROKEN: ")
    assert reason in told


def test_a_stranger_cannot_sign_for_the_coordinator(exact, state_of, made):
    assert "confirmed by 4 of 4 sites" in state_of(exact.signed_anew())
    stranger = made["strange"].key
    assert state_of(made["exact"].signed_anew(key=stranger)) == CHANGED
    assert state_of(made["exact"].signed_anew(key=made["exact"].keys[A])) == CHANGED


def test_a_result_of_strangers_is_theirs(made, read, state_of):
    signature = read(made["strange"].text).signature
    compared = signature.by({made["exact"].key.public: "consortium"})
    assert compared.state == "unknown key"
    assert "not one that was named" in compared.in_words
    assert compared.in_brief.endswith("unknown key")
    assert signature.by({}) == signature
    plain = made["noisy"].plain
    assert "BROKEN" in state_of(plain | {"estimator": plain["estimator"] | {"shrink": False}})


@pytest.mark.parametrize("proof", [5, "proof", [], {}, {"signature": ""}, DEEP], ids=range(6))
def test_a_proof_that_is_none_is_broken(exact, state_of, proof):
    assert state_of({**exact.plain, "proof": proof}) == "BROKEN: its proof cannot be read"


def test_malformed_proofs_are_broken(exact, read):
    for name, values in (
        ("invitation", ["", "not base64", "AAAA", 3]),
        ("present", ["AAAAAAAA"]),
        ("survivors", [None]),
        ("votes", [[[-1, "AAAA"]], [[10**30, "AAAA"]], [[0]], {"0": "AAAA"}]),
        ("signature", ["", "AAAA", 1e300]),
    ):
        for value in values:
            malformed = {**exact.plain, "proof": {**exact.plain["proof"], name: value}}
            assert read(malformed).signature.state == "broken"


def test_malformed_proofs_are_broken_though_signed(exact, read):
    for parts in (
        *({"present": b"\xff\xff"}, {"survivors": b""}, {"sharers": b"\xff"}, {"votes": ()}),
        {"invitation": b""},
    ):
        assert read(exact.signed_anew(**parts)).signature.state == "broken"


@pytest.mark.parametrize("name", ["invitation", "votes"])
def test_proofs_that_are_too_large_are_not_looked_into(exact, state_of, monkeypatch, name):
    limit = {"invitation": "_MOST_INVITATION", "votes": "MOST_MEMBERS"}[name]
    size = len(getattr(exact.proof, name))
    for most, told in ((size, "not checked"), (size - 1, "BROKEN: its proof is too large")):
        monkeypatch.setattr(f"fedgauge.results.signature.{limit}", most)
        assert told in state_of(exact.text)


def test_a_broken_result_stays_broken_and_unsigned_without_its_proof(exact, read, tmp_path):
    read({**exact.plain, "proof": [1]}).to_json(tmp_path / "again.json")
    assert fg.Evaluation.from_json(tmp_path / "again.json").signature.state == "broken"
    for proof in ({}, {"proof": None}):
        plain = {name: value for name, value in exact.plain.items() if name != "proof"} | proof
        signature = read(plain).signature
        assert signature.state == "unsigned"
        assert signature.by({exact.key.public: "consortium"}).state == "unsigned"
        assert signature.in_brief == "unsigned"


def test_results_of_one_process_and_of_local_reports_are_unsigned(tmp_path, read):
    result = fg.evaluate({"a": ([0, 1], [0.2, 0.9])})
    result.to_json(tmp_path / "r.json")
    plain = json.loads((tmp_path / "r.json").read_bytes())
    assert "proof" not in plain
    for each in (result, read(plain)):
        assert (each.signature.state, each.signature.simulated) == ("unsigned", True)
        words = each.signature.in_words, each.signature.in_brief
        assert words == ("unsigned: simulated", "simulated")
    plain["privacy"]["claim"] = "enforced"
    signature = read(plain).signature
    assert signature.state == "unsigned"
    assert signature.in_words.startswith("unsigned: nothing shows who made the result")
    assert fg.Evaluation.from_json(KEPT / "intake.json").signature.in_brief == "unsigned"


def test_a_key_that_signs_results_signs_no_messages(exact):
    """The bytes that are signed begin like those of no message."""
    signed = []

    class Watched:
        public = exact.key.public

        def sign(self, message):
            signed.append(message)
            return SigningKey.generate().sign(message)

    exact.signed_anew(key=Watched())
    assert signed[0].startswith(b"fedgauge result\0")
