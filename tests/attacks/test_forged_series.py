"""Forged series: what whoever can write to a folder of results, or signs them, makes of a trend.
Each look is signed by itself, and no signature covers a date or an order. What a trend takes for a
look must be one evaluation that its members confirmed, once; what nobody signed must be told."""

import json

import numpy as np
import pytest
from duties import Giving
from plans import noisy_plan
from refusals import refused

import fedgauge as fg
from fedgauge.engines.network import conclude
from fedgauge.estimation.distribution import Aligned, Range
from fedgauge.keys import SigningKey
from fedgauge.secagg import Sum, SummationClient, SummationServer

BOSS, STRANGER = (SigningKey.from_bytes(bytes([i]) * 32) for i in (8, 9))
PLAN = noisy_plan(4.0)


def evaluated(seed, boss=BOSS):
    """An evaluation that its members confirmed, and the sum."""
    keys = {key.public: key for key in (SigningKey.from_bytes(bytes([i]) * 32) for i in range(3))}
    server = SummationServer.invite(PLAN, keys, boss)
    counts = np.random.default_rng(seed).integers(500, 600, (3, PLAN.numbers))
    clients = [
        SummationClient.join(server.invitation, keys[public], Giving(row))
        for public, row in zip(server.invitation.members, counts, strict=True)
    ]
    outcome = server.requests
    while not isinstance(outcome, Sum):
        outcome = server.step({m: clients[m].receive(asked) for m, asked in outcome.items()})
    return server, outcome


def signed(server, outcome, boss=BOSS):
    return conclude(server, outcome, key=boss, estimator=Aligned())


@pytest.fixture(scope="module")
def made():
    return [evaluated(seed) for seed in range(3)]


@pytest.fixture
def series(made, tmp_path):
    for week, each in enumerate(made, 1):
        signed(*each).to_json(tmp_path / f"2026-W0{week}.json")
    return tmp_path


def told(folder):
    return fg.read_trend(folder).record["signatures"]


def edit(path, change):
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))


def test_one_evaluation_is_one_look_whatever_its_coordinator_signs(series, made):
    """Members confirmed one sum; with other counts each time it would make a series by itself."""
    server, outcome = made[0]
    other = outcome._replace(total=outcome.total + np.arange(PLAN.numbers) % 3)
    signed(server, other).to_json(series / "2026-W04.json")
    refused(fg.InputError, "2026-W01 and 2026-W04 are of one evaluation", fg.read_trend, series)


@pytest.mark.parametrize("unsigned", [False, True])
def test_one_result_is_one_look(series, unsigned):
    again = series / "2026-W04.json"
    again.write_bytes((series / "2026-W01.json").read_bytes())
    if unsigned:
        edit(again, lambda record: record.pop("proof"))
    refused(fg.InputError, "2026-W01 and 2026-W04 are the same result", fg.read_trend, series)


def test_a_proof_of_another_look_is_no_proof(series):
    proof = json.loads((series / "2026-W01.json").read_text())["proof"]
    edit(series / "2026-W02.json", lambda record: record.update(proof=proof))
    refused(fg.InputError, "2026-W02 is not what was signed", fg.read_trend, series)


def test_a_look_that_nobody_signed_is_told(series):
    edit(series / "2026-W02.json", lambda record: record.pop("proof"))
    assert told(series).startswith("2 of 3 looks signed by one key")
    assert "the others may have been edited" in told(series)


def test_a_look_that_a_stranger_signed_is_told(series):
    signed(*evaluated(4, STRANGER), STRANGER).to_json(series / "2026-W04.json")
    assert told(series).startswith("4 of 4 looks signed by 2 keys")


def test_a_look_that_is_read_in_another_way_is_told(series):
    """What reads the counts is covered by no signature, and moves the values that are shown."""
    assert "read" not in told(series)
    path = series / "2026-W02.json"
    fg.Evaluation.from_json(path).with_estimator(Range()).to_json(path)
    assert "1 of them read by another estimator than the usual one, which no signature" in told(
        series
    )
