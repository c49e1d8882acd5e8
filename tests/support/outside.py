"""Text of strangers, which must not speak for fedgauge, and files that hold it everywhere."""

import json
import tomllib
import unicodedata
from pathlib import Path

import msgspec

FORGED = "VERIFIED by everybody"
# Clear the screen, in green, conceal; turn the order; nothing to see; C1; private; markup of rich.
HOSTILE = (
    f"\x1b[2J\x1b[32m{FORGED}\x1b[8m\u202e\u2066\u200b\x9b2J\ue000[bold]\n{FORGED}\r\n\t =1\u2028x"
)
NAMES = {
    "clears": "\x1b[2J\x1b[1;1H\x1b[32mr",
    "conceals": "r\x1b[8m",
    "carriage": f"r\r{FORGED}",
    "line": f"r\n{FORGED}",
    "separator": f"r\u2028{FORGED}",
    "turns": "r\u202egnp.\u2066",
    "zero-width": "r\u200b\u200d\ufeff\u2060",
    "unseen": "r\u3164\u115f\u034f\u2800\U00016fe4\U0001d159",
    "c1": "r\x9b2J\x85",
    "private": "r\ue000\U000e0041",
    "no text": "r\udcff\udc9b",
    "markup": "[bold green][link=https:fedgauge.invalid]r[link]",
    "long": "r" * 180,
}


def dangers(text):
    """Characters that do something else than to be seen."""
    kinds = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    unseen = "\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\U00016fe4\U0001d159"
    found = {each for each in text if unicodedata.category(each) in kinds or each in unseen}
    return sorted(map(ascii, found - {"\n"}))


def hostile_copies(path):
    """The file, as often as it holds text: each time another text of it is a stranger's."""
    data = Path(path).read_bytes()
    match Path(path).suffix:
        case ".json":
            return [json.dumps(each).encode() for each in _altered(json.loads(data))]
        case ".toml":
            plain = tomllib.loads(data.decode())
            return [msgspec.toml.encode(each) for each in _altered(plain)]
        case ".csv":
            header, first, rest = data.split(b"\n", 2)
            odd = b'"' + HOSTILE.encode() + b'"'
            cells = odd + b"," * first.count(b",")
            return [b"\n".join(lines) for lines in ((cells, first, rest), (header, cells, rest))]
        case _:
            return [_damaged(data), *_messages(data)]


def _messages(data):
    try:
        plain = msgspec.msgpack.decode(data)
    except msgspec.DecodeError:
        return []
    return [msgspec.msgpack.encode(each) for each in _altered(plain)]


def _damaged(data):
    """Without its sense, but as long."""
    odd = HOSTILE.encode()
    return data[:8] + (odd * (len(data) // len(odd) + 1))[: len(data) - 8]


def _altered(plain):
    """Copies with one text, or one more name of a field, that is hostile; of a list its first."""
    copies = [HOSTILE] if isinstance(plain, str) else []
    if isinstance(plain, dict):
        copies.append({**plain, HOSTILE: 1})
        copies += [{**plain, name: copy} for name in plain for copy in _altered(plain[name])]
    if isinstance(plain, list) and plain:
        copies += [[copy, *plain[1:]] for copy in _altered(plain[0])]
    return copies
