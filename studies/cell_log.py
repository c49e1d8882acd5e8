"""What a study has measured: a log of finished cells, and the figures as JSON and CSV."""

import csv
import dataclasses
import io
import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from fedgauge.storage import write_whole


def facts(cell: Any) -> dict[str, Any]:
    """The parameters of a cell."""
    return dataclasses.asdict(cell)


class Record(msgspec.Struct, frozen=True):
    """A finished cell, as the log keeps it."""

    cell: dict[str, Any]
    seed: int
    runs: int
    versions: dict[str, str]
    values: dict[str, float | None]  # JSON has no NaN
    seconds: float
    date: str

    @property
    def numbers(self) -> dict[str, float]:
        """The values as they were measured."""
        return {name: math.nan if value is None else value for name, value in self.values.items()}


@dataclass(frozen=True)
class Log:
    """The finished cells of a study: a line each, on disk as soon as they are finished."""

    path: Path
    versions: dict[str, str]
    records: dict[str, Record] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, versions: dict[str, str], *, fresh: bool) -> "Log":
        """What is kept, without a last line that was never finished."""
        if fresh:
            path.unlink(missing_ok=True)
        data = path.read_bytes() if path.exists() else b""
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(path, len(whole))
        log, others = cls(path, versions), 0
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                record = msgspec.json.decode(line, type=Record)
            except msgspec.DecodeError:
                raise SystemExit(f"{path}: line {number} is no record. Use --fresh.") from None
            if record.versions == versions:
                log.records[_key(record.cell, record.seed, record.runs)] = record
            else:
                others += 1
        if others:
            print(f"{path}: {others} cells were measured by other versions; not used.")
        return log

    def find(self, cell: Any, seed: int, runs: int) -> Record | None:
        """The record of a cell, if it was measured."""
        return self.records.get(_key(facts(cell), seed, runs))

    def add(self, record: Record) -> None:
        """Append a record: one write, so that a crash leaves at most a torn last line."""
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(handle, msgspec.json.encode(record) + b"\n")
            os.fsync(handle)
        finally:
            os.close(handle)
        self.records[_key(record.cell, record.seed, record.runs)] = record


def _key(cell: dict[str, Any], seed: int, runs: int) -> str:
    return json.dumps([cell, seed, runs], sort_keys=True)


def save(study: str, records: Sequence[Record], folder: Path) -> None:
    """Figures as JSON, and as CSV with one in a line."""
    everything = {"study": study, "cells": records}
    text = msgspec.json.format(msgspec.json.encode(everything), indent=1)
    write_whole(folder / f"{study}.json", text + b"\n")
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for r in records:
        names = {"study": study, **r.cell, "seed": r.seed, "runs": r.runs, "date": r.date}
        names |= r.versions
        if not lines.tell():
            writer.writerow([*names, "measure", "value"])
        writer.writerows([*names.values(), *figure] for figure in r.values.items())
    write_whole(folder / f"{study}.csv", lines.getvalue().encode())
