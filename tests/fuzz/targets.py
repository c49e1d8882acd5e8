"""Everything that reads what somebody else wrote, as functions of some bytes. A row of
:data:`TARGETS` has the form of the bytes, by which they are mutated, and what makes the seeds and
the function. What a signature or a checksum covers is mutated without it and signed anew, so that
mutants get past it. All that a function may raise is a `FedgaugeError`."""

import logging
import os
import random
import shutil
import sys
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import NamedTuple
from unittest import mock

import fuzz_files
import fuzz_labels
import fuzz_plans
import fuzz_sums
import msgspec
from fuzz_inputs import made

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
    "plan": Target("json", fuzz_plans.plan_bytes),
    "plan-toml": Target("toml", fuzz_plans.plan_toml),
    "second-plan": Target("json", fuzz_plans.second_plan),
    "second-plan-file": Target("json", fuzz_plans.second_file),
    "result": Target("json", fuzz_plans.result_json),
    "signed-result": Target("json", fuzz_plans.signed_result),
    "auc-result": Target("json", fuzz_plans.auc_result),
    "calibrator": Target("json", fuzz_plans.calibrator),
    "trend": Target("msgpack", fuzz_plans.trend),
    "commands": Target("json", fuzz_plans.shown),
    "invitation": Target("msgpack", fuzz_sums.invitation),
    "requests": Target("msgpack", fuzz_sums.requests),
    "replies": Target("msgpack", fuzz_sums.replies),
    "openings": Target("msgpack", fuzz_sums.openings),
    "boxes": Target("msgpack", fuzz_sums.boxes),
    "evidence": Target("msgpack", fuzz_sums.evidence),
    "exchange-folder": Target("msgpack", fuzz_sums.exchange_folder),
    "reports": Target("msgpack", fuzz_labels.reports),
    "intake-rows": Target("msgpack", fuzz_labels.intake_rows),
    "intake-file": Target("raw", fuzz_labels.intake_file),
    "roster": Target("msgpack", fuzz_labels.roster),
    "bins": Target("msgpack", fuzz_labels.bins),
    "answers": Target("msgpack", fuzz_labels.answers),
    "totals": Target("msgpack", fuzz_labels.totals),
    "flips": Target("json", fuzz_labels.flips),
    "roster-replies": Target("msgpack", fuzz_labels.roster_replies),
    "flower-node": Target("msgpack", fuzz_sums.flower_node),
    "flower-label-node": Target("msgpack", fuzz_sums.flower_label_node),
    "flower-server": Target("msgpack", fuzz_sums.flower_server),
    "site-file": Target("toml", fuzz_files.site_file),
    "cards": Target("json", fuzz_files.cards),
    "consortia": Target("json", fuzz_files.consortia),
    "approvals": Target("json", fuzz_files.approvals),
    "ledger-lines": Target("msgpack", fuzz_files.ledger_lines),
    "ledger-file": Target("raw", fuzz_files.ledger_file),
    "head": Target("raw", fuzz_files.heads),
    "notes": Target("json", fuzz_files.notes),
    "csv": Target("rows", fuzz_files.csv),
    "packed-csv": Target("raw", fuzz_files.packed_csv),
    "parquet": Target("json", fuzz_files.parquet),
    "parquet-bytes": Target("raw", fuzz_files.parquet_bytes),
}


class Raising(logging.Handler):
    """An engine writes what fails that should not into its log, and stays silent."""

    def emit(self, record):
        if record.exc_info:
            raise record.exc_info[1]


@contextmanager
def ready(name):
    """The seeds of a target, and a function that says whether an input is read. Randomness begins
    anew for each input."""
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
