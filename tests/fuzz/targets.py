"""Everything that reads what somebody else wrote, as functions of some bytes.

A row of :data:`TARGETS` has the form of the bytes, by which they are mutated, and what makes the
seeds and the function. What a signature or a checksum covers is mutated without it and signed
anew, so that mutants get past it. All that a function may raise is a `FedgaugeError`.
"""

import logging
import os
import random
import shutil
import sys
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import NamedTuple
from unittest import mock

import msgspec
from fuzz_files import (
    approvals,
    csv,
    heads,
    ledger_file,
    ledger_lines,
    notes,
    packed_csv,
    parquet,
    parquet_bytes,
    site_file,
)
from fuzz_inputs import made
from fuzz_labels import (
    answers,
    bins,
    flips,
    intake_file,
    intake_rows,
    reports,
    roster,
    roster_replies,
    totals,
)
from fuzz_plans import (
    auc_result,
    calibrator,
    plan_bytes,
    plan_toml,
    result_json,
    second_file,
    second_plan,
    shown,
    signed_result,
    trend,
)
from fuzz_sums import (
    boxes,
    evidence,
    exchange_folder,
    flower_label_node,
    flower_node,
    flower_server,
    invitation,
    openings,
    replies,
    requests,
)

from fedgauge.engines import flower
from fedgauge.errors import FedgaugeError

Seeds = list[bytes]
Run = Callable[[bytes], object]
pack, unpack = msgspec.msgpack.encode, msgspec.msgpack.decode


class Target(NamedTuple):
    """A form of bytes, and what makes the seeds and the function that reads them."""

    form: str
    make: Callable[[], tuple[Seeds, Run]]


TARGETS = {
    "plan": Target("json", plan_bytes),
    "plan-toml": Target("toml", plan_toml),
    "second-plan": Target("json", second_plan),
    "second-plan-file": Target("json", second_file),
    "result": Target("json", result_json),
    "signed-result": Target("json", signed_result),
    "auc-result": Target("json", auc_result),
    "calibrator": Target("json", calibrator),
    "trend": Target("msgpack", trend),
    "commands": Target("json", shown),
    "invitation": Target("msgpack", invitation),
    "requests": Target("msgpack", requests),
    "replies": Target("msgpack", replies),
    "openings": Target("msgpack", openings),
    "boxes": Target("msgpack", boxes),
    "evidence": Target("msgpack", evidence),
    "exchange-folder": Target("msgpack", exchange_folder),
    "reports": Target("msgpack", reports),
    "intake-rows": Target("msgpack", intake_rows),
    "intake-file": Target("raw", intake_file),
    "roster": Target("msgpack", roster),
    "bins": Target("msgpack", bins),
    "answers": Target("msgpack", answers),
    "totals": Target("msgpack", totals),
    "flips": Target("json", flips),
    "roster-replies": Target("msgpack", roster_replies),
    "flower-node": Target("msgpack", flower_node),
    "flower-label-node": Target("msgpack", flower_label_node),
    "flower-server": Target("msgpack", flower_server),
    "site-file": Target("toml", site_file),
    "approvals": Target("json", approvals),
    "ledger-lines": Target("msgpack", ledger_lines),
    "ledger-file": Target("raw", ledger_file),
    "head": Target("raw", heads),
    "notes": Target("json", notes),
    "csv": Target("rows", csv),
    "packed-csv": Target("raw", packed_csv),
    "parquet": Target("json", parquet),
    "parquet-bytes": Target("raw", parquet_bytes),
}


class Raising(logging.Handler):
    """An engine writes what fails that should not into its log, and stays silent."""

    def emit(self, record):
        if record.exc_info:
            raise record.exc_info[1]


@contextmanager
def ready(name):
    """The seeds of a target, and a function that says whether an input is read.

    Randomness begins anew for each input.
    """
    rng = random.Random(name)  # noqa: S311  (to be repeated)
    with (
        mock.patch.object(os, "urandom", rng.randbytes),
        mock.patch.object(random, "_urandom", rng.randbytes),  # what `secrets` draws from
        mock.patch.dict(os.environ, {flower.SIMULATION_VARIABLE: "1"}),
        mock.patch.object(flower.logger, "handlers", [Raising()]),
        mock.patch.object(flower.logger, "propagate", False),
    ):
        seeds, run = TARGETS[name].make()

        def attempt(data):
            rng.seed(0)
            lost, read = [], False  # raised where nobody can catch it, and printed
            with mock.patch.object(sys, "unraisablehook", lost.append), suppress(FedgaugeError):
                run(data)
                read = True
            if lost:
                raise lost[0].exc_value
            return read

        try:
            yield seeds, attempt
        finally:
            for folder in made:
                shutil.rmtree(folder, ignore_errors=True)
            made.clear()
