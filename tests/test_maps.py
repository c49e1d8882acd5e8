"""The maps of the house name files that exist, and every file is on the map."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "fedgauge"
ROW = re.compile(r"^\| *(?:`([\w/]+)`)? *\| *([^|]*)\|", re.MULTILINE)


def modules():
    return {
        str(path.relative_to(PACKAGE).with_suffix(""))
        for path in PACKAGE.rglob("*.py")
        if path.name != "__init__.py" or path.parent.name == "cli"
    }


def mapped():
    text = (ROOT / "docs" / "architecture.md").read_text()
    table = text[text.index("| room | file |") : text.index("Where to add something")]
    room, found = "", set()
    for named, files in ROW.findall(table):
        room = named or room
        names = re.findall(r"`(\w+)`", files)
        found |= {room + name for name in names} if room.endswith("/") else {room}
    return found - {"", "room"}


def test_every_file_is_on_the_map_and_every_place_on_it_exists():
    assert mapped() == modules()


def test_files_that_contributing_names_exist():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text[text.index("## To add X, touch Y") : text.index("## Test")]
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", table))
    assert len(named) > 15
    missing = {
        name
        for name in named
        if not any((at / name).is_file() for at in (PACKAGE, PACKAGE.parent, ROOT))
    }
    assert not missing
