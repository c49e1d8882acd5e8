"""The `fedgauge` command: finds the file of each command, and how a command ends."""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from traceback import extract_tb
from typing import Annotated, Any, Final, NoReturn

import click
import typer
from click.core import ParameterSource
from click.shell_completion import CompletionItem
from typer.core import TyperGroup

import fedgauge as fg
from fedgauge.cli.terminal import screen, stderr, warn

# By panel of the help, the file of each command and what it is called there.
_PANELS: Final = {
    "Start here": {
        "demo": ("demo", "demo"),
        "evaluate": ("evaluate", "evaluate"),
        "show": ("show", "show_result"),
        "report": ("report", "report"),
        "plan": ("plan", "plan"),
    },
    "Results": {
        "verify": ("show", "verify"),
        "calibrate": ("calibrate", "calibrate"),
        "apply": ("calibrate", "apply"),
    },
    "Over time": {"diff": ("trend", "diff"), "trend": ("trend", "trend")},
    "Between sites": {
        "explain": ("plan", "explain"),
        "site": ("site", "site_app"),
        "consortium": ("consortium", "app"),
        "ledger": ("ledger", "ledger_app"),
        "exchange": ("exchange", "app"),
        "doctor": ("site", "doctor"),
    },
    "Labels elsewhere": {"vertical": ("vertical", "app")},
    "Reports of single rows": {
        "encode": ("local", "encode"),
        "intake": ("local", "intake"),
        "find-bins": ("local", "find_bins"),
    },
}
_ELSEWHERE: Final = {name: at for panel in _PANELS.values() for name, at in panel.items()}


class _FileName(click.ParamType):
    """What names a file, in one line."""

    def __init__(self, of_path: click.Path) -> None:
        self.name, self._path = of_path.name, of_path

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, unless its name has a line break."""
        if "\n" in str(value):
            self.fail(f"{str(value)!r} has a line break in its name. Rename the file.", param, ctx)
        return self._path.convert(value, param, ctx)


class Commands(TyperGroup):
    """The commands that were added to it, and those of other files."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands."""
        return list(dict.fromkeys([*super().list_commands(ctx), *_ELSEWHERE]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """A command by its name, None where there is none."""
        if cmd_name in _ELSEWHERE and cmd_name not in self.commands:
            self.add_command(_load(cmd_name), cmd_name)
        return super().get_command(ctx, cmd_name)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names that begin so: none of the commands is loaded for that."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name) for name in _ELSEWHERE if name.startswith(incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is called; where there is none, names that come close are told."""
        if args[0] not in self.list_commands(ctx):
            for name in _ELSEWHERE:
                self.get_command(ctx, name)
        return super().resolve_command(ctx, args)


def _load(name: str) -> click.Command:
    file, attribute = _ELSEWHERE[name]
    found = getattr(import_module(f"fedgauge.cli.{file}"), attribute)
    if isinstance(found, typer.Typer):
        command: click.Command = typer.main.get_group(found)
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(name)(found)
        command = typer.main.get_command(alone)
    command.name = name
    # Typer shows panels in the order in which their first commands come.
    command.rich_help_panel = next(  # type: ignore[attr-defined]
        title for title, names in _PANELS.items() if name in names
    )
    _refuse_lines(command)
    return command


def _refuse_lines(command: click.Command) -> None:
    """Refuse names of files with line breaks: what follows one would be a line of fedgauge's."""
    for each in getattr(command, "commands", {}).values():
        _refuse_lines(each)
    for parameter in command.params:
        if isinstance(parameter.type, click.Path):
            parameter.type = _FileName(parameter.type)


app = typer.Typer(
    cls=Commands,
    help="Measure a classifier on data nobody may pool.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_DEBUG: Final = "FEDGAUGE_DEBUG"  # shows where in the code an error came from
_PRINTERS: Final = {"click", "rich", "typer"}
end_at_once = os._exit
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
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # closed ones are None
            with suppress(OSError):  # of some pipes; `Screen` does not need it, help texts do
                stream.reconfigure(errors="backslashreplace")  # for terminals without all letters
    try:
        code = typer.main.get_command(app).main(prog_name="fedgauge", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        code = error.exit_code  # the help has been printed
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "fedgauge"
        # Typer suggests commands, and later versions of click add the same once more.
        told = error.message if "Did you mean" in error.message else error.format_message()
        stderr.print(f"fedgauge: {' '.join(told.split())}{_such_as(error)} Try '{command} --help'.")
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = _INTERRUPTED
    except Exception as error:
        if os.environ.get(_DEBUG):
            raise
        stderr.print(f"fedgauge: {_told(error)}")
        code = 1
    if code == _INTERRUPTED:
        stderr.print("fedgauge: stopped.")
        code = 1
    files = sys.modules.get("fedgauge.data.files")  # where rows were read
    if files is not None and files.is_reading_ahead():
        with suppress(OSError, ValueError, AttributeError):  # streams that are full or closed
            sys.stdout.flush()
            sys.stderr.flush()
        end_at_once(code or 0)  # before a thread calls Python while that ends
    sys.exit(code or 0)


def _such_as(error: click.UsageError) -> str:
    """The first example of a command that was called with nothing at all."""
    if not isinstance(error, click.MissingParameter) or error.ctx is None:
        return ""
    given = any(
        error.ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
        for name in error.ctx.params
    )
    examples = [
        line.strip()
        for line in (error.ctx.command.help or "").splitlines()
        if line.strip().startswith(f"{error.ctx.command_path} ")
    ]
    return "" if given or not examples else f" Such as: {examples[0]}."


def _told(error: Exception) -> str:
    """An error that no command expects, without its own words, which can quote a row."""
    place = extract_tb(error.__traceback__)[-1]
    if isinstance(error, OSError) and _PRINTERS & {*Path(place.filename).parts}:
        with open(os.devnull, "w") as nowhere:  # or Python tries again when it ends
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        return f"cannot print the output of this command: {error.strerror}."
    return (
        f"this is a fault in fedgauge {fg.__version__}, not yours: {type(error).__name__} in "
        f"{Path(place.filename).name}, line {place.lineno}. Please report this line. Put "
        f"{_DEBUG}=1 before the command to see more."
    )
