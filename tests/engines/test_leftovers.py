"""A command that was killed leaves no temporary file behind, once it was run again."""

import itertools
import os
import shutil

import numpy as np
import pytest
from consortium import COORDINATOR, A
from exchange import STEPS, copied
from forks import KILLED, fast_folder
from sites import open_policy

import fedgauge as fg
from fedgauge import storage
from fedgauge.secagg import Stage
from fedgauge.site import create_site
from fedgauge.storage import read_regular, write_whole, written_whole

AXIS = fg.Axis.uniform(8, outside="clip")


def hidden(folder):
    """Files that begin with a dot, but for locks: temporary ones."""
    return [path for path in folder.rglob(".*") if path.suffix != ".lock" and path.name != ".lock"]


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


@pytest.fixture(scope="module")
def place():
    """Rows, plans, a site and a result, to be copied for each attempt."""
    with fast_folder() as folder:
        random = np.random.default_rng(1)
        scores = random.random(60)
        labels = random.random(60) < scores
        rows = "".join(f"{y:d},{p:.6f}\n" for y, p in zip(labels, scores, strict=True))
        (folder / "rows.csv").write_text(f"y,p\n{rows}")
        fg.EvaluationPlan.for_reports(AXIS, fg.LocalDP(0.5)).save(folder / "plan.toml")
        create_site(folder / "site", name="a", dataset="d", policy=open_policy())
        fg.evaluate({"a": (labels, scores)}).to_json(folder / "r.json")
        fg.evaluate({"a": (labels, scores)}).calibrator().to_json(folder / "map.json")
        (folder / "out").mkdir()
        yield folder


def die_at_every_step(commands, place, *arguments):
    """Copies of a folder in which a command was killed before its n-th change of a file."""
    for last in itertools.count(1):
        with fast_folder() as above:
            folder = above / "copy"
            shutil.copytree(place, folder)
            request = {"arguments": [each.format(folder) for each in arguments]}
            (done,) = commands(request | {"last": last})
            if done.code != KILLED:
                assert done.code == 0, done.err
                assert hidden(folder) == []
                assert last > 1  # it was killed at all
                return
            yield folder, request


COLUMNS = ["--label", "y", "--score", "p"]
ENCODE = ["encode", "{}/plan.toml", "{}/rows.csv", *COLUMNS, "-o", "{}/out/a.fgr"]
APPLY = ["apply", "{}/map.json", "{}/rows.csv", *COLUMNS[2:], "--replace", "-o", "{}/out/b.csv"]
COMMANDS = {
    "encode": ENCODE,
    "encode at a site": [*ENCODE, "--site", "{}/site/site.toml"],
    "evaluate": ["evaluate", "{}/rows.csv", *COLUMNS, "--json", "{}/out/r.json"],
    "report": ["report", "{}/r.json", "-o", "{}/out/r.html"],
    "apply": APPLY,
    "site dataset": ["site", "dataset", "other", "--site", "{}/site/site.toml"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_killed_command_is_cleaned_up_after_by_the_next_one(commands, place, name):
    arguments = COMMANDS[name]
    for folder, request in die_at_every_step(commands, place, *arguments):
        (again,) = commands(request)
        if again.code:  # what it makes is there, and is never made twice
            assert "exists" in again.err
            assert len(files(folder / "out")) == 1
        assert hidden(folder) == [], name


def test_reports_that_were_being_made_have_no_name(commands, place):
    """Rows that were not yet said to have left cannot be fetched, nor are they left behind."""
    arguments = COMMANDS["encode at a site"]
    for folder, _ in die_at_every_step(commands, place, *arguments):
        log = (folder / "site").glob(".*fgr*")
        assert list(log) == []


@pytest.mark.parametrize("stage", [Stage.ADVERTISE, Stage.MASK])
def test_an_exchange_is_cleaned_up(exact_steps, commands, stage):
    for who, verb, step in ((A, STEPS[stage], "answer"), (COORDINATOR, "advance", "advance")):
        for last in itertools.count(1):
            with copied(exact_steps[stage, step]) as world:
                request = {"arguments": world.arguments(who, verb)}
                (done,) = commands(request | {"last": last})
                if done.code == KILLED:
                    (done,) = commands(request)
                    assert done.code == 0 or "waits for" in done.err
                    assert hidden(world.folder) == []
                    continue
                break


@pytest.fixture(params=[storage.replace, write_whole], ids=["replace", "write_whole"])
def write(request):
    return request.param


def die_in(write, path, step):
    """A process that is killed while it writes; what it left."""
    child = os.fork()
    if not child:
        setattr(os, step, lambda *_, **__: os.kill(os.getpid(), 9))
        write(path, b"half")
    os.waitpid(child, 0)
    return hidden(path.parent)


def test_what_a_dead_process_left_goes_and_what_a_live_one_writes_stays(tmp_path, write):
    path = tmp_path / "a[1]*.json"
    (left,) = die_in(write, path, "replace")
    replace, seen = os.replace, []

    def write_meanwhile(*names):
        """Another process writes the same file just before the first is done."""
        if not seen:
            seen.append(hidden(tmp_path))
            write(path, b"second")
        replace(*names)

    os.replace = write_meanwhile
    try:
        write(path, b"first")
    finally:
        os.replace = replace
    assert left not in seen[0]
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_files_of_others_are_left_alone(tmp_path, write):
    path = tmp_path / "r.json"
    (left,) = die_in(write, path, "replace")
    name = left.name.replace("r.json", "s.json")
    mine = [".r.json.original", ".r.json.lock", ".r.json.abcdefgh", name]
    for each in mine:
        (tmp_path / each).write_text("mine")
    base = ".r.json."
    for number, make in enumerate((os.mkdir, os.mkfifo)):
        make(tmp_path / f"{base}abcdefg{number}{left.suffix}")
    (tmp_path / f"{base}abcdefg7{left.suffix}").symlink_to(tmp_path / name)
    before = files(tmp_path)
    write(path, b"new")
    before.remove(left.name)
    assert files(tmp_path) == sorted([*before, "r.json"])


def test_a_temporary_file_that_was_swapped_for_a_link_changes_no_other_file(tmp_path):
    """Who else can write to a folder must not open a private file of whoever writes there."""
    victim, path = tmp_path / "site.key", tmp_path / "r.json"
    victim.write_text("secret")
    victim.chmod(0o600)
    with written_whole(path) as file:
        file.write(b"new")
        (temporary,) = hidden(tmp_path)
        temporary.unlink()
        temporary.symlink_to(victim)
    assert (victim.read_text(), victim.stat().st_mode & 0o777) == ("secret", 0o600)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("other"), os.mkdir])
def test_what_is_swapped_for_a_file_while_it_is_read(tmp_path, monkeypatch, make):
    """It was a file when it was looked at, and is another thing when it is opened."""
    path = tmp_path / "a.fgx"
    (tmp_path / "other").write_bytes(b"private")
    make(path)
    monkeypatch.setattr("fedgauge.storage.kind_of", lambda _: None)
    with pytest.raises(fg.ExchangeError, match=rf"Remove {path}\."):
        read_regular(path, 100, fg.ExchangeError)


def test_a_file_that_grows_while_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "a.fgx"
    path.write_bytes(bytes(100))
    assert len(read_regular(path, 100, fg.ExchangeError)) == 100
    seen = path.stat()
    path.write_bytes(bytes(101))
    monkeypatch.setattr(os, "fstat", lambda _: seen)
    with pytest.raises(fg.ExchangeError, match="larger than 100 bytes"):
        read_regular(path, 100, fg.ExchangeError)


def test_many_writers_at_once(tmp_path, write):
    """None removes what another is about to put in place."""
    path = tmp_path / "r.json"
    children = []
    for number in range(4):
        child = os.fork()
        if not child:
            code = 1
            try:
                for _ in range(100):
                    write(path, bytes([number]) * 1000)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert len(set(path.read_bytes())) == 1
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_without_locks(tmp_path, write, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_):
        raise OSError(95, "Operation not supported")

    path = tmp_path / "r.json"
    (left,) = die_in(write, path, "replace")
    monkeypatch.setattr(fcntl, "flock", refuse)
    write(path, b"new")
    assert path.read_bytes() == b"new"
    assert left.exists()  # nobody can tell whether it is in use
