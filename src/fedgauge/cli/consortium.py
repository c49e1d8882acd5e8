"""`consortium`: whom sites trust, in one file that the coordinator signs and each accepts once."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedgauge import storage
from fedgauge.cli.command import command
from fedgauge.cli.options import HERE, SiteOption
from fedgauge.cli.terminal import note, print_whole, screen, someone_is_there
from fedgauge.errors import SiteError
from fedgauge.site import Card, Consortium, Site, card_of, offer
from fedgauge.site.policy import LEAST_COHORT, read_consortium

app = typer.Typer(
    help="Keys and trust in one file: the coordinator signs it, each site accepts it once.",
    no_args_is_help=True,
)
File = Annotated[Path, typer.Argument(help="The consortium's file, such as stroke.fgc.")]
Cards = Annotated[
    list[Path], typer.Argument(help="Cards of sites with data, which `site init` makes.")
]


@app.command()
@command()
def create(file: File, cards: Cards, site_file: SiteOption = HERE) -> None:
    """Coordinator: sign a new file that names the sites with data by their cards.

    The consortium is called like the file. A coordinator that has data adds its own card.

    Example:
      fedgauge consortium create stroke.fgc cards/*.card --site registry/site.toml
    """
    site = Site.from_toml(site_file)
    before = read_consortium(site_file)
    if before is not None and before.coordinator != site.name:
        raise SiteError(
            f"{site.name} is a site of {before.name!r}, by {before.coordinator}. A site is in one "
            "consortium: make another site for the coordinator of a new one."
        )
    made = Consortium.sign(file.stem, site.key, card_of(site), map(Card.read, cards))
    offered = offer(site_file, made, replace=True)
    try:
        storage.write_whole(file, made.to_bytes(), new=True)
    except FileExistsError:
        raise SiteError(
            f"{file} exists. Change it with `fedgauge consortium update`, or name another file."
        ) from None
    offered.accept()
    _say_made(made, offered.changes, file)
    if before is not None:
        note(
            f"{site.name} had made {before.name!r}, version {before.version}. Sites that accepted "
            "it accept this one with --replace."
        )


@app.command()
@command()
def update(
    file: File,
    cards: Annotated[
        list[Path] | None, typer.Argument(help="Cards of new sites, or with new keys.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(help="A site that leaves; may be repeated.")
    ] = None,
    site_file: SiteOption = HERE,
) -> None:
    """Coordinator: sign the next version of a file, with sites added, removed or with new keys.

    A card with another key for a known site must be signed by its old key (`site rekey`). If that
    is lost, ask the site by phone, and add --remove NAME.

    Examples:
      fedgauge consortium update stroke.fgc hospital-d.card --site registry/site.toml
      fedgauge consortium update stroke.fgc --remove hospital-b --site registry/site.toml
      fedgauge consortium update stroke.fgc new/hospital-b.card --remove hospital-b
    """
    site, accepted = Site.from_toml(site_file), read_consortium(site_file)
    latest = Consortium.read(file)
    if accepted is None or accepted.coordinator != site.name:
        raise SiteError(
            f"{site.name} coordinates no consortium. Name the coordinator's site file with --site, "
            "or begin with `fedgauge consortium create`."
        )
    if accepted.digest != latest.digest:
        raise SiteError(
            f"{file} is version {latest.version} of {latest.name!r}, and {site_file} says that "
            f"version {accepted.version} of {accepted.name!r} was made last. Name that file."
        )
    made = latest.updated(site.key, card_of(site), map(Card.read, cards or ()), remove or ())
    offered = offer(site_file, made)
    storage.write_whole(file, made.to_bytes())
    offered.accept()
    _say_made(made, offered.changes, file)


@app.command()
@command()
def accept(
    file: File,
    fingerprint: Annotated[
        str | None,
        typer.Option(help="The twelve words, for scripts. Else they are typed when asked for."),
    ] = None,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Leave the consortium accepted before, or its lost key."),
    ] = False,
    site_file: SiteOption = HERE,
) -> None:
    """Site: trust the coordinator and the sites of a file, once you heard its twelve words.

    The coordinator reads them to all sites in one call. Whoever has another file hears other words.
    The first four letters of each word are enough. It shows first whom this site would trust.

    Examples:
      fedgauge consortium accept stroke.fgc --site hospital-a/site.toml
      fedgauge consortium accept stroke.fgc --fingerprint "army van ..." --site site.toml
    """
    consortium = Consortium.read(file)
    offered = offer(site_file, consortium, replace=replace)
    titled = f"{consortium.name}, version {consortium.version}, by {consortium.coordinator.name}"
    if not offered.is_new:
        screen.print(f"{titled}, was accepted before. Nothing was changed.")
        return
    screen.print(f"{titled}. {site_file} would change:")
    for line in offered.changes or ["nothing but the version"]:
        screen.print(f"  {line}")
    if offered.by_hand:
        screen.print(f"Trusted besides, as added by hand: {', '.join(offered.by_hand)}")
    site = Site.from_toml(site_file)
    if consortium.coordinator.party.public != site.key.public:
        _compare(consortium, file, fingerprint)
    site = offered.accept()
    others = len(site.peers) - 1
    screen.print(f"Accepted: {site.name} trusts {consortium.coordinator.name} and {others} sites.")


@app.command()
@command()
def show(file: File) -> None:
    """Show who is in a file, with keys, and its twelve words.

    Every signature in it is checked, but only the words show who made it: compare them.

    Example:
      fedgauge consortium show stroke.fgc
    """
    consortium = Consortium.read(file)
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_row("Consortium", f"{consortium.name}, version {consortium.version}")
    table.add_row(f"Coordinator {consortium.coordinator.name}", consortium.coordinator.key)
    for card in consortium.sites:
        table.add_row(f"Site {card.name}", card.key)
    print_whole(table)
    screen.print(f"Its words:\n{consortium.words_in_rows}")


def _compare(consortium: Consortium, file: Path, fingerprint: str | None) -> None:
    """Go on only if the words that somebody heard are those of the file."""
    if fingerprint is None:
        if not someone_is_there():
            raise SiteError(
                f"nobody compared the words of {file}. Ask the coordinator for them by phone, and "
                "add --fingerprint 'WORDS'."
            )
        fingerprint = typer.prompt("Type the twelve words that the coordinator reads to you")
    if not consortium.says(fingerprint):
        raise SiteError(
            f"these are not the twelve words of {file}. Ask for them again. If they stay the same, "
            "this file is not the one that the coordinator signed: do not accept it. Nothing was "
            "changed."
        )


def _say_made(made: Consortium, changes: tuple[str, ...], file: Path) -> None:
    screen.print(f"Made {file}: {made.name}, version {made.version}, {len(made.sites)} sites")
    for line in changes:
        screen.print(f"  {line}")
    if len(made.sites) < LEAST_COHORT:
        note(f"an evaluation needs at least {LEAST_COHORT} sites. Add some with `update`.")
    screen.print(
        "Send it to all sites. Each runs:\n"
        f"  fedgauge consortium accept {shlex.quote(file.name)} --site site.toml\n"
        "and types these words, which you read to all of them in one call:\n"
        f"{made.words_in_rows}"
    )
