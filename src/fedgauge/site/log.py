"""What left a site: one row for each reply and each file of reports, from its ledger."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Final, NamedTuple

from fedgauge.escaping import csv_text
from fedgauge.keys import key_to_text
from fedgauge.site.ledger_entries import Account, Cost, Entry
from fedgauge.site.site import Site

COLUMNS: Final = (
    "time",
    "evaluation",
    "dataset",
    "coordinator",
    "coordinator_key",
    "approver",
    "approver_key",
    "step",
    "plan",
    "model",
    "bytes",
    "sha256",
    "unit",
    "neighbours",
    "epsilon",
    "delta",
)


class Left(NamedTuple):
    """One thing that left, or was about to."""

    time: datetime
    evaluation: str
    account: Account
    coordinator: str  # name in the site file; empty where that no longer holds the key
    coordinator_key: str
    approver: str  # what the site file calls who approved now; the key is what signed then
    approver_key: str
    step: str
    plan: str
    model: str
    size: int
    sha256: str
    cost: Cost | None  # None where a session, its first round or its flips were charged before


def what_left(site: Site) -> list[Left]:
    """All that left a site, oldest first."""
    return list(_rows(site, site.ledger.entries()))


def _rows(site: Site, entries: Iterable[Entry]) -> Iterator[Left]:
    reserved: dict[bytes | None, Entry] = {}
    told: set[object] = set()
    for entry in entries:
        if entry.kind == "reserve":
            reserved[entry.session] = entry
        elif entry.kind in ("reply", "sent"):
            about = reserved[entry.session]
            paid = about.session if about.turn is None else about.turn.first or about.session
            what = paid if about.flips is None else (about.account, about.flips)
            exact = about.cost is not None and about.cost.is_exact_sum
            is_charged = entry.kind == "sent" and (exact or what not in told)
            yield _row(site, about, entry, about.cost if is_charged else None)
            if is_charged:
                told.add(what)


def _row(site: Site, about: Entry, entry: Entry, cost: Cost | None) -> Left:
    left = entry.left
    assert about.session and about.account and left  # noqa: S101, PT018  (a reserve, a departure)
    key, approver = about.asked.coordinator, about.asked.approver
    return Left(
        time=entry.time,
        evaluation=about.session.hex(),
        account=about.account,
        coordinator="" if key is None else site.coordinators.get(key, ""),
        coordinator_key="" if key is None else key_to_text(key),
        approver="" if approver is None else site.approvers.get(approver, ""),
        approver_key="" if approver is None else key_to_text(approver),
        step=left.step,
        plan=about.asked.dated or about.plan or "",
        model=about.asked.model.hex(),
        size=left.size,
        sha256=left.sha256,
        cost=cost,
    )


def to_csv(rows: Iterable[Left]) -> str:
    """Rows as CSV with all their digits; an exact sum has epsilon inf and protects no unit."""
    lines: list[tuple[object, ...]] = [COLUMNS]
    for row in rows:
        protects = row.cost is not None and not row.cost.is_exact_sum
        lines.append(
            (
                row.time.isoformat(),
                row.evaluation,
                row.account.dataset,
                row.coordinator,
                row.coordinator_key,
                row.approver,
                row.approver_key,
                row.step,
                row.plan,
                row.model,
                row.size,
                row.sha256,
                row.account.unit if protects else "",
                row.account.neighbours if protects else "",
                "" if row.cost is None else repr(row.cost.epsilon),
                "" if row.cost is None else repr(row.cost.delta),
            )
        )
    return csv_text(lines)
