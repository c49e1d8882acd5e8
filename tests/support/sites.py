"""Sites that know a coordinator and some peers."""

from fedgauge.keys import SigningKey, key_to_text
from fedgauge.site import Policy, add_trust, create_site
from fedgauge.site.policy import MODELS

PEERS = {name: SigningKey.from_bytes(bytes([number]) * 32) for number, name in enumerate("bcdef")}
BOSS = SigningKey.from_bytes(b"\x77" * 32)
STRANGER = SigningKey.from_bytes(b"\x99" * 32)


def open_policy(**limits):
    """A policy that leaves exact sums and budgets wide open: for tests of something else."""
    opened = {
        "models": MODELS,
        "exact_sums": 1000,
        "min_bin_width": 0.0,
        "min_cell": 0,
        "exact_dropouts": True,
        "exact_of_models": True,
        "max_groups": 100,
        "exact_scores": 100,
        "exact_pairs": True,
        "exact_groups": ("a", "b", "few", "women", "men", "old"),
        "min_new_rows": 0,
        "budget_epsilon": 10.0,
        "findings": "join",
    }
    return Policy(**(opened | limits))


def text_of(key):
    return key_to_text(key.public)


def make_site(folder, *, peers="bcdef", **policy):
    site = create_site(folder, name="hospital-a", dataset="stroke", policy=open_policy(**policy))
    for name in peers:
        add_trust(site.path, "peer", name, text_of(PEERS[name]))
    return add_trust(site.path, "coordinator", "consortium", text_of(BOSS))


def edit(site, old, new):
    text = site.path.read_text()
    assert old in text
    site.path.write_text(text.replace(old, new))
