"""A site's own files, and files of rows."""

import gzip
import json
import sqlite3
from contextlib import closing, suppress
from functools import reduce

import commands
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from cards import cards_of, forged, key_of, text_of
from fuzz_inputs import Unmade, each_alone, forgiving, new_folder, pack, part_of, parts_of
from plans import report_plan, small_noisy_plan
from sites import make_site
from workbooks import pack as pack_parts
from workbooks import parts, rows_of

import fedgauge as fg
from fedgauge.data.rewriting import Rewrite
from fedgauge.data.row_checks import KeyedFile, ScoredFile, ids_in, scores_in
from fedgauge.errors import FedgaugeError
from fedgauge.keys import SigningKey, key_from_text, key_to_text
from fedgauge.site import Account, Card, Consortium, Cost, Ledger, Site, offer
from fedgauge.site.ledger_file import START, Head
from fedgauge.site.rows import read_note
from fedgauge.site.site import approval_path, approve, require_approval
from fedgauge.vertical.label_party import ROW_KINDS


def site_file():
    site = make_site(new_folder() / "a")
    text = site.path.read_text()

    def run(data):
        site.path.write_bytes(data)
        with suppress(FedgaugeError):
            key_from_text(data[:100].decode(errors="replace"))
        found = Site.from_toml(site.path)
        each_alone(
            lambda: repr(found),
            lambda: found.judge_reports(some_reports),
            lambda: found.ledger.balances(),
        )

    some_reports = report_plan(fg.LocalDP(1.0), (2, 3))
    return [text.encode()], run


def signed_anew(data, kind):
    """A card or a consortium's file in which each key that is known signs what is there."""
    with forgiving():
        found = msgspec.json.decode(data, type=kind)
        keys = {text_of(letter): key_of(letter) for letter in "abcdr"}

        def card(each):
            signature, old = each.signature, each.old_signature
            if each.key in keys:
                signature = keys[each.key].sign(each._signed())
            if each.old_key in keys:
                old = keys[each.old_key].sign(each._signed())
            return msgspec.structs.replace(each, signature=signature, old_signature=old)

        if kind is Card:
            return card(found).to_bytes()
        cards = {"coordinator": card(found.coordinator), "sites": tuple(map(card, found.sites))}
        return forged(found, keys[cards["coordinator"].key], **cards).to_bytes()
    return data


def cards():
    folder, boss = new_folder(), key_of("r")
    path = folder / "hospital-b.card"
    file = Consortium.sign("stroke", boss, Card.sign("registry", boss), cards_of("ab"))

    def run(data):
        path.write_bytes(signed_anew(data, Card))
        card = Card.read(path)
        each_alone(
            lambda: file.updated(boss, file.coordinator, [card], []),
            lambda: file.updated(boss, file.coordinator, [card], ["hospital-b"]),
            lambda: file.updated(boss, card, [], []),
        )

    signed = Card.sign("hospital-b", key_of("c"), old=key_of("b"))
    return [card.to_bytes() for card in (*cards_of("bc"), signed)], run


def consortia():
    """At a site that accepted one version before, and at one that accepted none."""
    folder, boss = new_folder(), key_of("r")
    site = make_site(folder / "a")
    site.key_path.unlink()
    key_of("a").save(site.key_path)
    first = Consortium.sign("stroke", boss, Card.sign("registry", boss), cards_of("abc"))
    new = Card.sign("registry", key_of("d"), old=boss)
    later = first.updated(key_of("d"), new, [Card.sign("hospital-b", key_of("x"))], ["hospital-b"])
    bare = site.path.read_text()
    offer(site.path, first).accept()
    states, path = [bare, site.path.read_text()], folder / "stroke.fgc"

    def run(data):
        path.write_bytes(signed_anew(data, Consortium))
        file = Consortium.read(path)
        file.says(file.words_in_rows)
        for state in states:
            site.path.write_text(state)
            each_alone(
                lambda: offer(site.path, file, replace=True),
                lambda: offer(site.path, file).accept(),
            )

    return [first.to_bytes(), later.to_bytes()], run


def approvals():
    folder = new_folder()
    site, officer = make_site(folder / "a"), SigningKey.from_bytes(b"o" * 32)
    text = site.path.read_text()
    block = f'\n[[approvers]]\nname = "officer"\nkey = "{key_to_text(officer.public)}"\n'
    site.path.write_text(text + block)
    site, session, plan = Site.from_toml(site.path), bytes(32), small_noisy_plan()
    path = approve(site, session, plan, officer)

    def run(data):
        path.write_bytes(data)
        require_approval(site, session, plan)

    assert path == approval_path(site, session)
    return [path.read_bytes()], run


def a_ledger(folder):
    ledger = Ledger.create(folder / "ledger.sqlite", head=folder / "head")
    limit = Cost(10.0, 1e-5)
    for number, account in enumerate((Account("d", "example", "add-remove"), Account.labels("d"))):
        ledger.reserve(bytes([number]) * 32, account, Cost(0.5, 0.0), default_limit=limit)
        ledger.commit(bytes([number]) * 32)
    ledger.set_limit(Account.whole("d"), limit)
    return ledger


def look_at_ledger(ledger):
    ledger.entries()
    each_alone(
        lambda: [str(each) for each in ledger.balances()],
        lambda: ledger.totals(default_limit=Cost(1.0, 0.0)),
        ledger.sessions,
        ledger.datasets,
    )


def ledger_lines():
    """Other lines in a ledger, chained anew."""
    folder = new_folder()
    ledger = a_ledger(folder)
    path, whole = folder / "ledger.sqlite", (folder / "ledger.sqlite").read_bytes()
    with closing(sqlite3.connect(path)) as database:
        (table,) = [
            name
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type='table'")
            if not name.startswith("sqlite")
        ]
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        rows = [list(row) for row in database.execute(f"SELECT * FROM {table}")]  # noqa: S608
    texts = [next(cell for cell in row if str(cell).startswith(("{", "["))) for row in rows]
    place = columns.index(next(c for c, v in zip(columns, rows[0], strict=True) if v == texts[0]))

    def run(data):
        lines = parts_of(data, *[str] * len(texts))
        heads = [START]
        path.write_bytes(whole)
        with closing(sqlite3.connect(path)) as database, database:
            for number, line in enumerate(lines):
                try:
                    heads.append(heads[-1].then(line))
                    new = [heads[-1].digest if v == old_digest(rows, number) else v
                           for v in rows[number]]  # fmt: skip
                    new[place] = line
                    marks = ", ".join("?" * len(new))
                    database.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", new)  # noqa: S608
                except (sqlite3.Error, ValueError):
                    raise Unmade from None
        (folder / "head").write_bytes(reduce(Head.then, lines, START).to_bytes())
        look_at_ledger(ledger)

    def old_digest(rows, number):
        return reduce(Head.then, texts[: number + 1], START).digest if rows else ""

    return [pack(texts)], run


def ledger_file():
    folder = new_folder()
    ledger, path = a_ledger(folder), folder / "ledger.sqlite"

    def run(data):
        for each in folder.iterdir():
            if each.name not in ("head", "ledger.sqlite"):
                each.unlink()
        path.write_bytes(data)
        look_at_ledger(ledger)

    return [path.read_bytes()], run


def heads():
    folder = new_folder()
    ledger = a_ledger(folder)

    def run(data):
        (folder / "head").write_bytes(data)
        look_at_ledger(ledger)

    return [(folder / "head").read_bytes()], run


def notes():
    seeds = [
        b'{"path":"a.csv","label":"y","score":"p","groups":{"sex":"s"}}',
        b'{"path":"a.csv","label":"y","key":"id","bins":"a.bins"}',
    ]

    def run(data):
        assert read_note(data, ROW_KINDS).columns

    return seeds, run


ROWS = b"y,p,g,s,id\n" + b"".join(
    b"%d,0.%d,%s,s%d,u%d\n" % (i % 2, i * 7 % 10, b"ab"[i % 2 :][:1], i // 2, i) for i in range(12)
)


def read_rows(path):
    """Rows of a file, read in some of all ways."""
    score = {"label": "y", "score": "p"}

    def rewrite():
        Rewrite(path, path.with_name(f"new{''.join(path.suffixes)}"), "p", "q").run(lambda x: x)

    def reading(make):
        def steps():
            file = make()
            each_alone(file.check, lambda: list(file.leniently(int)))
            if isinstance(file, fg.ScoreFile):
                list(file())

        return steps

    kinds = (
        lambda: fg.ScoreFile(path, **score),
        lambda: fg.ScoreFile(path, **score, group="g", subject="s"),
        lambda: KeyedFile(path, key="id", label="y"),
        lambda: ScoredFile(fg.ScoreFile(path, **score)),
    )
    steps = [
        rewrite,
        lambda: ids_in(path, key="id"),
        lambda: scores_in(path, score="p"),
        lambda: fg.evaluate({"a": fg.ScoreFile(path, **score)}),
        lambda: commands.run("evaluate", path, "--label", "y", "--score", "p"),
        *map(reading, kinds),
    ]
    each_alone(*part_of(path.read_bytes(), steps, 4))


def read_as(name, seeds):
    path = new_folder() / name

    def run(data):
        path.write_bytes(data)
        read_rows(path)

    return seeds, run


def csv():
    quoted = b'y,p,g,s,id\n1,"0.5","a","s ""x""","u,1"\n'
    return read_as("rows.csv", [ROWS, ROWS.replace(b"\n", b"\r\n"), quoted])


def packed_csv():
    """Rows that are packed, and packed bytes that are not."""
    whole = gzip.compress(ROWS, mtime=0)
    many = gzip.compress(b"y,p\n" + b"0,0.5\n" * 3000, mtime=0)
    return read_as("rows.csv.gz", [whole, whole + whole, many])


def parquet():
    path = new_folder() / "rows.parquet"
    columns = {
        "y": ["int64", [0, 1, 1]],
        "p": ["double", [0.1, 0.7, None]],
        "g": ["string", ["a", "b", ""]],
        "s": ["binary", ["x", "y", "z"]],
        "id": ["int32", [1, 2, 3]],
    }
    other = {"y": ["bool", [True, False]], "p": ["float", [1, 2]], "id": ["date32", [5, 6]]}

    def run(data):
        with forgiving(pa.ArrowException):
            given = json.loads(data)
            arrays = {
                str(name): pa.array(values, pa.type_for_alias(kind))
                for name, (kind, values) in given.items()
            }
            pq.write_table(pa.table(arrays), path)
            read_rows(path)
            return
        raise Unmade

    return [json.dumps(each).encode() for each in (columns, other)], run


def workbook():
    """The parts of a workbook, in a zip whose checksums fit."""
    path = new_folder() / "rows.xlsx"
    words = "<si><t>y</t></si><si><r><t>p</t></r></si>"
    shared = '<row r="1"><c t="s"><v>0</v></c><c t="s"><v>1</v></c></row><row><c><v>1</v></c></row>'
    rows = rows_of(("y", "p", "g", "s", "id"), (0, 0.5, "a", "x", 1), (1, "45%", "b", "y", 2))

    def run(data):
        with forgiving(OSError):
            made = {str(name): str(part) for name, part in json.loads(data).items()}
            pack_parts(path, made)
            read_rows(path)
            return
        raise Unmade

    return [json.dumps(each).encode() for each in (parts(rows), parts(shared, words))], run


def workbook_bytes():
    path = pack_parts(new_folder() / "rows.xlsx", parts())
    return read_as("rows.xlsx", [path.read_bytes()])


def parquet_bytes():
    path = new_folder() / "rows.parquet"
    pq.write_table(pa.table({"y": [0, 1], "p": [0.1, 0.9], "id": ["a", "b"]}), path)
    return read_as("rows.parquet", [path.read_bytes()])
