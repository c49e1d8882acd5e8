"""Workbooks part by part, as no program writes them."""

import zipfile
from xml.sax.saxutils import quoteattr

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"


def relations(**targets):
    each = "".join(
        f'<Relationship Id="{name}" Type="{OFFICE}/{kind}" Target={quoteattr(target)}/>'
        for name, (kind, target) in targets.items()
    )
    return f'<Relationships xmlns="{PACKAGE}">{each}</Relationships>'


def sheet(rows):
    return f'<worksheet xmlns="{MAIN}"><sheetData>{rows}</sheetData></worksheet>'


def cell(value):
    if isinstance(value, str):
        return f'<c t="inlineStr"><is><t>{value}</t></is></c>'
    return f"<c><v>{value}</v></c>"


def rows_of(*rows):
    return "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)


ROWS = rows_of(("y", "p"), (0, 0.1), (1, 0.9), (0, 0.4), (1, 0.3))


def parts(rows=ROWS, words=None, **others):
    """The parts of a workbook by name; `others` replace these, slashes written as ``__``."""
    book = f'<workbook xmlns="{MAIN}" xmlns:r="{OFFICE}"><sheets><sheet name="S" sheetId="1" r:id="a"/></sheets></workbook>'  # noqa: E501
    made = {
        "_rels/.rels": relations(r=("officeDocument", "xl/workbook.xml")),
        "xl/workbook.xml": book,
        "xl/_rels/workbook.xml.rels": relations(
            a=("worksheet", "worksheets/one.xml"), b=("sharedStrings", "/xl/words.xml")
        ),
        "xl/worksheets/one.xml": sheet(rows),
        "xl/words.xml": f'<sst xmlns="{MAIN}">{words or ""}</sst>',
    }
    return made | {name.replace("__", "/"): part for name, part in others.items()}


def pack(path, made, compression=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, part in made.items():
            file.writestr(name, part)
    return path
