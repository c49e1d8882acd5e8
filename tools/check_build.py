"""Build the source distribution and the wheel, check both, and try the wheel as a user would.

``make build`` runs it. What was built stays in ``dist/``.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
CONSTRAINTS = ROOT / "constraints.txt"
PACKAGE = ROOT / "src" / "fedgauge"
SOURCES = {
    *("src", "tests", "docs", "studies", "benchmarks", "examples", "tools"),
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile"),
    *("pyproject.toml", "conftest.py", "constraints.txt", ".gitignore", "PKG-INFO"),
}
LARGEST = {".whl": 1_000_000, ".gz": 3_000_000}  # bytes: no data slips in


def main():
    """All steps, a line for each."""
    began = time.perf_counter()
    version = re.search(r'__version__ = "(.+)"', (PACKAGE / "__init__.py").read_text())[1]
    with tempfile.TemporaryDirectory() as folder:
        sdist, wheel = build(Path(folder), version)
        check_wheel(wheel, version)
        check_sdist(sdist, version)
        install_and_try(wheel, Path(folder))
    sizes = ", ".join(f"{path.name} {path.stat().st_size // 1000} kB" for path in (sdist, wheel))
    print(f"Built and checked {sizes} ({time.perf_counter() - began:.0f} s)")


def build(folder, version):
    """Both files. The wheel comes from the source distribution, and equals one from the tree."""
    print("Building the source distribution, and the wheel from it and from the tree")
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    sdist, wheel = (
        DIST / f"fedgauge-{version}.tar.gz",
        DIST / f"fedgauge-{version}-py3-none-any.whl",
    )
    expect(set(DIST.iterdir()) == {sdist, wheel}, f"dist/ must hold {sdist.name} and {wheel.name}")
    same = (folder / wheel.name).read_bytes() == wheel.read_bytes()
    expect(same, "the wheel from the source distribution must equal the one from the tree")
    print("Checking metadata and contents")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    for path in (sdist, wheel):
        size = path.stat().st_size
        expect(size <= LARGEST[path.suffix], f"{path.name} has {size:,} bytes")
    return sdist, wheel


def check_wheel(path, version):
    """The package, its type marker, its license, and nothing else."""
    info = f"fedgauge-{version}.dist-info"
    # A report is made of the middle three, the planner reads tables of scores.
    kinds = (".py", ".html", ".css", ".js", ".json")
    files = [f for f in PACKAGE.rglob("*") if f.suffix in kinds or f.name == "py.typed"]
    package = {f"fedgauge/{file.relative_to(PACKAGE).as_posix()}" for file in files}
    about = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    expected = package | {f"{info}/{name}" for name in about}
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read(f"{info}/METADATA").decode()
    expect("fedgauge/py.typed" in names, "the wheel must have py.typed")
    expect(names == expected, f"the wheel lacks or has too much: {sorted(names ^ expected)}")
    expect(f"\nVersion: {version}\n" in metadata, "the wheel must have the package's version")


def check_sdist(path, version):
    """All that tests and builds need, and nothing else."""
    with tarfile.open(path) as sdist:
        files = [name.removeprefix(f"fedgauge-{version}/") for name in sdist.getnames()]
    made = [name for name in files if re.match(r"docs/(_build|api|auto_examples)/", name)]
    expect(not made, f"the source distribution has pages that make docs makes: {made[:3]}")
    names = {name.split("/")[0] for name in files}
    expect(names == SOURCES, f"the source distribution lacks or has too much: {names ^ SOURCES}")


def install_and_try(wheel, folder):
    """The wheel and its dependencies in a clean environment, away from the source."""
    print("Installing the wheel in a clean environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env")
    python = folder / "env" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    run(*pip, "install", "--no-compile", "--constraint", CONSTRAINTS, wheel)
    run(*pip, "check")
    where = run(python, "-I", "-c", "import fedgauge; print(fedgauge.__file__)", cwd=folder)
    expect(where.startswith(str(folder / "env")), f"not the wheel was imported but {where}")
    print("Trying it")
    print(run(python, "-I", ROOT / "tools" / "smoke.py", cwd=folder), end="")


def run(*command, cwd=ROOT):
    """A command without its output, unless it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment | {"PIP_CONSTRAINT": str(CONSTRAINTS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    expect(done.returncode == 0, f"failed: {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def expect(holds, otherwise):
    """End with a reason unless something holds."""
    if not holds:
        sys.exit(otherwise)


if __name__ == "__main__":
    main()
