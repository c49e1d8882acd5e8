"""A platform that scores, and one or two shops that answer alone for their labels, by files."""

import msgspec
import numpy as np
from consortium import COORDINATOR
from platform_world import SCORES, SHOPS, Platform
from sites import open_policy

import fedgauge as fg
from fedgauge.vertical.answers import LabelAnswer, answer_alone, conclude_alone
from fedgauge.vertical.files import Roster, assign_bins, assign_ranks

TWO = SHOPS[:2]
NOISE = fg.DistributedDP(8.0, unit="label", neighbours="flip")
GAUSSIAN = fg.DistributedDP(
    8.0, delta=1e-6, noise="discrete-gaussian", unit="label", neighbours="flip"
)
FLIPS = fg.LocalDP(3.0, unit="label")


class Alone(Platform):
    """Shops that answer by themselves."""

    def rosters(self):
        made = (
            Roster.of_ids([f"u{i}" for i in self.rows_of(name)], self.site(name).key)
            for name in self.names
        )
        rosters = {roster.party: roster for roster in made}
        for name in self.names:
            rosters[self.keys[name]].keep(self.site(name))
        return rosters

    def told(self, privacy=NOISE, mechanism=None, **wanted):
        """Tell every shop its bins, or ranks for a mechanism; what was assigned."""
        scored = ([f"u{i}" for i in range(len(SCORES))], SCORES)
        if mechanism is None:
            made = assign_bins(scored, self.rosters(), privacy, positive="yes", **wanted)
        else:
            made = assign_ranks(scored, self.rosters(), privacy, mechanism, positive="yes")
        made.totals.keep(self.site(COORDINATOR))
        for name in self.names:
            self.give(name, made.bins[self.keys[name]])
        return made

    def give(self, name, bins):
        (self.folder / f"{name}.bins").write_bytes(bins.to_bytes())

    def file(self, name):
        return self.folder / f"{name}.answer"

    def answers(self, plan, name, path=None, *, key="user", scored=False, **options):
        """Have a shop answer; its answer as read again."""
        options = {"tell": lambda _: None} | options
        rows = msgspec.structs.replace(self.labels(name), key=key, scored=scored)
        made = answer_alone(self.site(name), plan, rows, path or self.file(name), **options)
        return LabelAnswer.load(made.path)

    def conclude(self, plan, answers, **options):
        return conclude_alone(self.site(COORDINATOR), plan, answers, **options)

    def play_alone(self, plan):
        return self.conclude(plan, [self.answers(plan, name) for name in self.names])

    def spent(self, name):
        balance = self.site(name).ledger.balances()
        return sum(each.spent.epsilon for each in balance)

    @property
    def rows(self):
        return np.concatenate([self.rows_of(name) for name in self.names])


def make_alone(folder, names=TWO, **limits):
    limits = {"labels": ("yes",), "max_epsilon": 1000.0, "budget_epsilon": 1e6} | limits
    world = Alone.make(folder, names, policy=open_policy(**limits))
    world.write_labels()
    return world
