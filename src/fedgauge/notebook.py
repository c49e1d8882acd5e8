"""What notebooks show: small tables of text, in whatever colours the page has."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

# Notebooks align cells to the right and text is easier to read from the left; no colour is set,
# so that a dark page stays readable.
_CELL: Final = 'style="text-align: left"'


def text(words: str) -> str:
    """Words as HTML, whatever is in them."""
    return f"<span>{escape(words)}</span>"


def table(rows: Iterable[Sequence[str]], *, caption: str = "", header: Sequence[str] = ()) -> str:
    """Rows as an HTML table, the first cell of each being its title.

    Examples
    --------
    >>> table([("cut", "a < b")]).count("a &lt; b")
    1
    """
    head = f"<thead>{_row(header, titles=len(header))}</thead>" if header else ""
    body = "".join(_row(row, titles=1) for row in rows)
    above = f"<caption {_CELL}>{escape(caption)}</caption>" if caption else ""
    return f"<table>{above}{head}<tbody>{body}</tbody></table>"


def _row(cells: Sequence[str], *, titles: int) -> str:
    tags = ["th" if place < titles else "td" for place in range(len(cells))]
    inside = "".join(
        f"<{tag} {_CELL}>{escape(cell)}</{tag}>" for tag, cell in zip(tags, cells, strict=True)
    )
    return f"<tr>{inside}</tr>"
