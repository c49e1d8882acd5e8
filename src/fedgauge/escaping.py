"""Text from outside made harmless on a screen, in a log and in a table.

Terminals obey control characters, marks turn the order of letters (Boucher & Anderson 2021), and
spreadsheets run what looks like a formula. All text is printed, logged and saved through here.
"""

import logging
import re
import unicodedata
from collections.abc import Iterable
from typing import Final

_UNUSUAL: Final = re.compile(r"[^\n -~]")
# Letters, marks and symbols by their category, and yet nothing is seen of them.
_UNSEEN: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0\U00016fe4\U0001d159"
)
_MOST: Final = 2_000  # characters of a line: what follows must not leave the screen
_HEAD: Final = 1_500
# Spreadsheets skip blanks, and take full-width signs for the usual ones.
_FORMULA: Final = re.compile(r"\s*[=+\-@\u2212]")
_SEPARATES: Final = re.compile('[",;|]')


def printable(text: str) -> str:
    r"""The text with all that cannot be seen written out; line breaks and blanks stay.

    >>> printable("r\x1b[2J.json"), printable("Hôpital \u202e1")
    ('r[U+001B][2J.json', 'Hôpital [U+202E]1')
    """
    return _UNUSUAL.sub(_shown, text)


def in_one_line(text: str) -> str:
    r"""The same without line breaks, and without the middle of very long text."""
    line = printable(text).replace("\n", "[U+000A]")
    if len(line) <= _MOST:
        return line
    return f"{line[:_HEAD]} [...] {line[_HEAD - _MOST :]}"


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    r"""Rows as CSV in which no text is a formula, however a spreadsheet splits lines.

    >>> csv_text([["look", "moved"], [" =1", -0.5], ["a;=1", None]])
    'look,moved\n\' =1,-0.5\n"a;=1",\n'
    """
    return "".join(f"{','.join(map(_cell, row))}\n" for row in rows)


def escape_record(record: logging.LogRecord) -> bool:
    """Let a log's record be only read, and its traceback; loggers take it as a filter."""
    record.msg, record.args = in_one_line(record.getMessage()), ()
    if record.exc_info:
        record.exc_text = printable(logging.Formatter().formatException(record.exc_info))
    return True


def _shown(found: re.Match[str]) -> str:
    sign = found[0]
    is_seen = sign.isprintable() or unicodedata.category(sign) == "Zs"
    return sign if is_seen and sign not in _UNSEEN else f"[U+{ord(sign):04X}]"


def _cell(value: object) -> str:
    if not isinstance(value, str):
        return "" if value is None else str(value)
    text = in_one_line(value)
    if _FORMULA.match(unicodedata.normalize("NFKC", text)):
        text = f"'{text}"
    return '"{}"'.format(text.replace('"', '""')) if _SEPARATES.search(text) else text
