"""Files that never end, are no files, unpack to gigabytes or lie: one line, in bounded work."""

import gzip
import json
import os
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import zlib
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import complaint, run
from limits import limited
from refusals import refused

import fedgauge as fg
from fedgauge import storage
from fedgauge.cli import main
from fedgauge.data import files, rewriting
from fedgauge.data.files import ScoreFile
from fedgauge.data.rewriting import Rewrite
from fedgauge.errors import PlanError, SiteError
from fedgauge.privacy.accounting import gaussian_delta, skellam_delta
from fedgauge.site import create_site
from fedgauge.site.policy import SiteFile

FIXTURES = Path(__file__).parents[1] / "fixtures" / "results"
MEGABYTE = 1 << 20
MOST = 300 * MEGABYTE  # more than a small file takes, and far less than what bombs unpack to
ROWS = "y,p\n1,0.9\n0,0.1\n1,0.7\n0,0.4\n"


class Waited(Exception):
    """A command that would have waited for ever."""


@contextmanager
def no_waiting(seconds=60):
    def stop(*_):
        raise Waited

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A site, results, a map and rows, as somebody has them."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.csv").write_text(ROWS)
    shutil.copy(FIXTURES / "exact.json", tmp_path / "r.json")
    (tmp_path / "looks").mkdir()
    shutil.copy(FIXTURES / "exact.json", tmp_path / "looks" / "2026-01-01.json")
    result = fg.Evaluation.from_json("r.json")
    result.plan.save("plan.json")
    result.calibrator().to_json("map.json")
    create_site("site", name="hospital-a", dataset="stroke")
    return tmp_path


SITE = ("--site", "site/site.toml")
OF_RESULT = [
    ("show", "FILE"),
    ("report", "FILE", "-o", "out.html"),
    ("verify", "FILE", *SITE),
    ("diff", "FILE", "r.json"),
    ("diff", "r.json", "FILE"),
    ("calibrate", "FILE", "-o", "out.json"),
]
READ = {
    "result": ("r.json", OF_RESULT),
    "look": ("looks/2026-01-01.json", [("trend", "looks")]),
    "plan": (
        "plan.json",
        [
            ("explain", "FILE"),
            ("evaluate", "rows.csv", "--label", "y", "--score", "p", "--plan", "FILE"),
            ("exchange", "start", "FILE", "run", *SITE),
            ("encode", "FILE", "rows.csv", "--label", "y", "--score", "p", "-o", "o.fgr"),
        ],
    ),
    "map": ("map.json", [("apply", "FILE", "rows.csv", "--score", "p", "-o", "out.csv")]),
    "rows": (
        "rows.csv",
        [
            ("evaluate", "FILE", "--label", "y", "--score", "p"),
            ("apply", "map.json", "FILE", "--score", "p", "-o", "out.csv"),
            ("vertical", "roster", "FILE", "--score", "p", *SITE, "--output", "o.roster"),
        ],
    ),
    "site file": ("site/site.toml", [("site", "show", *SITE), ("ledger", "show", *SITE)]),
    "key": ("site/site.key", [("site", "show", *SITE)]),
    "head": ("site/site.key.head", [("ledger", "show", *SITE)]),
    "ledger": ("site/ledger.sqlite", [("ledger", "show", *SITE)]),
    "evidence": ("proof.fgx", [("exchange", "evidence", "FILE", *SITE)]),
    "reports": ("o.fgr", [("intake", "plan.json", "FILE")]),
    "target": (
        "out.json",
        [("evaluate", "rows.csv", "--label", "y", "--score", "p", "--json", "FILE")],
    ),
}
ODD = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "full device": lambda path: path.symlink_to("/dev/full"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
    "folder": lambda path: path.mkdir(),
    "loop": lambda path: path.symlink_to(path.name),
    "nothing": str,
}


def run_soon(command, name):
    with no_waiting():
        return run(*(name if word == "FILE" else word for word in command))


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", READ)
def test_what_is_no_file_is_neither_waited_for_nor_read(folder, kind, odd):
    name, commands = READ[kind]
    path = folder / name
    path.unlink(missing_ok=True)
    ODD[odd](path)
    for command in commands:
        done = run_soon(command, name)
        if kind == "target" and odd == "nothing":  # such a link names no file
            assert done.exit_code == 0
        else:
            assert done.exit_code in (1, 2), (command, done.output)
            assert done.stderr.count("\n") == 1, (command, done.stderr)
            assert "None" not in done.stderr, (command, done.stderr)


def test_a_file_that_is_put_in_the_place_of_another_is_asked_once_it_is_open(folder, monkeypatch):
    """Between a look at a name and its opening another file can come there."""
    swapped = []

    def fstat(handle, *, before=os.fstat):
        swapped.append(handle)
        return before(handle)

    monkeypatch.setattr(storage.os, "fstat", fstat)
    storage.read_bounded("r.json", MEGABYTE)
    assert swapped
    monkeypatch.undo()
    os.mkfifo(folder / "pipe")
    with no_waiting(), pytest.raises(OSError, match="not a file"):
        storage.open_regular(folder / "pipe")


@pytest.mark.parametrize("kind", ["result", "look", "plan", "map", "site file", "key", "head"])
def test_a_file_that_is_too_large_is_not_read(folder, kind):
    """One of holes: a terabyte that takes no place on the disk."""
    name, commands = READ[kind]
    with (folder / name).open("wb") as file:
        file.truncate(1 << 40)
    if kind == "key":
        (folder / name).chmod(0o600)
    done = run_soon(commands[0], name)
    assert done.exit_code in (1, 2)
    assert done.stderr.count("\n") == 1


def test_a_file_of_an_exact_limit_is_read(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert storage.read_bounded(path, 5) == b"12345"
    refused(OSError, "larger than 4 bytes", storage.read_bounded, path, 4)


def packed(path, *parts):
    """A file as gzip makes it, but what repeats is compressed once."""
    deflate, blocks, check, size = zlib.compressobj(6, zlib.DEFLATED, -15), [], 0, 0
    for text, times in parts:
        blocks += times * [deflate.compress(text) + deflate.flush(zlib.Z_FULL_FLUSH)]
        for _ in range(times):
            check = zlib.crc32(text, check)
        size += times * len(text)
    header, empty = b"\x1f\x8b\x08" + bytes(6) + b"\xff", b"\x03\0"
    path.write_bytes(header + b"".join(blocks) + empty + struct.pack("<II", check, size))


BOMBS = {
    "a line": [(b"y,p\n1,0.5\n", 1), (b"a" * MEGABYTE, 400)],
    "a quote": [(b'y,p\n1,0.5\n"', 1), (b"a" * (MEGABYTE - 1) + b"\n", 400)],
    "zeros": [(b"y,p\n", 1), (b"\0" * MEGABYTE, 400)],
    "a header": [(b"y,p", 1), (b",a" * (MEGABYTE // 2), 200), (b"\n1,0.5\n", 1)],
    "no header": [(b"y" * MEGABYTE, 400)],
    "a quoted header": [(b'"', 1), (b"\n" * MEGABYTE, 400)],
    "columns": [(b"y,p" + b"," * (MEGABYTE // 2) + b"\n1,0.5\n", 1)],
    "columns behind a quote": [(b'"y\n",p' + b"," * (MEGABYTE // 2) + b"\n1,0.5\n", 1)],
    "blank lines": [(b"\n" * MEGABYTE, 50), (b"y,p\n1,0.5\n", 1)],
    "fields": [(b"y,p\n", 1), (b"," * (MEGABYTE - 1) + b"\n", 100)],
    "an odd line": [(b"y,p\n1,0.5,3\n", 1), (b"a" * MEGABYTE, 400)],
}
CHILD = """
import os
from pathlib import Path
from fedgauge import cli
def leave(code):
    # Of this program alone: what getrusage says counts the one that started it, too.
    (peak,) = [line for line in Path("/proc/self/status").open() if line.startswith("VmHWM")]
    print("peak", int(peak.split()[1]) * 1024, flush=True)
    os._exit(code)
cli.end_at_once = leave
try:
    cli.main()
except SystemExit as ended:
    leave(ended.code)
"""


def program(text, *arguments):
    command = [sys.executable, "-c", text, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "bomb.csv.gz", "--label", "y", "--score", "p"),
        ("apply", "map.json", "bomb.csv.gz", "--score", "p", "-o", "out.csv.gz"),
    ],
    ids=["evaluate", "apply"],
)
def test_compressed_rows_take_no_more_memory_than_rows(folder, bomb, command):
    packed(folder / "bomb.csv.gz", *BOMBS[bomb])
    done = program(CHILD, *command)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert int(done.stdout.split()[-1]) < MOST
    assert not (folder / "out.csv.gz").exists()


def test_long_rows_are_rewritten_few_at_a_time(folder):
    packed(folder / "b.csv.gz", (b"y,p,t\n", 1), (b"1,0.5," + b"x" * 900_000 + b"\n", 400))
    command = ("apply", "map.json", "b.csv.gz", "--score", "p", "-o", "out.csv.gz")
    done = program(CHILD, *command)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) < MOST


@pytest.mark.parametrize("lines", [2000, 4000])
@pytest.mark.parametrize("text", [b'y,p\n"%b",0.5\n', b"y,p\n1,0.5\n%b0,0.2\n"], ids=["in", "of"])
def test_each_line_of_a_field_is_looked_at_once(tmp_path, monkeypatch, text, lines):
    """Bytes that the search for the end of a quote has passed, and those it was given."""
    source, target, given = tmp_path / "in.csv", tmp_path / "out.csv", []
    source.write_bytes(text % (b"\n" * lines))

    def leaves_open(line, *more, before=rewriting._leaves_open, **options):
        given.append(len(line))
        return before(line, *more, **options)

    monkeypatch.setattr(rewriting, "_leaves_open", leaves_open)
    with limited(60 * lines):
        Rewrite(source, target, "p", "q").run(lambda scores: scores)
    assert sum(given) <= source.stat().st_size
    assert target.read_bytes().replace(b",q", b"").count(b"\n") == source.read_bytes().count(b"\n")


def test_a_pair_of_quotes_before_a_line_break_ends_no_field(tmp_path):
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_bytes(b'n,p\n"say ""hi"" there\nmore",0.5\n"a""b\n""",0.25\n')
    assert Rewrite(source, target, "p", "q").run(lambda scores: scores) == 2
    assert target.read_bytes() == (
        b'n,p,q\n"say ""hi"" there\nmore",0.5,0.5\n"a""b\n""",0.25,0.25\n'
    )


def test_a_damaged_end_of_a_gzip_file_is_said_of_that_file(tmp_path):
    source, target = tmp_path / "in.csv.gz", tmp_path / "out.csv.gz"
    data = bytearray(gzip.compress(b"y,p\n" + b"1,0.5\n" * 500_000))
    data[-6] ^= 1  # of the checksum
    source.write_bytes(data)
    with pytest.raises(fg.InputError, match="breaks off"):
        Rewrite(source, target, "p", "q").run(lambda scores: scores)
    assert not target.exists()


@pytest.mark.parametrize("limit", ["_FEW_ROWS", "_FEW_BYTES"])
def test_a_parquet_file_that_unpacks_to_far_more_is_refused(tmp_path, monkeypatch, limit):
    """Rows that are all alike take a few bytes by the million."""
    path = tmp_path / "rows.parquet"
    rows = pa.table({"y": np.zeros(1 << 22, dtype=int), "p": np.zeros(1 << 22)})
    pq.write_table(rows, path, compression="zstd", use_dictionary=False, row_group_size=1 << 22)
    assert ScoreFile(path, label="y", score="p")
    monkeypatch.setattr(files, limit, 1 << 10)
    monkeypatch.setattr(files, "_MOST_PER_BYTE", 50)
    refused(fg.InputError, "more rows than fit", ScoreFile, path, label="y", score="p")


def test_no_bit_at_the_end_of_a_parquet_file_ends_the_process(tmp_path):
    """PyArrow lets some of what its C++ throws end the process, so this is another one."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"y": [0, 1], "p": [0.1, 0.9]}), path)
    done = program(FLIPS, path)
    assert (done.returncode, done.stderr) == (0, "")


FLIPS = """
import sys
from contextlib import suppress
from pathlib import Path
import fedgauge as fg
path = Path(sys.argv[1])
whole = path.read_bytes()
for bit in range(8 * (len(whole) - int.from_bytes(whole[-8:-4], "little") - 8), 8 * len(whole)):
    changed = bytearray(whole)
    changed[bit // 8] ^= 1 << bit % 8
    path.write_bytes(changed)
    with suppress(fg.FedgaugeError):
        list(fg.ScoreFile(path, label="y", score="p")())
"""


def test_few_equal_rows_of_parquet_are_rows(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"y": np.zeros(1 << 20, dtype=int), "p": np.zeros(1 << 20)}), path)
    assert sum(len(batch) for batch in ScoreFile(path, label="y", score="p")()) == 1 << 20


@contextmanager
def small_disk(most):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("stood", [False, True], ids=["new", "old"])
@pytest.mark.parametrize(
    ("command", "target"),
    [
        (("show", "r.json", "--plots", "plots"), "plots/roc.png"),
        (("report", "r.json", "-o", "out.html"), "out.html"),
        (("calibrate", "r.json", "-o", "out.json"), "out.json"),
        (("apply", "map.json", "rows.csv", "--score", "p", "-o", "out.csv"), "out.csv"),
        (
            ("evaluate", "rows.csv", "--label", "y", "--score", "p", "-q", "--json", "e.json"),
            "e.json",
        ),
        (("trend", "looks", "-o", "t.json"), "t.json"),
        (("plan", "--clients", 3, "--epsilon", 1, "--examples", 600, "-o", "p.json"), "p.json"),
    ],
    ids=lambda value: value if isinstance(value, str) else value[0],
)
def test_a_full_disk_leaves_no_half_of_a_file(folder, command, target, stood):
    shutil.copy(FIXTURES / "exact-logit.json", "looks/2026-02-01.json")
    path = folder / target
    if stood:
        if target == "out.csv":
            return  # which is never written over
        assert run(*command).exit_code == 0
    before = path.read_bytes() if stood else None
    left = {each.name for each in path.parent.iterdir()} if path.parent.is_dir() else set()
    with small_disk(100 if target in ("out.csv", "out.json") else 400):
        done = run(*command)
    assert done.exit_code in (1, 2), done.stderr
    assert "too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert (path.read_bytes() if path.exists() else None) == before
    assert {each.name for each in path.parent.iterdir()} - {"plots"} <= left


def streams(*arguments, folder, **more):
    return subprocess.run(
        [sys.executable, "-c", "from fedgauge.cli import main; main()", *arguments],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        **more,
    )


@pytest.mark.parametrize(
    "command",
    [
        ("show", "r.json"),
        ("--version",),
        ("--help",),
        ("show", "--help"),
        ("evaluate", "rows.csv", "--label", "y", "--score", "p", "--json", "-"),
        ("explain", "plan.json"),
    ],
)
def test_output_to_a_full_device_ends_in_one_line(folder, command):
    with Path("/dev/full").open("w") as full:
        done = streams(*command, folder=folder, stdout=full)
    assert done.returncode == 1
    assert done.stderr == (
        "fedgauge: cannot print the output of this command: No space left on device.\n"
    )


def test_output_that_nobody_reads_ends_quietly(folder):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = streams("show", "r.json", folder=folder, stdout=pipe)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_streams_may_be_closed(folder, closed):
    def close():
        for handle in closed:
            os.close(handle)

    done = streams("show", "r.json", folder=folder, stdout=subprocess.DEVNULL, preexec_fn=close)
    assert (done.returncode, done.stderr) == (0, "")


def test_letters_that_a_terminal_lacks_are_spelled_out(folder):
    (folder / "\N{SNOWMAN}.csv").write_text(ROWS)
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    for name, code in (("\N{SNOWMAN}.csv", 0), ("\N{COMET}.csv", 2), (b"\xff.csv", 2)):
        command = ["evaluate", name, "--label", "y", "--score", "p"]
        done = streams(*command, folder=folder, stdout=subprocess.PIPE, env=ascii_only)
        assert done.returncode == code, done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("folder")
def test_names_that_are_no_text_are_refused_where_they_would_be_written():
    """What a disk calls a file need not be UTF-8, and what is written is."""
    shutil.copy("r.json", os.fsdecode(b"looks/2026-03-01-\xff.json"))
    for out in ("t.html", "t.json", "t.csv"):
        done = run("trend", "looks", "-o", out)
        assert done.exit_code in (0, 2), done.output
        assert "Traceback" not in done.stderr


@pytest.fixture
def broken(folder, monkeypatch, capsys):  # noqa: ARG001
    """The command line, in which a command has a fault that quotes a row."""

    def begin(*arguments):
        monkeypatch.setattr(sys, "argv", ["fedgauge", *arguments])
        monkeypatch.setattr(sys, "stdout", sys.stdout)

        def fail(*_, **__):
            raise KeyError("patient 7, 0.93")

        monkeypatch.setattr("fedgauge.cli.show.print_result", fail)
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr()

    return begin


def test_a_fault_of_ours_is_one_line_without_data_and_shown_whole_where_that_is_asked_for(
    broken, monkeypatch
):
    monkeypatch.delenv("FEDGAUGE_DEBUG", raising=False)
    code, streams = broken("show", "r.json")
    assert code == 1
    assert streams.err.count("\n") == 1
    assert "KeyError" in streams.err
    assert "FEDGAUGE_DEBUG=1" in streams.err
    assert "patient" not in streams.err
    monkeypatch.setenv("FEDGAUGE_DEBUG", "1")
    with pytest.raises(KeyError):
        broken("show", "r.json")


@pytest.mark.usefixtures("folder")
def test_numbers_of_reports_that_no_result_has_are_refused_and_large_counts_are_shown():
    local, none = FIXTURES / "local-oue.json", "it has no number of reports"
    for path, told, numbers in (
        ("r.json", "number of reports", (0, 7, -1)),
        (local, none, (0, -1, None)),
    ):
        saved = json.loads(Path(path).read_text())
        for reports in numbers:
            Path("z.json").write_text(json.dumps(saved | {"reports": reports}))
            assert told in complaint(run("show", "z.json"), code=1)
    saved = json.loads((FIXTURES / "gaussian.json").read_text())
    saved["slices"][0]["counts"][0][1] = 2**62
    Path("z.json").write_text(json.dumps(saved))
    done = run("show", "z.json")
    assert done.exit_code in (0, 2), done.output


@pytest.mark.usefixtures("folder")
def test_looks_may_be_of_the_year_1():
    shutil.copy("r.json", "looks/0001-01-01.json")
    Path("looks/2026-01-01.json").unlink()
    shutil.copy(FIXTURES / "exact-logit.json", "looks/9999-12-31.json")
    for out in ("t.html", "t.json", "t.csv"):
        done = run("trend", "looks", "-o", out)
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("dot", [".", " . ", '"."', "'\t.'"])
@pytest.mark.parametrize("around", ["%s = 1", "[%s]", "[[%s]]", "x = {%s = 1}"])
def test_a_key_of_many_parts_is_refused_unread(around, dot):
    """One of 40 kB took gigabytes, and minutes."""
    edge = dot.strip(" .\t")[:1]
    key = edge + dot.join("a" * 3000) + edge
    with pytest.raises(PlanError, match="a key in it has too many parts"):
        fg.EvaluationPlan.from_toml(f"{around % key}\n")
    refused(SiteError, "a key in it has too many parts", SiteFile.from_text, f"{around % key}\n")


@pytest.mark.parametrize("width", [5e-324, 1e-300, 1e-18])
def test_noise_next_to_nothing_protects_nothing(width):
    assert skellam_delta(1.0, means=[width] * 3) == 1.0
    with suppress(PlanError):  # it takes too long to say so
        assert gaussian_delta(1.0, sigma2s=[width] * 3, parties=1) == 1.0


DAMAGED = [
    b"",
    b"{}",
    b"\xff" * 30,
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b"9" * 10_000,
    b"1e999999",
    b"\xdd\xff\xff\xff\xff",
    b"\x91" * 5000,
    b"a = " + b"[" * 5000,
    b"a = " + b"9" * 5000,
    b"a." * 2000 + b"a = 1",
]


@pytest.mark.parametrize("data", DAMAGED, ids=range(len(DAMAGED)))
@pytest.mark.parametrize("kind", [kind for kind in READ if kind not in ("target", "ledger")])
def test_damaged_files_are_one_line(folder, kind, data):
    name, commands = READ[kind]
    (folder / name).write_bytes(data)
    if kind == "key":
        (folder / name).chmod(0o600)
    for command in commands:
        done = run_soon(command, name)
        assert done.exit_code in (1, 2), (command, done.output)
        assert done.stderr.count("\n") == 1, (command, done.stderr)


def test_damaged_totals_are_refused():
    from fedgauge.plan.plan import decode_axis, encode_axis
    from fedgauge.vertical.files import RankTotals, Totals

    axis = msgspec.to_builtins(fg.Axis.uniform(2), enc_hook=encode_axis)
    told = {"format": "f", "assignment": "a", "hints": []}
    good = told | {"axis": axis, "by_party": [["AAAA", [1, 2]]]}
    assert msgspec.convert(good, Totals, dec_hook=decode_axis).parties
    for totals in ([], [1], [1, 2, 3], [1, -1], [1, 2**63], [1, 10**40]):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(good | {"by_party": [["AAAA", totals]]}, Totals, dec_hook=decode_axis)
    ranks = told | {"examples": 5, "by_party": [["AAAA", [1, 2, 3], "AAAAAA=="]]}
    assert msgspec.convert(ranks, RankTotals).known.reach.tolist() == [2]
    for facts in ([1, -1, 3], [1, 2**63, 3], [10**40, 1, 3]):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(ranks | {"by_party": [["AAAA", facts, ""]]}, RankTotals)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(ranks | {"examples": 10**40}, RankTotals)
