"""Pages that follow from the code: the commands, the errors, the metrics, a report to open.

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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
import typer

import fedgauge as fg
from fedgauge import demo, errors
from fedgauge.cli import app as commands_app
from fedgauge.metrics import bands
from fedgauge.metrics.estimate import Metric, metrics_of
from fedgauge.results.metrics import Metrics

DOCS = Path(__file__).parents[1]
MARK = re.compile(r"^<!-- (generated|file): (\S+) -->$", re.MULTILINE)
WIDTH = 74
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
    parts = [f"{level} {context.command_path}", _marked(says.strip())]
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
    """A command on lines of 74 columns, as many as fit, that break before options alone."""
    first, *options = re.split(r" (?=--?[a-z])", line)
    lines = [first]
    for option in options:
        if len(lines[-1]) + 1 + len(option) > WIDTH:
            lines.append(option)
        else:
            lines[-1] += f" {option}"
    return "$ " + " \\\n    ".join(lines)


OPTION = re.compile(r"(`[^`]*`)|(?<![\w-])(--[a-z][a-z-]*)")


def _marked(told: str) -> str:
    """Options as code: bare, their hyphens would become a dash."""
    return OPTION.sub(lambda found: found.group(1) or f"`{found.group(2)}`", told)


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
    told = _marked(" ".join([*(param.help or "").split(), *notes])).replace("|", "\\|")
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


LABEL = re.compile(r"(Formula|Source|Bounds|Interval|Undefined|Beware|Simultaneous|Pointwise): ")
ROLE = re.compile(r":\w+:(?=`)")  # of reStructuredText


def metrics() -> str:
    """Every metric, curve and band: what its row or its method says."""
    curves = [each for each in vars(bands).values() if isinstance(each, bands.CurveKind)]
    kinds = {f"{each.name}_{part}" for each in curves for part in ("curve", "band")}
    over_all = (*_rows(Metrics), *_explained(Metrics, kinds))
    parts = ["## Over all thresholds", *(_entry("result", *each) for each in over_all)]
    parts += ["## At a threshold", "`at` is `result.at_threshold(t)`.", _threshold_table()]
    parts += [_entry("at", *each) for each in _explained(fg.AtThreshold)]
    parts += ["## Curves and bands"]
    parts += [_curve(each) for each in curves]
    parts += ["## Several classes", _class_table()]
    sources = (Path(__file__).parent / "sources.txt").read_text().splitlines()
    parts += ["## Sources", "\n".join(f"- {source}" for source in sources)]
    return "\n\n".join(parts) + "\n"


def _rows(kind: type) -> Iterator[tuple[str, str, str]]:
    """Title, call and docstring of each metric of a class."""
    for row in metrics_of(kind):
        yield f"{row.title[0].upper()}{row.title[1:]}: ", row.name, row.__doc__ or ""


def _explained(kind: type, but: Iterable[str] = ()) -> Iterator[tuple[str, str, str]]:
    """The same of its methods whose docstrings have a formula."""
    for base in reversed(kind.__mro__):
        for name, each in vars(base).items():
            told = inspect.getdoc(each) or ""
            if "\nFormula: " in told and name not in but and not isinstance(each, Metric):
                yield "", f"{name}{_given(each)}", told


def _given(method: Any) -> str:
    if not inspect.isfunction(method):
        return ""
    _, *rest = inspect.signature(method).parameters.values()
    names = (
        each.name if each.default is each.empty else f"{each.name}={each.default!r}"
        for each in rest
    )
    return f"({', '.join(names)})"


def _entry(holder: str, title: str, call: str, told: str) -> str:
    return f"### {title}`{holder}.{call}`\n\n{_said(told)}"


def _said(told: str) -> str:
    """A docstring up to its parameters: what has a label as a list."""
    said = ROLE.sub("", re.split(r"\n\w+\n---", inspect.cleandoc(told))[0])
    paragraphs = [" ".join(each.split()) for each in said.strip().split("\n\n")]
    plain = [each for each in paragraphs if not LABEL.match(each)]
    listed = [f"- {each}" for each in paragraphs if LABEL.match(each)]
    return "\n\n".join([*plain, "\n".join(listed)]).strip()


def _threshold_table() -> str:
    lines = ["| call | formula | interval | undefined if | source |", "|---|---|---|---|---|"]
    for row in metrics_of(fg.AtThreshold):
        way = (inspect.getdoc(row.formula.interval) or "").splitlines()[0]
        undefined = re.sub(r"\bit$", "the threshold", row.undefined)
        lines.append(f"| `at.{row.name}` | {row.meaning} | {way} | {undefined} | {row.source} |")
    return "\n".join(lines)


def _class_table() -> str:
    lines = ["| call | formula |", "|---|---|"]
    call = "result.confusion_matrix()"
    lines += [f"| `{call}.{row.name}` | {row.meaning} |" for row in metrics_of(fg.ClassConfusion)]
    return "\n".join(lines)


def _curve(kind: Any) -> str:
    calls = [f"{kind.name}_{part}" for part in ("curve", "band")]
    curve, band = (_said(getattr(Metrics, call).__doc__) for call in calls)
    return f"### {kind.title}: `result.{calls[0]}()`, `result.{calls[1]}()`\n\n{curve}\n\n{band}"


GENERATED = {"commands": commands, "errors": error_index, "metrics": metrics}


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


TOGGLE = '<summary><span class="toctree-toggle"'


def name_toggles(site: Path) -> None:
    """Name what the theme leaves without a name: the toggle of a list of pages."""
    for page in site.rglob("*.html"):
        text = page.read_text()
        if TOGGLE in text:
            named = TOGGLE.replace("<summary>", '<summary aria-label="Pages in this section">')
            page.write_text(text.replace(TOGGLE, named))


def setup(app: Any) -> dict[str, bool]:
    """What Sphinx calls."""

    def read(_: Any, __: str, source: list[str]) -> None:
        source[0] = fill(source[0])

    def finish(app: Any, error: Exception | None) -> None:
        if error is None:
            name_toggles(Path(app.outdir))
            example_report(Path(app.outdir))

    app.connect("source-read", read)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
