"""Area Error on real scores against the figures of a paper's published code."""

from pathlib import Path

import pytest
from scripts import load_script

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"the real scores are not at {DATA}")


@pytest.fixture(scope="module")
def cells():
    benchmark = load_script("area_error", "benchmarks")
    peer = benchmark.peer_figures(DATA)
    return [(cell, peer[cell], errors) for cell, errors in benchmark.cells(DATA)]


def test_aligned_and_two_rounds_beat_the_peer_in_every_cell(cells):
    assert len(cells) == 16
    for cell, (roc, pr), errors in cells:
        assert errors["Aligned"][0] <= roc / 2.5, cell
        assert errors["Aligned"][1] < pr, cell
        assert errors["Aligned"][0] < errors["exact quantiles"][0], cell
        assert errors["two rounds"][0] <= 0.3 * roc, cell
        assert errors["two rounds"][1] <= 0.3 * pr, cell


def test_quantile_with_the_peers_early_stop_gives_the_peers_figures(cells):
    # What remains is its evaluation: 10,000 thresholds joined by lines.
    for cell, (roc, pr), errors in cells:
        assert errors["as the peer"][0] == pytest.approx(roc, rel=0.2), cell
        assert errors["as the peer"][1] == pytest.approx(pr, rel=0.1), cell
