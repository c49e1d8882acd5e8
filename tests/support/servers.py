"""A server for SFTP and one for S3 on loopback, each as long as a test lasts."""

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from getpass import getuser
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

HOST = "127.0.0.1"


def make_key(path):
    """A key pair as OpenSSH keeps it; the public part."""
    key = Ed25519PrivateKey.generate()
    path.touch(0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def free_port():
    with socket.socket() as found:
        found.bind((HOST, 0))
        return found.getsockname()[1]


class SftpServer:
    """Debian's sshd with keys, users and a home of its own, in a folder."""

    def __init__(self, folder):
        self.program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        if self.program is None:
            pytest.skip("there is no sshd: apt-get install openssh-server")
        self.folder, self.port = folder, free_port()
        self.files = folder / "files"
        self.home = folder / "home"
        for made in (self.files, self.home, self.home / ".ssh"):
            made.mkdir(mode=0o700)
        self.known = self.home / ".ssh" / "known_hosts"
        public = make_key(folder / "host_key")
        self.known.write_text(f"[{HOST}]:{self.port} {public}\n")
        (folder / "authorized").write_text(make_key(self.home / ".ssh" / "id_ed25519"))
        (folder / "sshd_config").write_text(
            f"Port {self.port}\nListenAddress {HOST}\nHostKey {folder}/host_key\nPidFile none\n"
            f"AuthorizedKeysFile {folder}/authorized\nStrictModes no\nUsePAM no\n"
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            "Subsystem sftp internal-sftp\n"
        )
        self.process = None

    @property
    def address(self):
        return f"sftp://{getuser()}@{HOST}:{self.port}{self.files}"

    def begin(self):
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # sshd insists on it
        with (self.folder / "log").open("ab") as log:
            arguments = [self.program, "-D", "-e", "-f", str(self.folder / "sshd_config")]
            self.process = subprocess.Popen(arguments, stdout=log, stderr=log, cwd=self.folder)
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection((HOST, self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.end()
                    pytest.skip(f"sshd did not begin: {(self.folder / 'log').read_text()[-300:]}")
                time.sleep(0.02)

    def end(self):
        """The server, and the processes it made for its connections."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        mine = children.read_text().split() if children.exists() else []
        self.process.terminate()
        self.process.wait(10)
        for child in mine:
            try:
                os.kill(int(child), 15)
            except ProcessLookupError:
                continue


@contextmanager
def sftp_server(folder):
    server = SftpServer(folder)
    server.begin()
    try:
        yield server
    finally:
        server.end()


@contextmanager
def s3_server():
    """The address of moto's server."""
    moto = pytest.importorskip("moto.server", reason="there is no moto: pip install moto[s3]")
    server = moto.ThreadedMotoServer(ip_address=HOST, port=0, verbose=False)
    server.start()
    try:
        yield "http://{}:{}".format(*server.get_host_and_port())
    finally:
        server.stop()
