"""Benchmarks and studies, which no other test runs, still find what they import."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted([*ROOT.glob("benchmarks/*.py"), *ROOT.glob("studies/*.py")])
IMPORTED = {
    "cell_log.py",
    "error_series.py",
    "forecast_worlds.py",
    "log_slopes.py",
    "score_scales.py",
    "score_worlds.py",
    "sun_drawing.py",
    "sun_histograms.py",
    "sun_tables.py",
    "sun_worlds.py",
}


def test_there_are_scripts():
    assert len(SCRIPTS) > 10


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_a_script_can_be_loaded(script):
    names = runpy.run_path(str(script), run_name="loaded")
    assert script.name in IMPORTED or callable(names["main"])
