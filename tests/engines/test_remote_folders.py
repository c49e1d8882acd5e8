"""The exchange through buckets and servers: the same evaluation, whatever goes wrong on the way."""

import pytest
from buckets import FAULTS, SECRET, THREE, Bucket, RemoteWorld
from consortium import A
from exchange import CLIENTS, EXACT, NOISY

from fedgauge.secagg import Stage

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")


@pytest.fixture
def bucket():
    Bucket.reset()
    yield Bucket
    Bucket.reset()


@pytest.fixture
def world(folder, bucket):
    del bucket
    made = RemoteWorld.make(folder, THREE)
    made.write_data()
    return made


@pytest.mark.parametrize("plan", [EXACT, NOISY], ids=["exact", "noisy"])
def test_a_whole_evaluation(world, plan):
    world.start(world.run, plan)
    for stage in Stage:
        for name in THREE:
            world.answer(world.run, name, stage, CLIENTS[name])
        result = world.advance(world.run)
    assert result.clients == 3
    if plan is EXACT:
        world.assert_right(result)
    assert world.exchange(world.run, A).progress().finished
    assert Bucket.forbidden == []
    assert set(Bucket.store) >= {"/run/invitation.fgx", "/run/result.json"}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_goes_wrong_stops_nothing_and_nothing_is_charged_twice(world, fault, seed):
    faults = fault(seed)
    result, said = world.persist(EXACT, faults)
    world.assert_right(result)
    for name in THREE:
        assert world.entries(name) == ["reserve", "commit", "sent", "survivors"]
    assert Bucket.forbidden == []
    assert not any(SECRET in each for each in said)
    assert faults.happened
