"""Commands whose files are loaded when they are called, so that none waits for what others need."""

from importlib import import_module
from typing import Any, Final

import click
import typer
from typer.core import TyperGroup

# The file of each, and what it is called there; in the order in which the help lists them.
_ELSEWHERE: Final = {
    "evaluate": ("evaluating", "evaluate"),
    "plan": ("planning", "plan"),
    "explain": ("planning", "explain"),
    "demo": ("demo", "demo"),
    "show": ("results", "show"),
    "report": ("report", "report"),
    "verify": ("results", "verify"),
    "diff": ("trends", "diff"),
    "trend": ("trends", "trend"),
    "calibrate": ("calibration", "calibrate"),
    "apply": ("calibration", "apply"),
    "doctor": ("sites", "doctor"),
    "compare": ("reporting", "compare"),
    "encode": ("reporting", "encode"),
    "intake": ("reporting", "intake"),
    "find-bins": ("reporting", "find_bins"),
    "site": ("sites", "site_app"),
    "ledger": ("ledgers", "ledger_app"),
    "exchange": ("exchanges", "app"),
    "vertical": ("vertical", "app"),
}


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
    _refuse_lines(command)
    return command


def _refuse_lines(command: click.Command) -> None:
    """Refuse names of files with line breaks: what follows one would be a line of fedgauge's."""
    for each in getattr(command, "commands", {}).values():
        _refuse_lines(each)
    for parameter in command.params:
        if isinstance(parameter.type, click.Path):
            parameter.type = _FileName(parameter.type)
