"""Wrong versions of right bytes: of their trees, of their text, of single bytes."""

import json
import random
import re
import tomllib

import msgspec


def int_mutant(rng, old):
    small = [-1, 0, 1, 2, 7, 8, old + 1, old - 1, -old, old ^ 1]
    new = rng.choice([*small, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63)])
    return min(max(new, -(2**63)), 2**64 - 1)  # what the format can say


def bytes_mutant(rng, old):
    place = rng.randrange(len(old) + 1)
    return rng.choice(
        [
            b"",
            old[:place],
            old[place:],
            old + b"\0",
            old * 2,
            old[:place] + rng.randbytes(rng.randrange(1, 9)) + old[place:],
            rng.randbytes(len(old)),
            bytes(len(old)),
            b"\xff" * len(old),
            flipped(rng, old),
            flipped(rng, old),
            rng.randbytes(rng.choice([1, 2, 16, 32, 33, 64, 66, 82, 5000])),
        ]
    )


def list_mutant(rng, old):
    new = list(old)
    if not new:
        return rng.choice([[0], [b""], [[]], [[0, b""]], [[0, b"", b""]]])
    one, other = rng.randrange(len(new)), rng.randrange(len(new))
    match rng.randrange(8):
        case 0:
            new[one], new[other] = new[other], new[one]
        case 1:
            new.insert(one, new[other])
        case 2:
            del new[one]
        case 3:
            new.reverse()
        case 4:
            new *= rng.choice([0, 2, 40])
        case 5:
            new[one] = new[other]
        case 6:
            new.insert(one, rng.choice([None, 0, b"", "", [], {}]))
        case 7:
            del new[min(one, other) : max(one, other) + 1]
    return new


def other_kind(rng):
    deep = []
    for _ in range(rng.choice([3, 600])):
        deep = [deep]
    return rng.choice([None, True, 1.5, float("nan"), "text", b"x", 0, [], {}, {1: 2}, deep])


def mutant(rng, node):
    """The tree of plain data with one change somewhere, at any depth."""
    if rng.random() < 0.05:
        return other_kind(rng)
    if isinstance(node, dict) and node and rng.random() < 0.9:
        key = rng.choice(sorted(node))
        if rng.random() < 0.1:
            return {k: v for k, v in node.items() if k != key}
        return node | {key: mutant(rng, node[key])}
    if isinstance(node, list) and node and rng.random() < 0.75:
        place = rng.randrange(len(node))
        return [*node[:place], mutant(rng, node[place]), *node[place + 1 :]]
    match node:
        case list():
            return list_mutant(rng, node)
        case bool() | None:
            return other_kind(rng)
        case int():
            return int_mutant(rng, node)
        case bytes():
            return bytes_mutant(rng, node)
        case float():
            return rng.choice([0.0, -node, node * 1e-300, node * 1e300, 1e308, 5e-324, -1.0, 1e16])
        case str():
            return rng.choice(["", node + "x", node[:-1], "é" * 10, "uniform", "logit", "\0", "1"])
    return other_kind(rng)


def flipped(rng, data):
    changed = bytearray(data or b"\0")
    for _ in range(rng.choice([1, 1, 1, 3])):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def raw_mutant(rng, data, others):
    """Other bytes, by somebody who has no key."""
    one, other = sorted((rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)))
    return rng.choice(
        [
            flipped(rng, data),
            flipped(rng, data),
            data[:one],
            data[one:],
            data[:one] + data[other:],
            data[:other] + data[one:],
            data[:one] + rng.randbytes(rng.randrange(1, 9)) + data[one:],
            data[:one] + rng.randbytes(other - one) + data[other:],
            rng.randbytes(rng.randrange(200)),
            data[:one] + rng.choice(others)[one:],
            rng.choice(others),
            # Headers of lists, maps, texts and bytes that are said to be very long.
            data[:one] + bytes([rng.choice([0xDD, 0xDF, 0xDB, 0xC6])]) + b"\xff" * 4 + data[one:],
        ]
    )


ODD_TEXT = (
    "", "\0", "\x1b[2J", "\u202e", "\r\n", "=1+1", "\u0661", "\uff11", "e\u0301", "\U0001f600",
    "NaN", "inf", "-0", "1e400", "0x10", "1_0", "a" * 3000, "../x", "\ud800",
)  # fmt: skip
ODD_NUMBERS = ("1e999", "-0", "-0.0", "1E2", "1.0", "9" * 400, "5e-324", "00", "NaN", "1e308", "-1")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_FIELD = re.compile(r'"[^"]*":("[^"]*"|[-\d.e+]+|true|false|null)')


def _packed(data):
    tree = msgspec.msgpack.decode(data)
    if not isinstance(tree, list | dict) or len(data) < 3:
        raise ValueError
    return tree


def _object(data):
    tree = json.loads(data)
    if not isinstance(tree, list | dict):
        raise ValueError
    return tree


FORMS = {
    "msgpack": (_packed, msgspec.msgpack.encode),
    "json": (_object, msgspec.json.encode),
    "toml": (lambda data: tomllib.loads(bytes(data).decode()), msgspec.toml.encode),
}
_WRONG = (
    ValueError, TypeError, RecursionError, OverflowError, AttributeError, NotImplementedError,
    msgspec.MsgspecError,
)  # fmt: skip


def _leaves(tree, path=()):
    """All bytes and texts in a tree that hold a tree themselves, by their paths."""
    if isinstance(tree, dict | list):
        parts = tree.items() if isinstance(tree, dict) else enumerate(tree)
        for key, part in parts:
            yield from _leaves(part, (*path, key))
    elif isinstance(tree, bytes | str):
        for form in ("msgpack", "json") if isinstance(tree, bytes) else ("json",):
            try:
                yield path, form, FORMS[form][0](tree)
            except _WRONG:
                continue


def _put(tree, path, value):
    if not path:
        return value
    tree = tree.copy()
    tree[path[0]] = _put(tree[path[0]], path[1:], value)
    return tree


def tree_mutant(rng, tree):
    """A tree with a change somewhere, also within trees that are packed in it."""
    inner = list(_leaves(tree)) if rng.random() < 0.7 else []
    if not inner:
        return _odd_text(rng, tree) if rng.random() < 0.15 else mutant(rng, tree)
    path, form, found = rng.choice(inner)
    return _put(tree, path, FORMS[form][1](tree_mutant(rng, found)))


def _odd_text(rng, tree):
    """The tree with another text in the place of one, or of the name of a field."""
    if isinstance(tree, str):
        return rng.choice(ODD_TEXT)
    if isinstance(tree, dict) and tree:
        key = rng.choice(sorted(tree, key=str))
        if rng.random() < 0.1:
            return {(rng.choice(ODD_TEXT) if k == key else k): v for k, v in tree.items()}
        return tree | {key: _odd_text(rng, tree[key])}
    if isinstance(tree, list) and tree:
        place = rng.randrange(len(tree))
        return [*tree[:place], _odd_text(rng, tree[place]), *tree[place + 1 :]]
    return tree


def text_mutant(rng, data):
    """Other spellings: of a number, of a field that comes twice."""
    text = data.decode(errors="surrogateescape")
    pattern = rng.choice([_NUMBER, _FIELD])
    found = list(pattern.finditer(text))
    if not found:
        return flipped(rng, data)
    match = rng.choice(found)
    new = rng.choice(ODD_NUMBERS) if pattern is _NUMBER else f"{match[0]},{match[0]}"
    return f"{text[: match.start()]}{new}{text[match.end() :]}".encode(errors="surrogateescape")


def rows_mutant(rng, data):
    """Other rows of a text file: cells, lines, quotes, and how lines end."""
    lines = data.split(b"\n")
    line = rng.randrange(len(lines))
    cells = lines[line].split(b",")
    odd = [each.encode(errors="surrogatepass") for each in (*ODD_TEXT, *ODD_NUMBERS, "null", "NA")]
    match rng.randrange(9):
        case 0 | 1 | 2:
            cells[rng.randrange(len(cells))] = rng.choice(odd)
            lines[line] = b",".join(cells)
        case 3:
            lines[line] = b",".join([*cells, rng.choice(odd)][rng.randrange(2) :])
        case 4:
            lines[line:line] = [lines[line]] * rng.choice([1, 2, 50])
        case 5:
            del lines[line]
        case 6:
            place = rng.randrange(len(lines[line]) + 1)
            lines[line] = lines[line][:place] + rng.choice([b'"', b'""', b"\r", b"'", b"\t", b"\0"])
        case 7:
            return rng.choice([b"\r\n", b"\r", b"\n\n", b",\n"]).join(lines)
        case 8:
            return rng.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"\n", b'"']) + data
    return b"\n".join(lines)


def form_mutant(rng, form, data):
    """Another input of this form; `rows` and `raw` are forms that have no tree."""
    if form == "rows" and rng.random() < 0.8:
        return rows_mutant(rng, data)
    if form == "json" and rng.random() < 0.1:
        return text_mutant(rng, data)
    if form in FORMS and rng.random() < 0.9:
        decode, encode = FORMS[form]
        try:
            tree = decode(data)
            for _ in range(rng.choice([1, 1, 1, 2, 4])):
                tree = tree_mutant(rng, tree)
            return encode(tree)
        except _WRONG:
            pass
    return raw_mutant(rng, data, [data])


def mutants(seed, form, seeds, count):
    """So many mutants of the seeds, the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311  (to be repeated)
    for _ in range(count):
        data = rng.choice(seeds)
        for _ in range(rng.choice([1, 1, 2, 3])):
            data = form_mutant(rng, form, data)
        yield data
