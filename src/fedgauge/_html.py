"""What notebooks show: small tables of text, in whatever colours the page has."""

from collections.abc import Iterable
from html import escape
from typing import Final

from fedgauge.escaping import printable

# Notebooks align cells to the right, and text is easier to read from the left. No colour is set,
# so that a dark page stays readable.
_LEFT: Final = 'style="text-align: left"'


def text(words: str) -> str:
    """Words as HTML, whatever is in them."""
    return printable(f"<span>{escape(words)}</span>")


def table(rows: Iterable[tuple[str, str]], *, caption: str) -> str:
    """Titles and words as an HTML table."""
    body = "".join(
        f"<tr><th {_LEFT}>{escape(title)}</th><td {_LEFT}>{escape(words)}</td></tr>"
        for title, words in rows
    )
    head = f"<caption {_LEFT}>{escape(caption)}</caption>"
    return printable(f"<table>{head}<tbody>{body}</tbody></table>")
