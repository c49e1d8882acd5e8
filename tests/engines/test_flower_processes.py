"""The Flower engine in Flower's own processes: one simulation, one deployment."""

import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from counts import counts_of, pooled_counts

import fedgauge as fg

pytest.importorskip("flwr", reason="Flower is not installed")
pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="finds its processes by Linux's /proc"
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower-app"
DEPLOYED = Path(__file__).parent / "flower_apps" / "deployed"
BIN = Path(sys.executable).parent
NODES = 4
DOOMED = 1
PATIENCE = 120  # seconds that a step may take on a busy machine


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
        """Start a command in a process group of its own, with its output in a file."""
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

    def run(self, name, *command):
        """Run a command to its end; what it said."""
        process = self.start(name, *command)
        assert process.wait(PATIENCE) == 0, self.said(name)
        return self.said(name)

    def said(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

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
        """End all of them, politely first."""
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
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def commands(section):
    """The commands in a section of the example's README."""
    text = (EXAMPLE / "README.md").read_text()
    (part,) = re.findall(rf"\n## {section}\n(.*?)(?=\n## |\Z)", text, flags=re.DOTALL)
    lines = "\n".join(re.findall(r"```sh\n(.*?)```", part, flags=re.DOTALL))
    return lines.replace("\\\n", " ").splitlines()


# Simulation


def test_the_examples_simulation_of_twenty_nodes(processes, tmp_path):
    app = tmp_path / "app"
    shutil.copytree(EXAMPLE, app, ignore=shutil.ignore_patterns("results", "deployment"))
    (command,) = (line for line in commands("Simulate it") if line.startswith("flwr run"))
    assert "num-supernodes=20" in command
    (port,) = free_ports(1)
    processes.env |= {"FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(port)}
    said = processes.run("flwr", "bash", "-c", f"cd app && exec {command}")
    result = fg.Evaluation.from_json(app / "results" / "result.json")
    assert result.clients == 20, said
    assert result.privacy.claim == "simulated"
    assert result.privacy.epsilon == 1.0
    assert 0.75 < result.roc_auc.value < 0.9
    assert {path.name for path in (app / "results").iterdir()} == {
        "pr.png",
        "result.json",
        "roc.png",
    }
    assert "Received 20 results and 0 failures" in said


# Deployment


class Deployment:
    """A SuperLink with TLS that knows its nodes, made by the example's script."""

    def __init__(self, processes):
        self.processes = processes
        self.folder = processes.folder / "deployment"
        self.port, *self.node_ports = free_ports(NODES + 3)
        processes.run(
            "make",
            sys.executable,
            EXAMPLE / "make_deployment.py",
            self.folder,
            f"--nodes={NODES + 1}",
            f"--port={self.port}",
        )
        shutil.copytree(self.folder / "flwr", processes.home)
        self._drop_the_last_site()

    def _drop_the_last_site(self):
        """The last node has keys, and nobody knows them."""
        for path in [self.folder / "coordinator", *self.folder.glob("site-*")]:
            file = path / "site.toml"
            block = rf'\n\[\[peers\]\]\nname = "hospital-{NODES}"\nkey = "[^"]+"\n'
            file.write_text(re.sub(block, "", file.read_text()))

    def start_superlink(self):
        self.processes.start(
            "superlink",
            "flower-superlink",
            f"--ssl-ca-certfile={self.folder}/ca.crt",
            f"--ssl-certfile={self.folder}/server.crt",
            f"--ssl-keyfile={self.folder}/server.key",
            "--enable-supernode-auth",
            f"--port={self.port}",
            FEDGAUGE_SITE=str(self.folder / "coordinator" / "site.toml"),
        )
        trust = ssl.create_default_context(cafile=self.folder / "ca.crt")
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                urllib.request.urlopen(f"https://127.0.0.1:{self.port}/health", context=trust)
                return
            except OSError:
                assert time.monotonic() < deadline, self.processes.said("superlink")
                time.sleep(0.3)

    def register(self):
        registrations = [
            self.processes.start(
                f"register-{node}",
                "flwr",
                "supernode",
                "register",
                self.folder / f"node-{node}.pub",
            )
            for node in range(NODES)
        ]
        for node, process in enumerate(registrations):
            assert process.wait(PATIENCE) == 0, self.processes.said(f"register-{node}")

    def start_node(self, name, place, *options, config=""):
        site = self.folder / f"site-{place}" / "site.toml"
        return self.processes.start(
            name,
            "flower-supernode",
            f"--superlink=127.0.0.1:{self.port}",
            f"--port={self.node_ports.pop()}",
            f'--node-config=partition-id={place} fedgauge-site="{site}"{config}',
            *options,
        )

    def secure(self, place):
        return (
            f"--root-certificates={self.folder}/ca.crt",
            f"--auth-supernode-private-key={self.folder}/node-{place}.key",
        )


def test_a_deployment_in_which_a_node_is_killed(processes):
    deployment = Deployment(processes)
    deployment.start_superlink()
    deployment.register()
    nodes = [
        deployment.start_node(
            f"node-{place}",
            place,
            *deployment.secure(place),
            config=" dies=true" if place == DOOMED else "",
        )
        for place in range(NODES)
    ]
    stranger = deployment.start_node(
        "stranger", NODES, *deployment.secure(NODES), "--max-retries=1"
    )
    plaintext = deployment.start_node("plaintext", 0, "--insecure", "--max-retries=1")

    out = processes.folder / "result.json"
    processes.start(
        "run", "flwr", "run", DEPLOYED, "deployment", "--stream", "--run-config", f'out="{out}"'
    )
    assert stranger.wait(PATIENCE) != 0
    assert "Failed to activate SuperNode" in processes.said("stranger")
    assert plaintext.wait(PATIENCE) != 0
    assert "Server disconnected without sending a response" in processes.said("plaintext")
    with pytest.raises(OSError, match=r"Remote end closed|reset by peer"):
        urllib.request.urlopen(f"http://127.0.0.1:{deployment.port}/health")

    deadline = time.monotonic() + 2 * PATIENCE
    while not out.exists():
        assert time.monotonic() < deadline, processes.said("run") + processes.said("superlink")
        time.sleep(0.5)
    assert nodes[DOOMED].wait(PATIENCE) == -signal.SIGKILL
    assert all(node.poll() is None for node in nodes if node is not nodes[DOOMED])

    sys.path.insert(0, str(DEPLOYED))
    try:
        from deployed import load_rows
    finally:
        sys.path.remove(str(DEPLOYED))
    result = fg.Evaluation.from_json(out)
    rows = {place: load_rows(place) for place in range(NODES) if place != DOOMED}
    assert np.array_equal(counts_of(result), pooled_counts(result.record.plan, rows))
    assert result.clients == NODES - 1
    assert result.privacy.claim == "enforced"
