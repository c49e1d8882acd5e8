"""Make what a deployment on one machine needs: certificates, node keys, fedgauge sites.

    python make_deployment.py FOLDER [--nodes 5] --port PORT

In reality each party makes its own keys at home and tells others the public ones only.
"""

import argparse
import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fedgauge.keys import key_to_text
from fedgauge.site import add_trust, create_site

DAYS = 30


def main() -> None:
    """Read the arguments and make everything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=5)
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    if folder.exists():
        parser.error(f"{folder} exists. Remove it, or name another folder.")
    folder.mkdir(mode=0o700, parents=True)
    make_certificates(folder)
    make_node_keys(folder, arguments.nodes)
    make_sites(folder, arguments.nodes)
    make_connection(folder, arguments.port)
    print(f"Made certificates, {arguments.nodes} node keys and sites in {folder}")  # noqa: T201


def make_certificates(folder: Path) -> None:
    """An authority of our own, and the SuperLink's certificate for this machine."""
    ca_key = ec.generate_private_key(ec.SECP384R1())
    ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hospitals test CA")])
    ca = certificate(ca_name, ca_name, ca_key.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), critical=True
    )
    key = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    here = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    server = certificate(name, ca_name, key.public_key()).add_extension(
        x509.SubjectAlternativeName(here), critical=False
    )
    for owner, made in (("ca", ca), ("server", server)):
        signed = made.sign(ca_key, hashes.SHA256())
        (folder / f"{owner}.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    save_private(folder / "server.key", key, serialization.PrivateFormat.PKCS8)


def certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    """A certificate to be signed."""
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=DAYS))
    )


def make_node_keys(folder: Path, nodes: int) -> None:
    """A key for each SuperNode, by which the SuperLink knows it."""
    for node in range(nodes):
        key = ec.generate_private_key(ec.SECP384R1())
        save_private(folder / f"node-{node}.key", key, serialization.PrivateFormat.OpenSSH)
        public = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        (folder / f"node-{node}.pub").write_bytes(public)


def save_private(
    path: Path, key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat
) -> None:
    """Write a private key that only its owner can read."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    )


def make_sites(folder: Path, nodes: int) -> None:
    """A fedgauge site for each hospital and the coordinator, with whom each trusts."""
    coordinator = create_site(folder / "coordinator", name="coordinator", dataset="none")
    hospitals = [
        create_site(folder / f"site-{node}", name=f"hospital-{node}", dataset="demo-2026")
        for node in range(nodes)
    ]
    for site in (coordinator, *hospitals):
        for peer in hospitals:
            if peer is not site:
                add_trust(site.path, "peer", peer.name, key_to_text(peer.key.public))
    for site in hospitals:
        key = key_to_text(coordinator.key.public)
        add_trust(site.path, "coordinator", coordinator.name, key)


def make_connection(folder: Path, port: int) -> None:
    """What the `flwr` command must know about the SuperLink."""
    home = folder / "flwr"
    home.mkdir()
    (home / "config.toml").write_text(
        "[superlink]\n"
        'default = "deployment"\n\n'
        "[superlink.deployment]\n"
        f'address = "127.0.0.1:{port}"\n'
        f'root-certificates = "{folder / "ca.crt"}"\n'
    )


if __name__ == "__main__":
    main()
