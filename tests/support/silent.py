"""What of a site can be seen from outside: sizes of its messages, and what its ledger gained."""

from hostile import VICTIM

import fedgauge as fg


def messages(engine, plan, rows, others, *, raising=False):
    """Sizes of the victim's replies by stage, what its ledger gained, whether there is a result."""
    sizes = {}
    clients = Clients({VICTIM: rows, **others}, raising=raising)
    before = [] if engine._sites is None else engine._sites.entries(VICTIM)

    def on_reply(name, stage, data):
        if name == VICTIM:
            sizes.setdefault(stage, []).append(len(data))
        return data

    try:
        engine.run(plan, clients, on_reply=on_reply)
        finished = True
    except (fg.FedgaugeError, RuntimeError, OSError):
        finished = False
    return sizes, engine._sites.entries(VICTIM)[len(before) :], finished


class Clients(dict):
    """Clients' rows; asked for the victim's by itself, as a node's `score` does, it may raise."""

    def __init__(self, rows, *, raising):
        super().__init__(rows)
        self._raising = raising

    def __getitem__(self, name):
        if self._raising and name == VICTIM:
            raise RuntimeError("the model cannot score these rows")
        return super().__getitem__(name)
