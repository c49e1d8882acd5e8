"""The Flower engine in Flower's own processes: one simulation, one deployment. What Flower logs
changes with its version and with the load of the machine: nothing here depends on it. What counts
is in fedgauge's own files, in which processes live, and in what a port answers. Ports are free when
they are chosen and may be taken a moment later, and Flower's commands fail now and then on a busy
machine: they are tried again, a few times."""

import http.client
import http.server
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from counts import counts_of, pooled_counts

import fedgauge as fg
from fedgauge.site import Site

pytest.importorskip("flwr", reason="Flower is not installed")
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="finds its processes by Linux's /proc"
)
EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-app"
README = (EXAMPLE / "README.md").read_text()
DEPLOYED = Path(__file__).parent / "flower_apps" / "deployed"
BIN = Path(sys.executable).parent
NODES = 4
DOOMED = 1
PATIENCE = 300  # seconds that a step may take on a busy machine
TRIES = 3


class Processes:
    """Flower's processes and all that they start, known by their FLWR_HOME."""

    def __init__(self, folder):
        self.folder = folder
        self.home = folder / "flwr"
        self.env = os.environ | {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self._started = []

    def start(self, name, *command, **env):
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [shutil.which(command[0], path=self.env["PATH"]), *map(str, command[1:])],
                cwd=self.folder,
                env=self.env | env,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def all_said(self):
        """For whoever reads of a failure."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')}" for path in logs)

    def alive(self):
        """Processes that were started here, or by one that was: by group or environment."""
        mark = f"FLWR_HOME={self.home}".encode()
        groups = {process.pid for process in self._started}
        found = set()
        for path in Path("/proc").glob("[0-9]*"):
            try:
                # state, parent, group; the name before them may hold spaces
                state, _, group = (path / "stat").read_text().rpartition(")")[2].split()[:3]
                ours = mark in (path / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if state != "Z" and (ours or int(group) in groups):
                found.add(int(path.name))
        return found

    def end(self):
        """End all of them by their ids, politely first."""
        for how in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL):
            for pid in self.alive():
                try:
                    os.kill(pid, how)
                except ProcessLookupError:
                    continue
            deadline = time.monotonic() + 10
            while self.alive() and time.monotonic() < deadline:
                time.sleep(0.2)
        for process in self._started:
            process.wait(10)


@pytest.fixture
def processes(tmp_path):
    """What is started with it is gone afterwards."""
    processes = Processes(tmp_path)
    try:
        yield processes
    finally:
        processes.end()
    assert not processes.alive()


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def without_numbers(text):
    """Noise is fresh in every run, words are not."""
    return re.sub(r"[\d.,]*\d", "0", text)


def commands(section):
    (part,) = re.findall(rf"\n## {section}\n(.*?)(?=\n## |\Z)", README, flags=re.DOTALL)
    lines = "\n".join(re.findall(r"```sh\n(.*?)```", part, flags=re.DOTALL))
    return lines.replace("\\\n", " ").splitlines()


@pytest.fixture
def app(tmp_path):
    left_out = shutil.ignore_patterns("results", "deployment", "simulation.log")
    return Path(shutil.copytree(EXAMPLE, tmp_path / "app", ignore=left_out))


def simulate(processes, name):
    """The example's commands for a simulation, as they are written there."""
    script = "\n".join(["cd app", *commands("Simulate it")])
    assert "num-supernodes=20" in script
    return processes.start(name, "bash", "-c", script)


def test_the_examples_simulation_of_twenty_nodes(processes, app):
    out = app / "results" / "result.json"
    for number in range(TRIES):
        run = simulate(processes, f"run-{number}")
        with suppress(subprocess.TimeoutExpired):
            run.wait(PATIENCE)
        if out.exists():
            break
        processes.end()
    assert out.exists(), processes.all_said()
    result = fg.Evaluation.from_json(out)
    assert result.clients == 20
    assert result.privacy.claim == "simulated"
    assert result.privacy.epsilon == 1.0
    assert 0.75 < result.roc_auc.value < 0.9
    (shown,) = re.findall(r"```text\n(.*?)```", README, flags=re.DOTALL)
    assert [without_numbers(line) for line in shown.splitlines()[:-1]] == [
        without_numbers(line) for line in str(result).splitlines()
    ]
    assert result.plan.digest[:8] in shown
    made = "decision.png pr.png reliability.png report.html result.json roc.png"
    assert sorted(path.name for path in (app / "results").iterdir()) == made.split()


class Stranger(http.server.BaseHTTPRequestHandler):
    """Somebody else's server on the machine, which says to everybody that it is well."""

    asked: ClassVar[list[str]] = []

    def do_GET(self):
        self.asked.append(f"{self.command} {self.path}")
        self.send_response(200)
        self.end_headers()

    do_HEAD = do_POST = do_GET  # noqa: N815

    def log_message(self, *_):
        """Nothing."""


def test_a_simulation_does_not_run_on_somebody_elses_server(processes, app):
    Stranger.asked.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        # Free when it was chosen, and taken a moment later.
        (app / "free_port.py").write_text(f"print({server.server_address[1]})")
        run = simulate(processes, "run")
        run.wait(PATIENCE)
        server.shutdown()
    assert "in use" in (app / "simulation.log").read_text()
    assert Stranger.asked == []
    assert not (app / "results").exists()


def test_the_examples_commands_name_no_port_and_end_what_they_started():
    told = "\n".join([*commands("Simulate it"), *commands("Deploy it on one machine")])
    assert re.findall(r"(?:--port|127\.0\.0\.1)[= :](\d+)", told) == []
    ended = re.findall(r"^(?:kill|wait) (.*)$", told, re.MULTILINE)
    assert set(ended) - {"$superlink", "$started"} == {line for line in ended if "-0 $" in line}


def with_exact_sums(text):
    """A site file that leaves exact sums of models open, so that the result can be checked."""
    for name, value in {
        "models": '["distributed-dp", "secure-aggregation"]',
        "exact_of_models": "true",
        "exact_dropouts": "true",
        "min_bin_width": "0.0",
        "min_cell": "0",
    }.items():
        text, changed = re.subn(rf"\n{name} = [^#\n]*", f"\n{name} = {value}  ", text)
        assert changed == 1
    return text


class Deployment:
    """A SuperLink with TLS that knows its nodes, made by the example's script."""

    def __init__(self, processes):
        self.processes = processes
        for number in range(TRIES):
            self._make(number)
            if self._start_superlink(number):
                return
        pytest.fail(f"no SuperLink came up.\n{processes.all_said()}")

    def _make(self, number):
        self.folder = self.processes.folder / f"deployment-{number}"
        (self.port,) = free_ports(1)
        made = self.processes.start(
            f"make-{number}",
            sys.executable,
            EXAMPLE / "make_deployment.py",
            self.folder,
            f"--nodes={NODES + 1}",
            f"--port={self.port}",
        )
        assert made.wait(PATIENCE) == 0, self.processes.all_said()
        shutil.rmtree(self.processes.home, ignore_errors=True)
        shutil.copytree(self.folder / "flwr", self.processes.home)
        # The last node has keys, and nobody knows them.
        for path in [self.folder / "coordinator", *self.folder.glob("site-*")]:
            file = path / "site.toml"
            block = rf'\n\[\[peers\]\]\nname = "hospital-{NODES}"\nkey = "[^"]+"\n'
            file.write_text(with_exact_sums(re.sub(block, "", file.read_text())))

    def _start_superlink(self, number):
        """Whether it answers before it ends or patience does."""
        link = self.processes.start(
            f"superlink-{number}",
            "flower-superlink",
            f"--ssl-ca-certfile={self.folder}/ca.crt",
            f"--ssl-certfile={self.folder}/server.crt",
            f"--ssl-keyfile={self.folder}/server.key",
            "--enable-supernode-auth",
            f"--port={self.port}",
            FEDGAUGE_SITE=str(self.folder / "coordinator" / "site.toml"),
        )
        deadline = time.monotonic() + PATIENCE
        while link.poll() is None and time.monotonic() < deadline:
            if self.is_healthy():
                return True
            time.sleep(0.3)
        self.processes.end()
        return False

    def is_healthy(self):
        trust = ssl.create_default_context(cafile=self.folder / "ca.crt")
        address = f"https://127.0.0.1:{self.port}/health"
        try:
            with urllib.request.urlopen(address, context=trust, timeout=10):
                return True
        except (OSError, http.client.HTTPException):
            return False

    def answer_in_plaintext(self):
        """What comes back to who speaks without TLS."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=30) as plain:
                plain.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                return plain.recv(1000)
        except ConnectionError:
            return b""

    def register(self):
        """Tell the SuperLink of the nodes. Whether it took them shows when they join."""
        left = range(NODES)
        for number in range(TRIES):
            asked = {
                place: self.processes.start(
                    f"register-{place}-{number}",
                    "flwr",
                    "supernode",
                    "register",
                    self.folder / f"node-{place}.pub",
                )
                for place in left
            }
            left = [place for place, process in asked.items() if process.wait(PATIENCE) != 0]

    def start_node(self, name, place, *options, config=""):
        site = self.folder / f"site-{place}" / "site.toml"
        (port,) = free_ports(1)
        return self.processes.start(
            name,
            "flower-supernode",
            f"--superlink=127.0.0.1:{self.port}",
            f"--port={port}",
            f'--node-config=partition-id={place} fedgauge-site="{site}"{config}',
            *options,
        )

    def start_member(self, place, number=0):
        """A node that is known; one of them dies when it is asked to score."""
        config = " dies=true" if place == DOOMED else ""
        return self.start_node(f"node-{place}-{number}", place, *self.secure(place), config=config)

    def secure(self, place):
        return (
            f"--root-certificates={self.folder}/ca.crt",
            f"--auth-supernode-private-key={self.folder}/node-{place}.key",
        )

    def ledger(self, place):
        return Site.from_toml(self.folder / f"site-{place}" / "site.toml").ledger

    def evaluate(self, nodes):
        out = self.processes.folder / "result.json"
        for number in range(TRIES):
            waited_for = sum(node.poll() is None for node in nodes)
            config = f'out="{out}" nodes={waited_for}'
            run = self.processes.start(
                *(f"run-{number}", "flwr", "run", DEPLOYED, "deployment", "--stream"),
                *("--run-config", config),
            )
            deadline = time.monotonic() + PATIENCE
            while run.poll() is None and time.monotonic() < deadline and not out.exists():
                for place, node in enumerate(nodes):
                    if node.poll() not in (None, -signal.SIGKILL):
                        nodes[place] = self.start_member(place, number + 1)
                time.sleep(0.5)
            if out.exists():
                return fg.Evaluation.from_json(out)
        pytest.fail(f"no result.\n{self.processes.all_said()}")


def rows_of(place):
    """Labels and scores of a node of the deployed app."""
    sys.path.insert(0, str(DEPLOYED))
    try:
        from deployed import load_rows
    finally:
        sys.path.remove(str(DEPLOYED))
    return load_rows(place)


def test_a_deployment_in_which_a_node_is_killed(processes):
    deployment = Deployment(processes)
    deployment.register()
    nodes = [deployment.start_member(place) for place in range(NODES)]
    stranger = deployment.start_node(
        "stranger", NODES, *deployment.secure(NODES), "--max-retries=1"
    )
    plaintext = deployment.start_node("plaintext", 0, "--insecure", "--max-retries=1")
    result = deployment.evaluate(nodes)
    assert nodes[DOOMED].wait(PATIENCE) == -signal.SIGKILL
    assert all(node.poll() is None for node in nodes if node is not nodes[DOOMED])
    rows = {place: rows_of(place) for place in range(NODES) if place != DOOMED}
    assert np.array_equal(counts_of(result), pooled_counts(result.record.plan, rows))
    assert result.clients == NODES - 1
    assert result.privacy.claim == "enforced"
    assert stranger.wait(PATIENCE) != 0
    assert plaintext.wait(PATIENCE) != 0
    assert b" 200 " not in deployment.answer_in_plaintext()
    assert deployment.is_healthy()
    asked = {place for place in range(NODES + 1) if deployment.ledger(place).entries()}
    assert asked == set(range(NODES))
