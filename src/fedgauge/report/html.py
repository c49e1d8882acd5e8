"""What every page is filled with: its files, words as HTML, numbers as JSON, no network."""

import base64
import hashlib
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any, Final

import msgspec

# Names are anybody's text: none may end the block, or begin another element.
_ESCAPED: Final = {ord(each): f"\\u{ord(each):04x}" for each in "<>&\u2028\u2029"}


def text_of(*names: str) -> str:
    """Files of the package, one after the other."""
    return "".join(files(__package__).joinpath(name).read_text("utf-8") for name in names)


def plain_json(plain: Any) -> str:
    r"""Numbers and names as text that stays within its element.

    >>> plain_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    return msgspec.json.encode(plain).decode().translate(_ESCAPED)


def policy(style: str, script: str) -> str:
    """What a page may do: nothing but its own style and script, and pictures of its figures."""
    return (
        f"default-src 'none'; style-src {_digest(style)}; script-src {_digest(script)}; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


_LONGEST_NUMBER: Final = 40  # characters of a number with its interval


def paragraph(words: str, kind: str = "") -> str:
    """A paragraph; `kind` is what the style sheet calls it."""
    return f"<p{_class(kind)}>{escape(words)}</p>"


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, name: str) -> str:
    """A table that scrolls by itself; the first column says what a row is, `name` its file."""
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in columns)
    body = "".join(
        f'<tr><th scope="row"{_class(_kind(first))}>{escape(first)}</th>'
        + "".join(f"<td{_class(_kind(each))}>{escape(each)}</td>" for each in others)
        + "</tr>"
        for first, *others in rows
    )
    told = escape(caption)
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{told}">'
        f'<table data-csv="{escape(name)}"><caption>{told}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Names and what they are, as a list."""
    told = "".join(f"<dt>{escape(name)}</dt><dd>{escape(words)}</dd>" for name, words in rows)
    return f'<dl class="facts">{told}</dl>'


def folded(title: str, inside: str) -> str:
    """What is read on demand."""
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"


def _kind(cell: str) -> str:
    """Numbers stay in one line, and sentences do not."""
    return "text" if len(cell) > _LONGEST_NUMBER else ""


def _class(kind: str) -> str:
    return f' class="{escape(kind)}"' if kind else ""
