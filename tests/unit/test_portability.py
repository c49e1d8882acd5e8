"""What two machines must agree on is the same, whatever kernels their processors choose."""

import itertools
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import fedgauge as fg
from fedgauge.privacy import Cohort, accounting

# Plans as a coordinator makes them, and what a site makes of those that others made.
MADE = """
import json, sys
import fedgauge as fg
from fedgauge.plan import EvaluationPlan
from fedgauge.planner import search
from fedgauge.privacy import Cohort
from fedgauge.secagg.graph import choose_graph, is_safe

search._DRAWS, search._FEW_DRAWS, search._PROMISING = 2, 1, 2  # the same arithmetic, less of it

cohort = Cohort(min_survivors=5, max_colluding=1)
hints = dict(clients=5, examples=20_000, positive_rate=0.1)
models = [
    fg.DistributedDP(1.0),
    fg.DistributedDP(0.3, noise="skellam", delta=1e-6),
    fg.DistributedDP(3.0, noise="discrete-gaussian", delta=1e-5),
    fg.LocalDP(5.0),
]
plans = [fg.planner.propose(privacy=model, **hints) for model in models]
plans.append(fg.planner.propose(privacy=fg.DistributedDP(1.0), scores="margins", **hints))
axes = [fg.Axis.logit(64, outside="clip"), fg.Axis.asinh(64, outside="clip")]
plans += [
    EvaluationPlan.for_histogram(axis, privacy=models[1], cohort=cohort, tree=(8, 8))
    for axis in axes
]
known = json.load(sys.stdin)
for text in known["plans"]:
    plan = EvaluationPlan.from_bytes(bytes.fromhex(text))
    plan.check_promise()
cohorts = [Cohort(min_survivors=100, max_colluding=colluding) for colluding in (1, 30)]
graphs = [choose_graph(members, cohort) for members in (300, 1000) for cohort in cohorts]
for each, cohort in zip(known["graphs"], cohorts * 2):
    assert is_safe(graphs[0]._make(each), cohort)
told = {
    "plans": [plan.to_bytes().hex() for plan in plans],
    "costs": [repr(plan.statement("enforced").delta) for plan in plans],
    "graphs": graphs,
}
print(json.dumps(told))
"""


def made(known, **kernels):
    done = subprocess.run(
        [sys.executable, "-c", MADE],
        input=json.dumps(known),
        env=os.environ | kernels,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="names of kernels are those of Linux wheels")
def test_machines_with_other_kernels_agree():
    here = made({"plans": [], "graphs": []})
    simd = " ".join(np._core._multiarray_umath.__cpu_dispatch__)
    there = made(here, OPENBLAS_CORETYPE="Prescott", NPY_DISABLE_CPU_FEATURES=simd)
    assert there == here


def test_delta_does_not_hang_on_how_python_adds_floats():
    """`sum` rounds otherwise from Python 3.12 on, and approvals sign delta to the last digit."""
    model, cohort = fg.DistributedDP(1.0), Cohort(3, 1)
    law = SimpleNamespace(distance=0.1 * 2.0**-60)
    orders = itertools.permutations([(law, 1), (law, 2), (law, 3), (law, 10**6)])
    told = {model.state(cohort, draws=draws, claim="simulated").delta for draws in orders}
    assert len(told) == 1


@pytest.mark.parametrize("last", [1e-6, 1e-6 * (1 - 1e-12)])
def test_calibrated_noise_leaves_some_of_delta(last):
    """A site whose last digits differ from the coordinator's does not refuse its noise."""

    def cost(width):
        return 1.0 if width < 1.5 else last if width < 2.0 else 1e-7

    width = accounting._smallest(cost, 1e-6, guess=1.0)
    assert width >= 2.0
