"""A small, seeded run of studies/vertical.py: tables of Sun et al. 2022 come out. A deviation of
100 runs strays by 10% or less two times in three, and the paper's is one too: a factor of 1.5 is
far from chance, below one in a thousand."""

import math

import numpy as np
import pytest
from scipy import stats
from scripts import load_script

import sun_tables
import sun_worlds
from runner import Found

study = load_script("vertical")


def cell_of(**facts):
    """The one cell of the study with these facts."""
    (cell,) = (
        cell
        for cell in study.CELLS
        if all(getattr(cell, name) == value for name, value in facts.items())
    )
    return cell


def measure(cell, runs=100):
    return study.run(cell, np.random.default_rng(3), runs)


@pytest.mark.parametrize("split", ["iid", "apart"])
@pytest.mark.parametrize("mechanism", ["laplace-local", "adaptive"])
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_deviations_of_pairs_are_those_printed(mechanism, split, epsilon):
    cell = cell_of(table="7", mechanism=mechanism, split=split, parties=458, epsilon=epsilon)
    found = measure(cell)
    assert 1 / 1.3 < found["predicted"] / cell.paper < 1.3
    assert 1 / 1.5 < found["measured"] / cell.paper < 1.5


def test_positives_that_are_known_are_those_of_the_second_table():
    cell = cell_of(table="2", mechanism="laplace-local", split="apart", parties=10, epsilon=1.0)
    found = measure(cell)
    assert 1 / 1.3 < found["predicted"] / cell.paper < 1.3
    assert 1 / 1.5 < found["measured"] / cell.paper < 1.5


def test_flipped_labels_give_the_printed_aucs_and_deviations():
    # The mean of 5 runs strays by 2e-4.
    noisy = cell_of(table="3", epsilon=1.0, epoch=2)
    assert measure(noisy, 5)["measured"] == pytest.approx(noisy.paper, abs=1e-3)
    mended = cell_of(table="5", epsilon=1.0, epoch=2)
    found = measure(mended)
    assert 1 / 1.5 < found["measured"] / mended.paper < 1.5
    assert 1 / 1.3 < found["predicted"] / mended.paper < 1.3


def test_flips_drawn_by_blocks_have_the_deviation_of_flips_drawn_one_by_one():
    w = sun_worlds.world(2)
    for label in (True, False):
        ranks = w.ranks[w.labels == label]
        blocks = sun_worlds.Blocks.of(ranks)
        assert blocks.sizes.sum() == len(ranks)
        spread = blocks.sizes @ (blocks.ranks - w.balance) ** 2
        assert spread == pytest.approx(((ranks - w.balance) ** 2.0).sum(), rel=1e-5)


def test_sums_of_laplace_noise_are_those_of_noise_drawn_one_by_one():
    # Once in 10,000 tries two samples of one law differ so much.
    rng = np.random.default_rng(5)
    loads = np.array([[3.0, 1.0, 1.0, 1.0, 2.0], [0.0, 4.0, 4.0, 4.0, 1.0]])
    drawn = sun_worlds.laplace_sums(loads, rng, 20_000)
    one_by_one = loads @ rng.laplace(size=(5, 20_000))
    for weights in ((1, 0), (0, 1), (1, -1)):
        assert stats.ks_2samp(weights @ drawn, weights @ one_by_one).pvalue > 1e-4


def test_noisy_scores_give_the_printed_auc():
    cell = cell_of(table="9", epsilon=4.0, epoch=1)
    assert measure(cell, 20)["measured"] == pytest.approx(cell.paper, abs=0.01)


@pytest.fixture(scope="module")
def quick():
    rng = np.random.default_rng(4)
    return [Found(cell, 20, study.run(cell, rng, 20)) for cell in study.QUICK]


def test_a_quick_run_has_every_table_and_tells_what_does_not_come_out(quick, capsys):
    study.table(quick)
    said = capsys.readouterr().out
    for table in ("7", "2", "3", "5", "6", "9", "8", "fedgauge"):
        assert f"Table {table}\n" in said.replace(" ", "").replace("Table", "Table ")
    assert {"paper", "measured", "predicted", "fedgauge"} <= set(said.split())
    missed = said[said.index("Do not come out:") :]
    assert "parties=100, split=, epsilon=1.0, epoch=0, paper=0.79: 0.93 measured" in missed
    assert "parties=50000" not in missed


def test_a_quick_run_is_judged_by_every_target(quick):
    # Deviations of 20 runs stray by 16%: those are judged by the full study. The ratio of errors of
    # 400 runs strays by 5%: by another seed, the one for 10 parties would fail once in 200 times.
    judged = {check.what: check for check in study.checks(quick)}
    for what in (
        "Tables 1, 2, 7: predicted within 1.3",
        "Table 3: within 0.001",
        "Table 9: within 0.01",
        "10 parties, iid: at most 0.75 of adaptive's",
        "458 parties, iid: at most 0.15 of adaptive's",
        "10 parties, apart: auto within 1.1 of the best",
    ):
        assert judged[what].kept, judged[what]
    assert "predicted within 10% of measured" in judged
    assert "Tables 5, 6: within 1.35 in 52 of 54" in judged


def test_ten_times_the_data_have_a_deviation_over_root_ten(quick):
    small, large = (
        each["predicted"] for table in "56" for each in quick if each.cell.table == table
    )
    assert small / large == pytest.approx(math.sqrt(10), rel=0.01)


def test_what_is_far_from_the_paper_is_told():
    cell = cell_of(table="5", epsilon=4.0, epoch=0)
    near = Found(cell, 100, {"measured": cell.paper})
    assert study.astray(near) == "their mean is -4.7 standard errors from the AUC"
    far = Found(cell, 100, {"measured": 2 * cell.paper})
    assert study.astray(far) == "0.00075 measured, 2.00 times"
    fine = cell_of(table="5", epsilon=5.0, epoch=1)
    assert study.astray(Found(fine, 100, {"measured": fine.paper})) is None


def test_an_equation_of_the_paper_is_off_as_said():
    # Equation 7, over the deviation that the study measures.
    w, positives, negatives = sun_worlds.world(2), sun_tables.POSITIVES, sun_tables.NEGATIVES
    size = positives + negatives
    squares = size * (size - 1) * (2 * size - 1) / 6
    for epsilon, times in ((0.1, 1 / 11), (10.0, 1.82)):
        rho = sun_worlds.chance_of(epsilon)
        printed = math.sqrt(rho * (1 - rho) * squares) / (positives * negatives)
        assert printed / sun_worlds.flipped_deviation(w, epsilon) == pytest.approx(times, rel=0.01)


def test_every_printed_cell_is_in_the_study():
    sizes = {name: sum(cell.table == name for cell in study.CELLS) for name in "2356789"}
    assert sizes == {"2": 48, "3": 18, "5": 27, "6": 27, "7": 120, "8": 11, "9": 39}
