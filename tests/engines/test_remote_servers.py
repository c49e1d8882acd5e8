"""Whole evaluations through servers that run: Debian's sshd, and moto's S3."""

import re
import socket
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest
from agents import MONDAY, WEEK, Hospitals
from consortium import A
from exchange import CLIENTS, EXACT, NOISY
from refusals import refused

pytest.importorskip("fsspec", reason="there is no fsspec: pip install 'fedgauge[remote]'")

from buckets import THREE, RemoteWorld
from servers import s3_server, sftp_server

import fedgauge as fg
from fedgauge.engines.folder import open_folder
from fedgauge.engines.remote_folder import _forget
from fedgauge.secagg import Stage

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")
SECRET = "not-a-real-key"  # noqa: S105


@pytest.fixture
def sftp(tmp_path, monkeypatch):
    pytest.importorskip("paramiko", reason="there is no paramiko: pip install paramiko")
    with sftp_server(tmp_path) as server:
        monkeypatch.setenv("HOME", str(server.home))
        monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
        yield server
        _forget("sftp://")


@pytest.fixture(scope="module")
def s3():
    s3fs = pytest.importorskip("s3fs", reason="there is no s3fs: pip install s3fs")
    with s3_server() as address, pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL", address)
        environment.setenv("AWS_ACCESS_KEY_ID", "tester")
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        _forget("s3://")
        s3fs.S3FileSystem().mkdir("shared")
        yield "s3://shared"
        _forget("s3://")


@pytest.fixture(params=["sftp", "s3"])
def address(request):
    """A folder that is not there yet."""
    made = request.getfixturevalue(request.param)
    within = made if request.param == "s3" else made.address
    return f"{within}/{request.function.__name__}"


@pytest.fixture
def world(folder):
    made = RemoteWorld.make(folder, THREE)
    made.write_data()
    return made


def test_a_whole_evaluation(world, address):
    world.run = address
    world.start(world.run, EXACT)
    for stage in Stage:
        for name in THREE:
            world.answer(world.run, name, stage, CLIENTS[name])
        assert world.exchange(world.run, A).progress().missing == ()
        result = world.advance(world.run)
    world.assert_right(result)
    assert world.exchange(world.run, A).progress().finished


@pytest.mark.parametrize("weeks", [1, pytest.param(26, marks=pytest.mark.slow)])
def test_weeks_of_agents(folder, address, monkeypatch, weeks):
    """Every result is in a folder of its own, and every week is charged once."""
    hospitals = Hospitals.declared(folder, NOISY)
    hospitals.enter(monkeypatch)
    hospitals.shared = address
    results = {}
    for week in range(weeks):
        hospitals.clock = MONDAY + week * WEEK
        hospitals.export_all()
        hospitals.agents.clear()  # all are started again
        _forget(address)
        finished = hospitals.until_finished()
        results[finished.place] = finished.result.clients
    assert [*results.values()] == [3] * weeks
    assert open_folder(address).folders() == sorted(results)
    for name in hospitals.names:
        balances = hospitals.site(name).ledger.balances()
        assert [each.spent.epsilon for each in balances] == [1.0] * weeks
        assert not any(each.reserved.epsilon for each in balances)


def test_a_folder(address):
    folder = open_folder(address)
    assert folder.missing() is not None
    assert folder.names() == folder.folders() == []
    assert not folder.holds("a.fgx")
    refused(fg.ExchangeError, "there is no file", folder.read, "a.fgx", 10)
    folder.write_new("a.fgx", b"one")
    assert folder.missing() is None
    with pytest.raises(FileExistsError):
        folder.write_new("a.fgx", b"two")
    assert folder.write("a.fgx", b"one") == "a.fgx"
    other = folder.write("a.fgx", b"two")
    assert folder.write("a.fgx", b"two") == other != "a.fgx"
    assert [*folder.versions("a.fgx", 10)] == [("a.fgx", b"one"), (other, b"two")]
    assert folder.write("empty.fgx", b"") == "empty.fgx"
    assert folder.read("empty.fgx", 0) == b""
    refused(fg.ExchangeError, "larger than 2 bytes", folder.read, "a.fgx", 2)
    within = folder.folder("second")
    within.write("b.json", b"three")
    assert folder.folders() == ["second"]
    assert within.names() == ["b.json"]
    assert folder.names("*.fgx") == sorted(["a.fgx", "empty.fgx", other])
    refused(fg.ExchangeError, "is not a file but a folder", folder.read, "second", 10)


def test_who_creates_first_wins(address, monkeypatch):
    """Both saw that there was nothing: the server decides, not the look before."""
    folder = open_folder(address)
    folder.write_new("a.fgx", b"one")
    look = type(folder)._size
    seen = iter([None])
    monkeypatch.setattr(type(folder), "_size", lambda *a: next(seen, ...) and look(*a))
    with pytest.raises(FileExistsError):
        folder.write_new("a.fgx", b"two")
    assert folder.read("a.fgx", 10) == b"one"


def test_the_page_can_be_followed(world, s3, shell):
    assert s3 == "s3://shared"
    EXACT.save(world.folder / "plan.toml")
    page = Path(__file__).parents[2] / "docs" / "remote-folders.md"
    (script,) = re.findall(r"```sh\n(.*?)```", page.read_text(), flags=re.DOTALL)
    done = shell(script, world.folder, COLUMNS="120")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Round 1 of 5, join: 0 of 3 answered") == 2
    assert "s3://shared/run-1" in done.stdout
    assert done.stderr == ""


def test_a_server_that_is_not_known_is_not_trusted(sftp, capfd):
    known = sftp.known.read_text()
    sftp.known.write_text("")
    folder = open_folder(sftp.address)
    refused(fg.ExchangeError, r"cannot list .*\(SSHException\)", folder.names)
    sftp.known.write_text(known)
    assert folder.names() == []
    assert capfd.readouterr().err == ""


def test_what_a_driver_logs_is_not_printed(world, commands):
    """It would be, with a traceback, where nobody says what becomes of logs."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with suppress(OSError):
                while True:
                    server.accept()[0].close()

        Thread(target=serve, daemon=True).start()
        address = f"sftp://root@127.0.0.1:{server.getsockname()[1]}/run"
        site = str(world.site_file(A))
        (done,) = commands({"arguments": ["exchange", "status", address, "--site", site]})
        server.shutdown(socket.SHUT_RDWR)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"fedgauge: cannot read {address}/")
    assert done.err.count("\n") == 1


def test_a_server_that_was_started_again(sftp):
    folder = open_folder(sftp.address)
    folder.write("a.fgx", b"one")
    sftp.end()
    refused(fg.ExchangeError, "cannot list", folder.names)
    refused(fg.ExchangeError, "cannot list", folder.names)
    sftp.begin()
    assert folder.names() == ["a.fgx"]


def test_a_bucket_is_not_made_by_mistake(s3):
    folder = open_folder("s3://not-there/weekly")
    assert "there is no folder" in folder.missing()
    refused(fg.ExchangeError, "no folder or bucket", folder.write_new, "a.fgx", b"one")
    bucket = open_folder("s3://not-there")
    refused(fg.ExchangeError, "no folder or bucket", bucket.write_new, "a.fgx", b"one")
    assert bucket.missing() is not None
    assert open_folder(s3).missing() is None
