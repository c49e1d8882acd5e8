"""Files of an exchange whose names fall together.

Sites choose their own names, and what a coordinator calls them is up to it. Nothing keeps two
from choosing the same, by accident or to take the other's place.
"""

import pytest
from consortium import COORDINATOR, Consortium
from counts import counts_of
from plans import exact_plan
from rows import draw_client
from sites import open_policy

from fedgauge.keys import key_to_text
from fedgauge.site import add_trust, create_site

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
