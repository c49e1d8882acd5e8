"""Pages that follow from the code: the commands, the errors, a report to open.

A page has a line `<!-- generated: NAME -->`, in whose place Sphinx reads what the function of that
name returns; `<!-- file: ../README.md -->` stands for a file that has its place outside of docs/.
None of them needs Sphinx, so tests read them, too.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import typer

import fedgauge as fg
from fedgauge import demo, errors
from fedgauge.cli import app as commands_app

DOCS = Path(__file__).parents[1]
MARK = re.compile(r"^<!-- (generated|file): (\S+) -->$", re.MULTILINE)
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")
# Pages link to these where they are read without the site, which has pages of them.
ELSEWHERE = {
    "../CHANGELOG.md": "changelog.md",
    "../CONTRIBUTING.md": "contributing.md",
    "../README.md": "index.md",
    "../examples/flower-app/README.md": "flower-app.md",
}


def every_command() -> Iterator[click.Context]:
    """Each command and group of commands, in the order of the help."""

    def below(context: click.Context) -> Iterator[click.Context]:
        yield context
        if isinstance(context.command, click.Group):
            for name in context.command.list_commands(context):
                command = context.command.get_command(context, name)
                assert command is not None, name
                yield from below(click.Context(command, parent=context, info_name=name))

    root = typer.main.get_command(commands_app)
    yield from below(click.Context(root, info_name="fedgauge"))


def commands() -> str:
    """Every command: what it does, its examples, its arguments and options."""
    _, *rest = every_command()
    return "\n\n".join(_command(context) for context in rest)


def _command(context: click.Context) -> str:
    level = "#" * (1 + context.command_path.count(" "))
    text = inspect.cleandoc(context.command.help or "")
    says, _, examples = text.partition("\nExamples:\n")
    parts = [f"{level} {context.command_path}", says.strip()]
    if isinstance(context.command, click.Group):
        return "\n\n".join(parts)
    usage = " ".join(context.command.collect_usage_pieces(context))
    parts.append(f"```text\n{context.command_path} {usage}\n```")
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    if lines:
        parts.append("\n".join(["```console", *(_wrapped(line) for line in lines), "```"]))
    rows = [_row(each, context) for each in context.command.params if not each.hidden]
    if rows:
        parts.append("\n".join(["| give | it means |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def _wrapped(line: str) -> str:
    """A command as a page shows it: a long one on several lines, which a shell takes as one."""
    lines = textwrap.wrap(line, 62, break_on_hyphens=False, break_long_words=False)
    return "$ " + " \\\n    ".join(lines)


def _row(param: Any, context: click.Context) -> str:
    names = [] if param.param_type_name == "argument" else [*param.opts, *param.secondary_opts]
    given = ", ".join(f"`{name}`" for name in names)
    if not names or not param.is_flag:
        given += f" `{param.make_metavar(context)}`".replace("|", "\\|")
    notes = ["Required."] if param.required else []
    shown = param.default is not None and param.default is not False and param.show_default
    if shown and not callable(param.default) and param.default not in ([], ()):
        value = getattr(param.default, "value", param.default)
        notes.append(f"Default: `{value}`.")
    told = " ".join([*(param.help or "").split(), *notes]).replace("|", "\\|")
    return f"| {given.strip()} | {told} |"


def error_index() -> str:
    """Every error and warning: what it is, what it is a kind of, how a command ends."""
    rows = ["| name | it means | is a | a command ends with |", "|---|---|---|---|"]
    for name in (name for name in fg.__all__ if name in vars(errors)):
        kind = getattr(fg, name)
        code = f"{kind.exit_code}" if issubclass(kind, fg.FedgaugeError) else "goes on"
        bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
        says = inspect.cleandoc(kind.__doc__).splitlines()[0]
        rows.append(f"| {{py:class}}`~fedgauge.{name}` | {says} | {bases} | {code} |")
    return "\n".join(rows)


GENERATED = {"commands": commands, "errors": error_index}


def file_beside(name: str) -> str:
    """A file outside of docs/, its links as they are from there."""
    path = (DOCS / name).resolve()

    def rebase(link: re.Match[str]) -> str:
        return "](" + os.path.relpath(path.parent / link.group(1), DOCS)

    return LINK.sub(rebase, path.read_text())


def fill(text: str) -> str:
    """A page with what belongs in the place of its marks, and with links within the site."""

    def meant(mark: re.Match[str]) -> str:
        kind, name = mark.groups()
        return GENERATED[name]() if kind == "generated" else file_beside(name)

    def within(link: re.Match[str]) -> str:
        return "](" + ELSEWHERE.get(link.group(1), link.group(1))

    return LINK.sub(within, MARK.sub(meant, text))


def example_report(site: Path) -> None:
    """The demo's report, as a page of the site: pictures of it lead there."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(demo.run(Path(folder)).report, site / "example-report.html")


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls."""

    def read(_: Any, __: str, source: list[str]) -> None:
        source[0] = fill(source[0])

    def finish(app: Any, error: Exception | None) -> None:
        if error is None:
            example_report(Path(app.outdir))

    app.connect("source-read", read)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
