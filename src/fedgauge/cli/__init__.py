"""The command line: arguments to calls, nothing else."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, NoReturn

import click
import typer

import fedgauge as fg
from fedgauge.cli.elsewhere import Commands
from fedgauge.cli.terminal import screen, stderr, warn

app = typer.Typer(
    cls=Commands,
    help="Measure a classifier on data nobody may pool.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_INTERRUPTED = 130  # what typer returns when the user stops a command


def _version(wanted: bool) -> None:
    if wanted:
        screen.print(f"fedgauge {fg.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> NoReturn:
    """Run the command line."""
    warnings.showwarning = warn
    try:
        code = typer.main.get_command(app).main(prog_name="fedgauge", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        code = error.exit_code  # the help has been printed
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "fedgauge"
        # Typer suggests commands, and later versions of click add the same once more.
        told = error.message if "Did you mean" in error.message else error.format_message()
        stderr.print(f"fedgauge: {' '.join(told.split())} Try '{command} --help'.", markup=False)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    if code == _INTERRUPTED:
        stderr.print("fedgauge: stopped.", markup=False)
        code = 1
    sys.exit(code or 0)
