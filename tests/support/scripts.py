"""Studies and benchmarks as modules, and which of their cells are tested at once."""

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def load_script(name, folder="studies"):
    """A script as a module, under a name that no package has."""
    path = ROOT / folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{name}_of_{folder}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def some_at_once(names, cells, at_once=1, **options):
    """A parametrized test: the first cells at once, the others in `make test-slow`."""
    cells, several = list(cells), not isinstance(names, str)
    rest = [
        pytest.param(*(cell if several else (cell,)), marks=pytest.mark.slow)
        for cell in cells[at_once:]
    ]
    return pytest.mark.parametrize(names, [*cells[:at_once], *rest], **options)
