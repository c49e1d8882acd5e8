"""Making a site, and changing its file or its key."""

import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from fedgauge import storage
from fedgauge.errors import LedgerError, SiteError, located
from fedgauge.keys import SigningKey, key_to_text
from fedgauge.site.consortium import Card, Consortium
from fedgauge.site.ledger import Ledger
from fedgauge.site.policy import (
    EXACT,
    FORMAT,
    Accepted,
    Party,
    Policy,
    SiteFile,
    check_name,
    read_site_file,
    require_own_folder,
)
from fedgauge.site.rows import NamedRows
from fedgauge.site.site import Site

_SITE_FILE: Final = "site.toml"
_KEY: Final = "site.key"
_HEAD: Final = "site.key.head"
_LEDGER: Final = "ledger.sqlite"
_LEDGER_LINE: Final = re.compile(r"^ledger\s*=.*$", re.MULTILINE)
_DATASET: Final = re.compile(r"^dataset\s*=\s*(\"[^\"\n]*\"|'[^'\n]*')", re.MULTILINE)
Role = Literal["peer", "coordinator", "approver"]
_CONSORTIUM: Final = "\n[consortium]  # written by `fedgauge consortium accept`\n"
_TABLES: Final = {"peer": "peers", "coordinator": "coordinators", "approver": "approvers"}

_TEMPLATE: Final = """\
# A fedgauge site: whom it trusts and what it allows. A plan outside this is refused before any
# data is read. Keep site.key and site.key.head private, and never restore old copies.

format = {format}
name = {name}
dataset = {dataset}  # what budgets are about; give new data a new name
key = {key}  # relative to this file
ledger = {ledger}  # relative to this file; on a local disk
{witness}
[policy]
models = {models}  # privacy models that plans may use
labels = {labels}  # labels that a plan may call positive, or tell apart as classes
min_cohort = {min_cohort}  # fewest sites in a sum; never below 3
min_colluding = {min_colluding}  # fewest sites that a plan must allow to pool what they know
max_epsilon = {max_epsilon}  # of one plan
max_delta = {max_delta}
max_bins = {max_bins}  # finest axis
max_counts = {max_counts}  # that a plan may ask for: bins, times groups, classes and models
rows_per_bin = {rows_per_bin}  # more than this site ever has: exact sums must have room for them
score_sums = {score_sums}  # true: plans may sum up the scores within bins; shows more of small bins
max_groups = {max_groups}  # that a plan may tell apart; 0: none
budget_epsilon = {budget_epsilon}  # of all plans on a dataset, unless the ledger sets a limit
budget_delta = {budget_delta}
mix_exact = {mix_exact}  # true: exact sums and differential privacy may meet on this dataset
findings = {findings}  # "stop": ask before joining with rows that look wrong; "join": only say so
session_days = {session_days}  # after which an open evaluation is given up

# Exact sums, where models hold "{exact}". They have no noise: the coordinator
# sees how many patients of all sites together lie in each bin, even if it is only one, and several
# sums can be subtracted from each other. The limits below restrict this; only noise prevents it.
exact_sums = {exact_sums}  # most of them on one dataset
min_bin_width = {min_bin_width}  # least width of a bin, in units of the score
axes = {axes}  # digests of axes that may be finer
min_cell = {min_cell}  # fewest examples that a result shows in a bin, besides none
exact_dropouts = {exact_dropouts}  # true: sums may leave out sites that dropped out
exact_scores = {exact_scores}  # most scores of a row, of all its classes, labels and models
exact_pairs = {exact_pairs}  # true: also two models' scores together, where many patients are alone
exact_groups = {exact_groups}  # never one patient; numbers as "ward=7"
exact_of_models = {exact_of_models}  # true: also of models that a coordinator sends (Flower)
min_new_rows = {min_new_rows}  # by which a dataset must differ from one that had exact sums

[agent]
answer = {answer}  # of `fedgauge site run`; "ask": an operator joins each evaluation, the rest runs
daily = {daily}  # most evaluations of one coordinator that it joins within a day

{data}
# [[coordinators]] may start an evaluation; [[peers]] are the other sites. Each has a name and
# a key. This site trusts whoever holds one: `fedgauge consortium accept` adds them once words were
# compared by phone, `fedgauge site trust` adds one key. With [[approvers]], it joins only what one
# of them signed (fedgauge exchange review).
"""

_DATA: Final = """\
# [data]  # this site's rows, for commands and Flower nodes that name no file
# path = "scores/{year}-W{week}.csv"  # relative to this file; here that of the last whole week
# label = "y"
# score = "p"  # also subject, groups = {sex = "gender"}, models = {new = ["p2"]}, classes
# separator = ";"  # also decimal = ",", encoding = "cp1252"
# positive = "ill"  # if the file spells the plan's positive label otherwise; also negative
# positive_rate = 0.3  # the share of positives to expect
# periods = "disjoint"  # I state that nobody has rows in two periods: each gets its own budget
"""


def create_site(
    folder: str | Path,
    *,
    name: str,
    dataset: str,
    policy: Policy | None = None,
    data: NamedRows | None = None,
) -> Site:
    """Make a site file, a ledger, a key and its card in a folder, which is made when missing.

    Parameters
    ----------
    folder
        Where ``site.toml``, ``site.key``, the ledger with its head and ``NAME.card`` go. None of
        them may exist.
    name
        The site's name: letters, digits, dots, dashes, underscores.
    dataset
        Name of the data it evaluates on.
    policy
        What it allows.
    data
        Its rows, for commands that name no file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     create_site(folder, name="hospital-a", dataset="stroke-2026").policy.min_cohort
    3
    """
    folder = Path(folder).absolute()
    policy = policy or Policy()
    text = _written(SiteFile(FORMAT, name, dataset, _KEY, _LEDGER, policy=policy, data=data))
    try:
        _make_folder(folder)
        for file in (_SITE_FILE, _KEY, _LEDGER, _HEAD, _card_path(folder, name).name):
            if (folder / file).exists():
                raise SiteError(f"{folder / file} exists. Make a new site in another folder.")
        # The key comes last: a site file without one is of no use and holds no secret. The ledger
        # comes first: a site that can be used has had one, and without one has lost it.
        Ledger.create(folder / _LEDGER, head=folder / _HEAD)
        storage.write_new(folder / _SITE_FILE, text.encode())
        key = SigningKey.generate()
        storage.write_new(_card_path(folder, name), Card.sign(name, key).to_bytes())
        key.save(folder / _KEY)
    except OSError as error:
        raise SiteError(f"cannot make a site in {folder}: {error.strerror}.") from None
    return Site.from_toml(folder / _SITE_FILE)


def card_of(site: Site) -> Card:
    """A site's own card, made anew where the file is not there or not of its key."""
    with suppress(SiteError):
        card = Card.read(_card_path(site.folder, site.name))
        if card.party == Party(site.name, key_to_text(site.key.public)):
            return card
    return Card.sign(site.name, site.key)


def _card_path(folder: Path, name: str) -> Path:
    return folder / f"{name}.card"


def _make_folder(folder: Path) -> None:
    """Make a folder for a site, which others do not look into, whatever the umask says."""
    if folder.exists() and not any(folder.iterdir()):
        with suppress(PermissionError):  # another's, which is refused next
            folder.chmod(0o700)  # it was made for the site, with the modes of any folder
    require_own_folder(folder)
    for above in reversed(folder.parents):
        above.mkdir(mode=0o755, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


def add_witness(path: str | Path, witness: str | Path) -> Site:
    """Keep a second copy of the ledger's head from now on; returns the site as it is then.

    `witness` is a file on another disk, a share or a stick, outside the site's folder, and made
    when missing. The site file names none yet, and keeps its comments.
    """
    path, witness = Path(path).absolute(), Path(witness).absolute()
    before = read_site_file(path)
    site = Site.from_text(before, path)
    if site.witness_path is not None:
        raise SiteError(
            f"site file {path} names the witness {site.witness_path}. To move it, move that file "
            "and change the line."
        )
    if not witness.parent.is_dir():
        raise LedgerError(
            f"there is no folder {witness.parent} for the witness. Mount its disk or share, or "
            "make the folder."
        )
    line = _witness_line(str(witness))
    text = _LEDGER_LINE.sub(lambda found: f"{found[0]}\n{line.rstrip()}", before, count=1)
    if Site.from_text(text, path).witness_path != witness:
        raise SiteError(f"site file {path} has no line that begins with ledger. Edit it by hand.")
    # The witness comes first: one that is named must be there. Lines that others add in between
    # make it lag, which is mended.
    site.ledger.appoint(witness)
    return _rewritten(path, text)


def name_dataset(path: str | Path, name: str) -> Site:
    """Give a site's data another name, keeping the file's comments; returns the site as it is then.

    Budgets are kept by name: a new one starts with none of it spent, one that the ledger knows goes
    on where it stood. So a new name is for new data, not for old ones whose budget is used up.
    """
    path = Path(path).absolute()
    before = read_site_file(path)
    Site.from_text(before, path)  # refused where it is none
    check_name("dataset", name)
    text, changed = _DATASET.subn(f'dataset = "{name}"', before, count=1)
    if not changed:
        raise SiteError(f"site file {path} has no line that begins with dataset. Edit it by hand.")
    return _rewritten(path, text)


def add_trust(path: str | Path, kind: Role, name: str, key_text: str) -> Site:
    """Add a peer, a coordinator or an approver to a site file, keeping its comments.

    `kind` is ``"peer"``, a site to be summed with, ``"coordinator"``, who may start evaluations, or
    ``"approver"``, whose approval each evaluation needs. `key_text` is the public key as ``fedgauge
    site show`` prints it. Nothing is written when the site would not be valid.
    """
    _check_kind(kind)
    path = Path(path).absolute()
    return _rewritten(path, _with_party(path, kind, Party(name, key_text)))


def replace_trust(path: str | Path, kind: Role, name: str, key_text: str) -> tuple[Site, str]:
    """Replace a key in a site file, keeping its comments; returns the site and the old key.

    Evaluations that were joined under the old key cannot go on under the new one.
    """
    _check_kind(kind)
    path, table, new = Path(path).absolute(), _TABLES[kind], Party(name, key_text)
    before = read_site_file(path)
    Site.from_text(before, path)  # refused where it is none, or a name comes twice
    file = SiteFile.from_text(before)
    old = _party_named(file, kind, name)
    if old == new:
        raise SiteError(f"{name} has that key already. Nothing was changed.")
    text = _with_key(before, table, old, new.key)
    kept = tuple(new if party == old else party for party in getattr(file, table))
    _check_says(text, msgspec.structs.replace(file, **{table: kept}))
    return _rewritten(path, text), old.key


def _check_kind(kind: str) -> None:
    if kind not in _TABLES:
        raise SiteError(f"kind must be peer or coordinator or approver, got {kind!r}.")


def _party_named(file: SiteFile, kind: Role, name: str) -> Party:
    named: dict[str, Party] = {
        role: party
        for role, table in _TABLES.items()
        for party in getattr(file, table)
        if party.name == name
    }
    if kind in named:
        return named[kind]
    remedy = "Add it without --replace, or check the name."
    if named:
        remedy = f"There is a {' and a '.join(named)} of that name: say which (--{min(named)})."
    raise SiteError(f"there is no {kind} named {name} whose key could be replaced. {remedy}")


def _with_key(text: str, table: str, party: Party, key: str) -> str:
    """A site file with another key for one party; no two of a table have the same."""
    header = re.compile(rf"\s*\[\[\s*{table}\s*\]\]")
    line = re.compile(rf"(?m)^(\s*key\s*=\s*[\"']){re.escape(party.key)}(?=[\"'])")
    blocks = re.split(r"(?m)^(?=[ \t]*\[)", text)
    return "".join(
        line.sub(rf"\g<1>{key}", block) if header.match(block) else block for block in blocks
    )


def add_approver(path: str | Path, name: str, key_path: str | Path) -> Site:
    """Make a key for an approver in a new file, `key_path`, and add it to a site file.

    The file is the approver's: whoever holds it approves. It is never overwritten.
    """
    path, key = Path(path).absolute(), SigningKey.generate()
    text = _with_party(path, "approver", Party(name, key_to_text(key.public)))
    Site.from_text(text, path)  # no key is made for a site file that would not be valid
    key.save(key_path)
    return _rewritten(path, text)


def _with_party(path: Path, kind: str, party: Party) -> str:
    before = read_site_file(path)
    return before + ("" if before.endswith("\n") else "\n") + _block(_TABLES[kind], party)


@dataclass(frozen=True)
class Offer:
    """What a site would change if it accepted a consortium's file.

    Attributes
    ----------
    path
        The site file.
    changes
        Whom it would trust, trust no more, or trust with another key, a line each.
    by_hand
        Whom it trusts besides, since somebody typed their keys.
    is_new
        Whether the site file would change at all.
    """

    path: Path
    changes: tuple[str, ...]
    by_hand: tuple[str, ...]
    is_new: bool
    before: str = field(repr=False)
    after: str = field(repr=False)

    def accept(self) -> Site:
        """Write it into the site file, all at once; SiteError if that was changed meanwhile."""
        if read_site_file(self.path) != self.before:
            raise SiteError(f"{self.path} was changed meanwhile. Run the command again.")
        return _rewritten(self.path, self.after)


def offer(path: str | Path, consortium: Consortium, *, replace: bool = False) -> Offer:
    """What accepting a consortium's file would change, once its words were compared.

    SiteError if it is of another consortium or signed by another key than the one accepted, unless
    `replace`; or if it is older, or does not follow from that one, or this site is not in it.
    """
    path = Path(path).absolute()
    before = read_site_file(path)
    site, file = Site.from_text(before, path), SiteFile.from_text(before)
    mine = key_to_text(site.key.public)
    _check_is_in(site, consortium)
    if file.consortium is not None and not replace:
        _check_follows(file.consortium, consortium, mine)
    wanted = {
        "coordinators": (consortium.coordinator,),
        "peers": tuple(card for card in consortium.sites if card.key != mine),
    }
    accepted = Accepted(
        name=consortium.name,
        version=consortium.version,
        digest=consortium.digest,
        coordinator=consortium.coordinator.name,
        key=consortium.coordinator.key,
        sites=tuple(card.name for card in wanted["peers"]),
    )
    old = {table: _replaced(file, table, cards) for table, cards in wanted.items()}
    kept = {
        table: tuple(party for party in getattr(file, table) if party not in old[table])
        for table in wanted
    }
    new = {table: tuple(card.party for card in cards) for table, cards in wanted.items()}
    after = msgspec.structs.replace(
        file, consortium=accepted, **{table: kept[table] + new[table] for table in wanted}
    )
    text = _without(before, old, consortium=True) + _CONSORTIUM
    fields = msgspec.structs.asdict(accepted).items()
    text += "".join(f"{name} = {_toml(value)}\n" for name, value in fields)
    text += "".join(_block(table, party) for table in wanted for party in new[table])
    _check_says(text, after)
    Site.from_text(text, path)
    return Offer(
        path,
        changes=tuple(
            change
            for table, role in (("coordinators", "coordinator"), ("peers", "site"))
            for change in _changes(role, old[table], wanted[table])
        ),
        by_hand=tuple(party.name for table in wanted for party in kept[table]),
        is_new=after != file,
        before=before,
        after=text,
    )


def _check_is_in(site: Site, consortium: Consortium) -> None:
    """Refuse a file in which this site is not, or under another key or name."""
    mine = key_to_text(site.key.public)
    if consortium.coordinator.key == mine:
        return
    card = _card_path(site.folder, site.name)
    named = {each.key: each.name for each in consortium.sites}
    if named.get(mine) == site.name:
        return
    if mine in named:
        raise SiteError(
            f"the consortium calls this site {named[mine]}, and {site.path} says {site.name}. Send "
            f"the coordinator {card}."
        )
    if site.name in named.values():
        raise SiteError(
            f"the consortium has another key for {site.name} than this site's own: from an old "
            f"card, or from one that somebody made up. Send the coordinator {card}, and tell the "
            "other sites not to accept this version."
        )
    raise SiteError(
        f"{site.name} is not in the consortium. If it should be, send the coordinator {card}."
    )


def _check_follows(accepted: Accepted, consortium: Consortium, mine: str) -> None:
    """Refuse a file that is no later version of the one that was accepted."""
    had = f"version {accepted.version} of {accepted.name!r} by {accepted.coordinator}"
    coordinator = consortium.coordinator
    if consortium.name != accepted.name:
        raise SiteError(
            f"this site accepted {had}, and this file is of {consortium.name!r}. Make another site "
            "for another consortium, or add --replace to leave the first."
        )
    if accepted.key not in (coordinator.key, coordinator.old_key) and coordinator.key != mine:
        raise SiteError(
            f"this site accepted {had}, and this file is signed by another key, which that "
            f"coordinator's key did not sign. Ask {accepted.coordinator} by phone whether it lost "
            "its key. If so, add --replace."
        )
    if consortium.version < accepted.version:
        raise SiteError(
            f"this site accepted {had}, and this file is the older version {consortium.version}. "
            "Ask the coordinator for the latest."
        )
    if (*consortium.earlier, consortium.digest)[accepted.version - 1] != accepted.digest:
        raise SiteError(
            f"this site accepted {had}, and this file is of another version {accepted.version} or "
            "follows from one, so the coordinator signed two. Compare words with the other sites. "
            "If the first was a mistake, add --replace."
        )


def _replaced(file: SiteFile, table: str, cards: tuple[Card, ...]) -> tuple[Party, ...]:
    """Whom the site trusts because of an earlier version, or by hand and is in this one."""
    names, keys = {card.name for card in cards}, {card.key for card in cards}
    if file.consortium is not None:
        names |= {file.consortium.coordinator} if table != "peers" else {*file.consortium.sites}
    return tuple(
        party for party in getattr(file, table) if party.name in names or party.key in keys
    )


def _changes(role: str, old: tuple[Party, ...], cards: tuple[Card, ...]) -> Iterator[str]:
    had = {party.name: party.key for party in old}
    for card in cards:
        before = had.pop(card.name, None)
        if before is None:
            yield f"+ {role} {card.name}: {card.key}"
        elif before != card.key:
            signed = "signed by its old key"
            if card.old_key != before:
                signed = f"NOT signed by its old key: ask {card.name} by phone"
            yield f"! {role} {card.name} has another key: {card.key}, {signed}"
    yield from (f"- {role} {name}" for name in had)


def _without(text: str, parties: dict[str, tuple[Party, ...]], *, consortium: bool = False) -> str:
    """A site file without these parties, or without its consortium; comments stay."""
    gone = {table: list(map(msgspec.structs.asdict, those)) for table, those in parties.items()}
    kept = []
    for block in re.split(r"(?m)^(?=[ \t]*\[)", text):
        content: dict[str, Any] = {}
        with suppress(msgspec.MsgspecError):  # a piece of a longer list
            content = msgspec.toml.decode(block) if block.lstrip().startswith("[") else {}
        goes = consortium and "consortium" in content
        goes |= any(party in content.get(table, ()) for table in gone for party in gone[table])
        comments = [line for line in block.splitlines(True) if line.startswith("#")]
        kept.append("".join(comments) if goes else block)
    return "".join(kept).rstrip("\n") + "\n"


def rekey(path: str | Path) -> tuple[Site, Card]:
    """Give a site a new key, and a card that the old key signs if there is one; all else stays.

    Partners trust the new key once they have the card. What was begun under the old key ends.
    """
    path = Path(path).absolute()
    before = read_site_file(path)
    with located(f"site file {path}"):
        file = SiteFile.from_text(before)
    place = (path.parent / file.key).resolve()
    old = SigningKey.load(place) if place.exists() else None
    if old is not None:
        Site.from_text(before, path)  # refused where it is none
    # Kept under another name until all else is written: after a crash this goes on with it.
    coming = place.with_name(f"{place.name}.new")
    try:
        key = SigningKey.load(coming)
    except SiteError:  # none yet, or half of one
        key = SigningKey.generate()
        coming.unlink(missing_ok=True)
        key.save(coming)
    card = Card.sign(file.name, key, old=old)
    text = _with_own_key(before, file, card)
    try:
        if text != before:
            _write(path, text)
        storage.replace(_card_path(path.parent, file.name), card.to_bytes())
        coming.replace(place)
        storage.sync_folder(place.parent)
    except OSError as error:
        raise SiteError(f"cannot replace {place}: {error.strerror}.") from None
    return Site.from_toml(path), card


def _with_own_key(text: str, file: SiteFile, card: Card) -> str:
    """A site file that does not name the site's old key any more."""
    itself = tuple(peer for peer in file.peers if peer.name == file.name)
    if itself:  # which it need not
        text = _without(text, {"peers": itself})
    for each in file.coordinators:
        if each.key == card.old_key:
            text = _with_key(text, "coordinators", each, card.key)
    after = msgspec.structs.replace(
        file,
        peers=tuple(peer for peer in file.peers if peer not in itself),
        coordinators=tuple(
            Party(each.name, card.key) if each.key == card.old_key else each
            for each in file.coordinators
        ),
    )
    _check_says(text, after)
    return text


def _check_says(text: str, wanted: SiteFile) -> None:
    """Refuse a text that was edited by rules that do not fit how it was written."""
    with suppress(SiteError):
        if SiteFile.from_text(text) == wanted:
            return
    raise SiteError("the partners in the site file are written unusually. Edit it by hand.")


def _written(file: SiteFile) -> str:
    fields = {
        field: _toml(getattr(file, field))
        for field in ("format", "name", "dataset", "key", "ledger")
    }
    fields["witness"] = "" if file.witness is None else _witness_line(file.witness)
    fields |= {name: _toml(value) for name, value in msgspec.structs.asdict(file.policy).items()}
    fields["data"] = _DATA
    if file.data is not None:
        fields["data"] = msgspec.toml.encode({"data": file.data}).decode()
    fields |= {name: _toml(value) for name, value in msgspec.structs.asdict(file.agent).items()}
    text = _TEMPLATE.format(exact=EXACT, **fields)
    for table in _TABLES.values():
        text += "".join(_block(table, party) for party in getattr(file, table))
    if SiteFile.from_text(text) != file:
        raise SiteError("the site file holds names that cannot be written. Choose plainer ones.")
    return text


def _witness_line(witness: str) -> str:
    return f"witness = {_toml(witness)}  # a second head of the ledger, outside this folder\n"


def _toml(value: Any) -> str:
    """A value as TOML writes it, lists on one line."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return msgspec.toml.encode({"v": value}).decode().removeprefix("v = ").rstrip("\n")


def _block(table: str, party: Party) -> str:
    return f'\n[[{table}]]\nname = "{party.name}"\nkey = "{party.key}"\n'


def _rewritten(path: Path, text: str) -> Site:
    """The site after its file was replaced; nothing is written when it would not be valid."""
    site = Site.from_text(text, path)
    _write(path, text)
    return site


def _write(path: Path, text: str) -> None:
    target = path.resolve()  # through a link, to the file it names
    try:
        storage.replace(target, text.encode(), mode=stat.S_IMODE(target.stat().st_mode))
    except OSError as error:
        raise SiteError(f"cannot write site file {path}: {error.strerror}.") from None
