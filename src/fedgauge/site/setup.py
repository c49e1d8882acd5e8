"""Making a site, and adding to whom it trusts."""

import stat
from pathlib import Path
from typing import Final, Literal

import msgspec

from fedgauge.errors import SiteError
from fedgauge.keys import SigningKey
from fedgauge.site.anchor import Site
from fedgauge.site.policy import Party, Policy, SiteFile, read_site_file
from fedgauge.storage import durable

_SITE_FILE: Final = "site.toml"
_KEY: Final = "site.key"
_LEDGER: Final = "ledger.sqlite"
_TABLES: Final = {"peer": "peers", "coordinator": "coordinators"}

_TEMPLATE: Final = """\
# A fedgauge site: whom it trusts and what it allows. A plan outside this is refused before any
# data is read. Keep site.key and site.key.head private, and never put back old copies.

name = "{name}"
dataset = "{dataset}"  # what budgets are about; give new data a new name
key = "{key}"  # relative to this file
ledger = "{ledger}"  # relative to this file; on a local disk

[policy]
models = [{models}]  # privacy models that plans may use
min_cohort = {min_cohort}  # fewest sites in a sum; never below 3
max_epsilon = {max_epsilon!r}  # of one plan
max_delta = {max_delta!r}
max_bins = {max_bins}  # finest axis
rows_per_bin = {rows_per_bin}  # more than this site ever has: exact sums must have room for them
score_sums = {sums}  # true: plans may sum up the scores within bins, which tell more of small bins
budget_epsilon = {budget_epsilon!r}  # of all plans together, unless the ledger sets a limit
budget_delta = {budget_delta!r}
mix_exact = {mix}  # true: exact sums and differential privacy may meet on this dataset

# [[coordinators]] may start an evaluation; [[peers]] are the other sites. Each has a name and
# a key. Compare keys over the phone, or in person: whoever holds one is trusted.
"""


def create_site(
    folder: str | Path, *, name: str, dataset: str, policy: Policy | None = None
) -> Site:
    """Make a site file and a key in a folder, which is made when missing.

    Parameters
    ----------
    folder
        Where ``site.toml`` and ``site.key`` go. Neither may exist.
    name
        The site's name: letters, digits, dots, dashes, underscores.
    dataset
        Name of the data it evaluates on.
    policy
        What it allows; the defaults of :class:`Policy` unless given.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     site = create_site(folder, name="hospital-a", dataset="stroke-2026")
    >>> site.policy.min_cohort
    3
    """
    folder = Path(folder).absolute()
    policy = policy or Policy()
    SiteFile(name, dataset, _KEY, _LEDGER, policy)  # the names must be safe to write
    text = _TEMPLATE.format(
        name=name,
        dataset=dataset,
        key=_KEY,
        ledger=_LEDGER,
        models=", ".join(f'"{model}"' for model in policy.models),
        sums="true" if policy.score_sums else "false",
        mix="true" if policy.mix_exact else "false",
        **{key: value for key, value in msgspec.structs.asdict(policy).items() if key != "models"},
    )
    SiteFile.from_text(text)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for file in (folder / _SITE_FILE, folder / _KEY):
            if file.exists():
                raise SiteError(f"{file} exists. Make a new site in another folder.")
        # The key comes last: a site file without one is of no use and holds no secret.
        durable.write_new(folder / _SITE_FILE, text.encode())
        SigningKey.generate().save(folder / _KEY)
    except OSError as error:
        raise SiteError(f"cannot make a site in {folder}: {error.strerror}.") from None
    return Site.from_toml(folder / _SITE_FILE)


def add_trust(
    path: str | Path, kind: Literal["peer", "coordinator"], name: str, key_text: str
) -> Site:
    """Add a peer or a coordinator to a site file, keeping its comments.

    Parameters
    ----------
    path
        The site file.
    kind
        ``"peer"``: a site to be summed with. ``"coordinator"``: one who may start evaluations.
    name
        Its name.
    key_text
        Its public key, as ``fedgauge site show`` prints it.

    Returns
    -------
    Site
        The site as it is now; nothing is written when it would not be valid.
    """
    if kind not in _TABLES:
        raise SiteError(f"kind must be peer or coordinator, got {kind!r}.")
    path = Path(path).absolute()
    party = Party(name, key_text)
    before = read_site_file(path)
    block = f'\n[[{_TABLES[kind]}]]\nname = "{party.name}"\nkey = "{party.key}"\n'
    text = before + ("" if before.endswith("\n") else "\n") + block
    site = Site.from_text(text, path)
    target = path.resolve()  # through a link, to the file it names
    try:
        durable.replace(target, text.encode(), mode=stat.S_IMODE(target.stat().st_mode))
    except OSError as error:
        raise SiteError(f"cannot write site file {path}: {error.strerror}.") from None
    return site
