"""A platform that scores, and shops that hold labels: labels apart from scores, by files."""

import numpy as np
from consortium import COORDINATOR, Shared
from sites import open_policy

import fedgauge as fg
from fedgauge.vertical.files import Roster, assign_bins
from fedgauge.vertical.label_party import NamedLabels

SHOPS = [f"shop-{letter}" for letter in "abcd"]
LABEL_DP = fg.DistributedDP(8.0, unit="label", neighbours="flip")
SCORES = np.random.default_rng(5).random(4000)
BOUGHT = np.random.default_rng(6).random(4000) < SCORES**2


class Platform(Shared):
    """One that scores, and shops that know who bought."""

    def rows_of(self, name):
        return np.arange(SHOPS.index(name), len(SCORES), len(SHOPS))

    def write_labels(self):
        for name in self.names:
            rows = self.rows_of(name)
            text = "".join(f"u{i},{'yes' if BOUGHT[i] else 'no'}\n" for i in rows)
            (self.folder / f"{name}.csv").write_text(f"user,bought\n{text}")

    def assign(self, **wanted):
        rosters = {}
        for name in self.names:
            ids = [f"u{i}" for i in self.rows_of(name)]
            made = Roster.of_ids(ids, self.site(name).key)
            made.keep(self.site(name))
            rosters[made.party] = Roster.from_bytes(made.to_bytes())
        ids = [f"u{i}" for i in range(len(SCORES))]
        wanted = {"positive": "yes", "cohort": fg.Cohort(3, 1), "positive_rate": 0.3} | wanted
        assigned = assign_bins((ids, SCORES), rosters, LABEL_DP, **wanted)
        assigned.totals.keep(self.site(COORDINATOR))
        for name in self.names:
            bins = assigned.bins[self.keys[name]]
            (self.folder / f"{name}.bins").write_bytes(bins.to_bytes())
        return assigned

    def rows(self, name):
        return self.labels(name)

    def labels(self, name):
        path, bins = (str(self.folder / f"{name}.{end}") for end in ("csv", "bins"))
        return NamedLabels(path, "bought", "user", bins)


def make_platform(folder, names=SHOPS):
    policy = open_policy(labels=("yes",), max_epsilon=1000.0, budget_epsilon=1e6)
    platform = Platform.make(folder, names, policy=policy)
    platform.write_labels()
    return platform
