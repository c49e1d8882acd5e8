"""What all commands have in common: options in groups, --quiet, and errors in one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, cleandoc, signature
from typing import Annotated, Any, get_type_hints

import typer

from fedgauge.cli.terminal import readable_errors, screen

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and warnings.")]


def command(
    *, usual: str = "", by_plan: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command.

    A parameter whose type is a dataclass stands for a group of options: each field is an option,
    and the function gets the dataclass with what was typed. The options in `usual` are listed
    first; others of a group stand in its panel of the help. Every command has ``--quiet``.
    `by_plan` says that a plan stands, so that no option of the command changes what it says.
    The help shows each example of the docstring as a paragraph of its own.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(function, include_extras=True)
        groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}

        @wraps(function)
        def run(*, quiet: bool, **given: Any) -> None:
            filled = {
                name: group(**{field.name: given.pop(field.name) for field in fields(group)})
                for name, group in groups.items()
            }
            screen.quiet = quiet
            try:
                with readable_errors(by_plan=by_plan):
                    function(**given, **filled)
            finally:
                screen.quiet = False

        run.__doc__ = cleandoc(function.__doc__ or "").replace("\n  fedgauge ", "\n\n  fedgauge ")
        run.__signature__ = Signature(_options(function, usual.split()))  # type: ignore[attr-defined]
        return run

    return decorate


def _options(function: Callable[..., None], usual: list[str]) -> list[Parameter]:
    found = []
    hints = get_type_hints(function, include_extras=True)
    for parameter in signature(function).parameters.values():
        hint = hints[parameter.name]
        if is_dataclass(hint):
            found += list(_of_group(hint, usual))
        else:
            found.append(parameter.replace(annotation=hint, kind=Parameter.KEYWORD_ONLY))
    found.append(_parameter("quiet", Quiet, default=False))
    order = {name: place for place, name in enumerate(usual)}
    return sorted(found, key=lambda each: order.get(each.name, len(usual)))


def _of_group(group: Any, usual: list[str]) -> Iterator[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    for field in fields(group):
        hint = hints[field.name]
        if usual and field.name not in usual:
            kind, option = hint.__origin__, copy(hint.__metadata__[0])
            option.rich_help_panel = option.rich_help_panel or group.panel
            hint = Annotated[kind, option]
        default = Parameter.empty if field.default is MISSING else field.default
        yield _parameter(field.name, hint, default=default)


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)
