"""Workbooks of Excel (`.xlsx`): the first sheet as text, whose memory does not grow with its rows.

In the fastest reader that others keep a file of a kilobyte, with a cell in the last row and column,
ends the process. Others hold a row of any length.
"""

import csv
import io
import posixpath
import zipfile
from collections.abc import Iterator
from typing import IO, Any, BinaryIO, Final
from xml.parsers import expat

from fedgauge.errors import FedgaugeError, InputError

# Excel's own limits, of a sheet and of a cell.
_MOST_ROWS: Final = 1 << 20
_MOST_COLUMNS: Final = 1 << 14
_LONGEST_CELL: Final = 32_767
_LONGEST_ROW: Final = 1 << 20  # as of text files
# Of what the parts of a workbook unpack to. Words are held in memory, rows are not.
_MOST_INDEX: Final = 1 << 22
_MOST_WORDS: Final = 1 << 28
_MOST_SHEET: Final = 1 << 32
_DEEPEST: Final = 32  # elements within one another
_CHUNK: Final = 1 << 16
_PACKED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others need memory to unpack
_OLD: Final = b"\xd0\xcf\x11\xe0"
_DAMAGED: Final = (
    "the workbook is damaged, or larger than Excel allows. Save it again as .xlsx, or as CSV."
)


class SheetText(io.RawIOBase):
    """The rows of the first visible sheet, as UTF-8 text with a tab between cells.

    The first row that is not empty names the columns. Cells to the right of these are left out,
    such as remarks. A number is written in the digits that the file has, with this decimal mark.
    """

    def __init__(self, file: BinaryIO, decimal: str) -> None:
        self._file = file
        self._lines = _lines(file, decimal)
        self._waiting = b""

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """So many bytes, fewer at the end."""
        while not 0 <= size <= len(self._waiting) and (line := next(self._lines, None)) is not None:
            self._waiting += line
        size = len(self._waiting) if size < 0 else size
        given, self._waiting = self._waiting[:size], self._waiting[size:]
        return given

    def close(self) -> None:
        """Close the file, too."""
        self._file.close()
        super().close()


def _lines(file: BinaryIO, decimal: str) -> Iterator[bytes]:
    """The rows as text, many at once."""
    out = io.StringIO()
    write = csv.writer(out, delimiter="\t", lineterminator="\n").writerow
    named, before = 0, 0
    for number, cells in _rows(file, decimal):
        if not named:
            named, before = len(cells), number - 1
        if not any(cells[:named]):
            continue
        out.write("\n" * (number - before - 1))  # so that lines are numbered as rows are
        before = number
        write([*cells[:named], *[""] * (named - len(cells))])
        if out.tell() > _CHUNK:
            yield out.getvalue().encode()
            out.seek(0)
            out.truncate()
    yield out.getvalue().encode()


def _rows(file: BinaryIO, decimal: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not empty, with their numbers."""
    file.seek(0)
    start = file.read(4)
    if start == _OLD:
        raise InputError(
            "this is an Excel workbook of an old format, or one with a password. Save it as .xlsx "
            "without a password."
        )
    if start[:2] != b"PK":
        raise InputError(
            "this is not an Excel workbook (.xlsx), although its name says so. Export it again."
        )
    try:
        with zipfile.ZipFile(file) as parts:
            sheet, words = _find(parts)
            reader = _SheetRows(_Words.all(parts, words) if words else [], decimal)
            for _ in reader.read(_opened(parts, sheet, _MOST_SHEET)):
                yield from reader.found
                reader.found.clear()
    except FedgaugeError:
        raise
    except Exception:  # whatever the reading of a zip, or of XML, ends in
        raise InputError(_DAMAGED) from None


def _find(parts: zipfile.ZipFile) -> tuple[str, str | None]:
    """The names of the parts with the first visible sheet, and with its words if it has some."""
    (book,) = (path for kind, path in _related(parts, "").values() if kind == "officeDocument")
    related = _related(parts, book)
    for sheet in _Elements.all(parts, book, "sheet"):
        (place,) = (each for name, each in sheet.items() if name.endswith(":id"))
        kind, path = related[place]
        if kind == "worksheet" and sheet.get("state", "visible") == "visible":
            words = (path for kind, path in related.values() if kind == "sharedStrings")
            return path, next(words, None)
    raise InputError("the workbook has no sheet with cells. Export it again.")


def _related(parts: zipfile.ZipFile, part: str) -> dict[str, tuple[str, str]]:
    """What a part refers to, by id: what it is, and its name."""
    folder, name = posixpath.split(part)
    listed = _Elements.all(parts, posixpath.join(folder, f"_rels/{name}.rels"), "Relationship")
    return {
        each["Id"]: (
            each["Type"].rpartition("/")[2],
            posixpath.normpath(posixpath.join("/", folder, each["Target"]))[1:],
        )
        for each in listed
    }


def _opened(parts: zipfile.ZipFile, name: str, most: int) -> IO[bytes]:
    """A part, which unpacks to no more than it claims."""
    info = parts.getinfo(name)
    if info.file_size > most or info.compress_type not in _PACKED:
        raise InputError(_DAMAGED)
    return parts.open(info)


class _PartReader:
    """Takes the elements of one part of a workbook, and refuses what none has."""

    def __init__(self) -> None:
        self._depth = 0
        self._words: list[str] | None = None  # of an element whose text matters
        self._length = 0

    def read(self, part: IO[bytes]) -> Iterator[None]:
        """Read a part, chunk after chunk."""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.StartDoctypeDeclHandler = _refuse
        taken = 0
        with part:
            while chunk := part.read(_CHUNK):
                parser.Parse(chunk)
                taken += len(chunk)
                if taken - parser.CurrentByteIndex > _LONGEST_ROW:  # a tag that does not end
                    raise InputError(_DAMAGED)
                yield
        parser.Parse(b"", True)
        yield

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        """An element begins."""

    def finish(self, tag: str) -> None:
        """An element ends."""

    def collect(self) -> None:
        """From here on text is collected."""
        self._words = []

    def collected(self) -> str:
        """The text that was collected."""
        words, self._words = self._words or [], None
        return "".join(words)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise InputError(_DAMAGED)
        self.begin(name.rpartition(":")[2], attributes)

    def _end(self, name: str) -> None:
        self._depth -= 1
        self.finish(name.rpartition(":")[2])

    def _text(self, words: str) -> None:
        if self._words is not None:
            self._words.append(words)
            self._length += len(words)
            if self._length > _LONGEST_CELL:
                raise InputError(_DAMAGED)


def _refuse(*_: Any) -> None:
    """A declaration of entities, which no workbook has."""
    raise InputError(_DAMAGED)


class _Elements(_PartReader):
    """The attributes of all elements of one kind."""

    def __init__(self, tag: str) -> None:
        super().__init__()
        self._tag = tag
        self.found: list[dict[str, str]] = []

    @classmethod
    def all(cls, parts: zipfile.ZipFile, name: str, tag: str) -> list[dict[str, str]]:
        """Those of a part."""
        reader = cls(tag)
        for _ in reader.read(_opened(parts, name, _MOST_INDEX)):
            pass
        return reader.found

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == self._tag:
            self.found.append(attributes)


class _Words(_PartReader):
    """The words that cells refer to by number; how they sound is left out (``rPh``)."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._runs: list[str] = []
        self._is_sound = False

    @classmethod
    def all(cls, parts: zipfile.ZipFile, name: str) -> list[str]:
        """Those of a part."""
        reader = cls()
        for _ in reader.read(_opened(parts, name, _MOST_WORDS)):
            pass
        return reader.found

    def begin(self, tag: str, attributes: dict[str, str]) -> None:  # noqa: ARG002
        if tag == "rPh":
            self._is_sound = True
        elif tag == "t" and not self._is_sound:
            self.collect()
        elif tag == "si":
            self._length = 0

    def finish(self, tag: str) -> None:
        if tag == "rPh":
            self._is_sound = False
        elif tag == "t" and not self._is_sound:
            self._runs += filter(None, [self.collected()])
        elif tag == "si":
            self.found.append("".join(self._runs))
            self._runs.clear()


class _SheetRows(_Words):
    """The rows of a sheet, as text: numbers, and the values of cells within one row."""

    def __init__(self, words: list[str], decimal: str) -> None:
        super().__init__()
        self.found: list[tuple[int, list[str]]] = []  # type: ignore[assignment]
        self._shared, self._decimal = words, decimal
        self._row = 0
        self._cells: list[str] = []
        self._length_of_row = 0
        self._kind = ""

    def begin(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "row":
            row = int(attributes.get("r", self._row + 1))
            if not self._row < row <= _MOST_ROWS:
                raise InputError(_DAMAGED)
            self._row, self._cells, self._length_of_row = row, [], 0
        elif tag == "c":
            column = _column(attributes["r"]) if "r" in attributes else len(self._cells)
            if not len(self._cells) <= column < _MOST_COLUMNS:
                raise InputError(_DAMAGED)
            self._cells += [""] * (column - len(self._cells) + 1)
            self._kind, self._length = attributes.get("t", "n"), 0
        elif tag == "v":
            self.collect()
        else:
            super().begin(tag, attributes)

    def finish(self, tag: str) -> None:
        if tag == "row":
            if any(self._cells):
                self.found.append((self._row, self._cells))
        elif tag == "c":
            if self._runs:  # in the cell itself, and not among the words
                self._cells[-1] = "".join(self._runs)
                self._runs.clear()
            self._length_of_row += len(self._cells[-1])
            if self._length_of_row > _LONGEST_ROW:
                raise InputError(_DAMAGED)
        elif tag == "v":
            self._cells[-1] = self._value(self.collected())
        else:
            super().finish(tag)

    def _value(self, text: str) -> str:
        if self._kind == "s":
            place = int(text)
            if place < 0:
                raise InputError(_DAMAGED)
            return self._shared[place]
        if self._kind == "b":
            return "TRUE" if text.strip() == "1" else "FALSE"
        return text.replace(".", self._decimal) if self._kind == "n" else text


def _column(reference: str) -> int:
    """The place of the column of a cell such as AB7."""
    place = 0
    for letter in reference.rstrip("0123456789"):
        if not "A" <= letter <= "Z" or place > _MOST_COLUMNS:
            raise InputError(_DAMAGED)
        place = 26 * place + ord(letter) - ord("A") + 1
    if not place:
        raise InputError(_DAMAGED)
    return place - 1
