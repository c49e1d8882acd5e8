"""The map of the package and CONTRIBUTING name files that exist, and every module is on the map."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fedgauge"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text()
ROW = re.compile(r"^\| *(?:`(\w+/)`)? *\| *((?:`\w+`(?:, )?)+) *\|", re.MULTILINE)
FILE = re.compile(r"`((?:\w+/)*\w+\.(?:py|html|js|css|md|toml|txt))`")
FOLDER = re.compile(r"`((?:\w+/)+|tests/\w+)`")


def modules():
    return [
        str(path.relative_to(PACKAGE).with_suffix(""))
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py"
    ]


def tree():
    start = ARCHITECTURE.index("## The packages")
    rows = ROW.findall(ARCHITECTURE[start : ARCHITECTURE.index("## Five ideas", start)])
    return [room + name for room, files in rows for name in re.findall(r"\w+", files)]


def missing(text, *places):
    named = set(FILE.findall(text)) | set(FOLDER.findall(text))
    return {name for name in named if not any((place / name).exists() for place in places)}


def test_every_module_is_on_the_map_once_and_every_module_on_it_exists():
    assert sorted(tree()) == sorted(modules())


def test_files_that_the_map_names_exist():
    assert len(FILE.findall(ARCHITECTURE)) > 30
    assert not missing(ARCHITECTURE, PACKAGE, PACKAGE.parent, ROOT)


def test_files_that_contributing_names_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    assert len(FILE.findall(text) + FOLDER.findall(text)) > 10
    assert not missing(text, ROOT)


def test_there_are_fifteen_places_to_open():
    table = ARCHITECTURE[ARCHITECTURE.index("| to change | open |") :]
    assert len(re.findall(r"^\| (?:a|an) ", table, re.MULTILINE)) == 15
