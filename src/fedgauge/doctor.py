"""Whether everything is in place before an evaluation: each finding with its remedy."""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Final, Literal, NamedTuple

from fedgauge import storage
from fedgauge.engines.folder import is_remote, open_folder
from fedgauge.engines.participant import Participant
from fedgauge.errors import FedgaugeError
from fedgauge.escaping import in_one_line
from fedgauge.site import Ledger, Site
from fedgauge.site.policy import SiteFile, folder_faults
from fedgauge.storage import faults

_LEAST_PYTHON: Final = (3, 11)
_FLOWER: Final = "1.41."
_NEEDED: Final = ("cryptography", "mnemonic", "msgspec", "numpy", "pyarrow", "scipy")
_LEAST_FREE: Final = 100 << 20  # bytes: states and ledgers need far less, logs around them may not
_CLOCKS: Final = timedelta(minutes=5)  # by which two honest clocks may differ

State = Literal["ok", "note", "mend"]


class Finding(NamedTuple):
    """What was looked at, and what to do: nothing, think of it, or mend it."""

    about: str
    state: State
    told: str


def examine(site: Path | None = None, run: str | Path | None = None) -> list[Finding]:
    """Look at the installation and, where named, at a site file and an exchange's folder."""
    findings = list(_installation())
    if site is not None:
        findings += _site(site)
    if run is not None:
        remote = isinstance(run, str) and is_remote(run)
        findings.append(_remote_folder(str(run)) if remote else _shared_folder(Path(run)))
    return findings


def _installation() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < _LEAST_PYTHON:
        yield Finding("Python", "mend", f"{version} is too old: use 3.11 or later.")
    else:
        yield Finding("Python", "ok", version)
    versions = {name: _version(name) for name in _NEEDED}
    missing = ", ".join(name for name, found in versions.items() if found is None)
    if missing:
        yield Finding("Packages", "mend", f"{missing}: not installed. pip install fedgauge again.")
    else:
        yield Finding("Packages", "ok", ", ".join(f"{n} {v}" for n, v in versions.items()))
    flower = _version("flwr")
    if flower is not None and not flower.startswith(_FLOWER):
        told = f"{flower}; fedgauge is tried with {_FLOWER}x. pip install 'fedgauge[flower]'."
        yield Finding("Flower", "note", told)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _site(path: Path) -> Iterator[Finding]:
    wrong = _owner_faults(path.absolute())
    try:
        site = Site.from_toml(path)
    except FedgaugeError as error:
        yield Finding("Site file and key", "mend", str(error))
        yield from (Finding("Owners", "mend", told) for told in wrong if told not in str(error))
        return
    yield Finding("Site file and key", "ok", f"{site.path}: {site.name}, dataset {site.dataset}")
    yield from (Finding("Owners", "mend", told) for told in wrong)
    if not wrong:
        yield Finding("Owners", "ok", "nobody else can change the site's files")
    checks: tuple[Callable[[Site], Finding], ...] = (
        _trust,
        _folder,
        _ledger,
        _witness,
        _budget,
        _clock,
        _disk,
        _sessions,
    )
    for check in checks:
        yield check(site)


def _owner_faults(path: Path) -> list[str]:
    """All that lets others than its owner read or change what a site relies on."""
    try:
        file = SiteFile.from_text(path.read_text("utf-8"))
        names = [file.key, file.ledger]
    except (FedgaugeError, OSError, UnicodeDecodeError):  # found next, and told then
        names = []
    private = [path.parent / name for each in names for name in (each, f"{each}.head")]
    try:
        found = [*faults(path), *folder_faults(path.parent)]
        found += [told for each in private for told in faults(each, private=True)]
    except OSError as error:
        found = [f"cannot look into the folder of {path}: {error.strerror}."]
    return [*dict.fromkeys(found)]


def _trust(site: Site) -> Finding:
    peers = len(site.peers) - 1
    if not site.coordinators:
        return Finding(
            "Trust",
            "note",
            "no coordinator, so nobody may start an evaluation here: add one with `fedgauge "
            "consortium accept FILE` or `fedgauge site trust --coordinator NAME KEY`. A "
            "coordinator's own site needs none.",
        )
    told = f"{len(site.coordinators)} may start evaluations; {peers} other sites"
    least = site.policy.min_cohort
    if peers + 1 < least:
        told += f": fewer than the {least} of a sum. `fedgauge site trust NAME KEY` adds one."
        return Finding("Trust", "mend", told)
    return Finding("Trust", "ok", told)


def _folder(site: Site) -> Finding:
    for folder in (site.folder, site.folder / "sessions"):
        if folder.exists() and stat.S_IMODE(folder.stat().st_mode) & 0o077:
            return Finding(
                "Folder", "note", f"others can look into {folder}: `chmod 700 {folder}` hides it."
            )
    return Finding("Folder", "ok", f"only its owner can look into {site.folder}")


def _ledger(site: Site) -> Finding:
    """By itself: what its witness says is another finding."""
    try:
        entries = Ledger(site.ledger_path, head=site.head_path).entries()
    except FedgaugeError as error:
        return Finding("Ledger", "mend", str(error))
    return Finding("Ledger", "ok", f"{len(entries):,} entries; its head matches")


def _witness(site: Site) -> Finding:
    if site.witness_path is None:
        return Finding(
            "Witness",
            "note",
            "none: a restored backup of the whole folder, or a cloned machine, could spend the "
            "budget again unnoticed. `fedgauge site witness PATH`, on another disk or machine.",
        )
    if _ledger(site).state == "mend":
        return Finding("Witness", "mend", "unknown without the ledger.")
    try:
        site.ledger.entries()
    except FedgaugeError as error:
        return Finding("Witness", "mend", str(error))
    return Finding("Witness", "ok", f"{site.witness_path} knows the latest entry")


def _budget(site: Site) -> Finding:
    policy = site.policy
    try:
        _, limit, spent, reserved = site.ledger.total(
            site.dataset, default_limit=policy.default_limit
        )
        exact = site.ledger.count_exact(site.dataset)
    except FedgaugeError:
        return Finding("Budget", "mend", "unknown without the ledger.")
    if exact and not policy.mix_exact:
        told = f"{policy.after_exact(exact)} for {site.dataset} (mix_exact)."
        return Finding("Budget", "note", told)
    assert limit is not None  # noqa: S101  (of a whole dataset there is one)
    left = limit.epsilon - spent.epsilon - reserved.epsilon
    told = f"epsilon {max(left, 0.0):g} of {limit.epsilon:g} left for {site.dataset}"
    if left > 0:
        return Finding("Budget", "ok", told)
    return Finding(
        "Budget", "note", f"{told}: noise is refused. `fedgauge ledger set-limit` raises it."
    )


def _clock(site: Site) -> Finding:
    now = datetime.now(UTC)
    try:
        entries = site.ledger.entries()
    except FedgaugeError:
        entries = []
    if entries and now < entries[-1].time - _CLOCKS:
        return Finding(
            "Clock",
            "mend",
            f"the clock says {now:%Y-%m-%d %H:%M} UTC, which is before the ledger's last entry of "
            f"{entries[-1].time:%Y-%m-%d %H:%M}. Set it, or find out whether this machine is an "
            "old copy.",
        )
    return Finding("Clock", "ok", f"{now:%Y-%m-%d %H:%M} UTC")


def _disk(site: Site) -> Finding:
    free = shutil.disk_usage(site.folder).free
    told = f"{free >> 20:,} MiB free"
    if free < _LEAST_FREE:
        return Finding("Disk", "mend", f"{told}: make room, or nothing can be stored.")
    return Finding("Disk", "ok", told)


def _sessions(site: Site) -> Finding:
    try:
        pending = Participant(site).pending()
    except FedgaugeError:
        return Finding("Evaluations", "note", "unknown without a ledger that can be read")
    damaged = [each.session.hex()[:8] for each in pending if not each.readable]
    if damaged:
        told = f"the state of {damaged[0]} cannot be read. `fedgauge ledger release` ends it."
        return Finding("Evaluations", "mend", told)
    if not pending:
        return Finding("Evaluations", "ok", "none under way")
    told = f"{len(pending):,} joined and not over: `fedgauge ledger pending` lists them"
    return Finding("Evaluations", "note", told)


def _shared_folder(run: Path) -> Finding:
    shown = in_one_line(str(run))
    if not os.path.isdir(run):  # False also where nobody may look
        return Finding("Exchange", "mend", f"there is no folder {shown}. Is it mounted?")
    try:
        with tempfile.TemporaryFile(dir=run) as file:  # without a name, so none is left behind
            file.write(b"x")
            file.flush()
        storage.sync_folder(run)
    except OSError as error:
        return Finding("Exchange", "mend", f"cannot write to {shown}: {error.strerror}.")
    files = len(list(run.glob("*.fgx")))
    return Finding("Exchange", "ok", f"{shown} can be written; {files:,} files of an exchange")


def _remote_folder(run: str) -> Finding:
    try:
        files = len(open_folder(run).names("*.fgx"))
    except FedgaugeError as error:
        return Finding("Exchange", "mend", str(error))
    told = "can be listed; whether it can be written shows when something is written"
    return Finding("Exchange", "ok", f"{run} {told}; {files:,} files of an exchange")
