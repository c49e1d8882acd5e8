"""One member of five sends what no rows have: a refusal, or under noise a caution, on every engine.
A secure sum cannot tell who it was."""

import numpy as np
import pytest
from conformance import CLIENTS
from counts import pooled_counts, pooled_sums
from plans import exact_plan, noisy_plan

import fedgauge as fg
from poison import at, poison, sums_at

pytestmark = pytest.mark.usefixtures("few_redraws", "quick_disk")
LARGEST = 10**6  # five of them and their sums fit 32 bits, and so does what the member sends
EXACT = exact_plan(largest=LARGEST)
SUMS = exact_plan(score_sums=True)
COUNTS, SCORES = pooled_counts(EXACT, CLIENTS), pooled_sums(SUMS, CLIENTS)
FEWEST = int(COUNTS[1].argmin())
TOP = EXACT.axis.bins - 1
HUGE = [(1, TOP, 2**29)]
NEGATIVE = [(1, FEWEST, -COUNTS[1, FEWEST] - 1)]
UNCHANGED_TOTALS = [*NEGATIVE, (1, TOP, COUNTS[1, FEWEST] + 1)]
IMPOSSIBLE = {
    "huge": (EXACT, at(EXACT, *HUGE), "above the plan's largest"),
    "negative": (EXACT, at(EXACT, *NEGATIVE), "a count of the sum is negative"),
    "unchanged-totals": (EXACT, at(EXACT, *UNCHANGED_TOTALS), "a count of the sum is negative"),
    "small-cells-merged": (
        exact_plan(min_cell=10),
        at(EXACT, *UNCHANGED_TOTALS),
        "a count of the sum is negative",
    ),
    "negative-score-sum": (SUMS, sums_at(SUMS, 0, 3, -SCORES[0, 3] - 1), "a score sum is negative"),
    "large-score-sum": (
        SUMS,
        sums_at(SUMS, 0, 3, SUMS.final.sum_steps * COUNTS[0, 3] - SCORES[0, 3] + 1),
        "a score sum is above",
    ),
}


@pytest.mark.parametrize(("plan", "added", "told"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_an_exact_sum_that_no_rows_have_is_refused(engine, monkeypatch, plan, added, told):
    sent = poison(monkeypatch, added)
    with pytest.raises(fg.ProtocolError, match=told) as refused:
        engine.run(plan, CLIENTS)
    assert len(sent) == len(CLIENTS)
    assert "start again without whom you distrust" in str(refused.value)
    assert refused.value.exit_code == 1


def test_as_many_rows_as_all_may_have_are_not_refused(engine, monkeypatch):
    """What no check can see: up to the limit of all members, whoever sends it."""
    most = 5 * LARGEST - COUNTS[1, TOP]
    poison(monkeypatch, at(EXACT, (1, TOP, most)))
    result = engine.run(EXACT, CLIENTS)
    assert result.positives == COUNTS[1].sum() + most


@pytest.mark.parametrize("tree", [None, (4, 8)], ids=["flat", "tree"])
@pytest.mark.parametrize(
    "changes",
    [HUGE, [(1, 0, -400)], [(1, 0, -400), (1, TOP, 400)]],
    ids=["huge", "negative", "unchanged-totals"],
)
def test_under_noise_it_is_a_caution(engine, monkeypatch, tmp_path, tree, changes):
    plan = noisy_plan(1.0, bins=32, tree=tree, largest=LARGEST)
    poison(monkeypatch, at(plan, *changes))
    result = engine.run(plan, CLIENTS)
    assert "what no rows have" in result.caution
    assert str(result).splitlines()[-1] == f"caution            {result.caution}"
    result.to_json(tmp_path / "r.json")
    assert fg.Evaluation.from_json(tmp_path / "r.json").caution == result.caution


@pytest.mark.parametrize("score_sums", [False, True])
def test_honest_members_are_not_cautioned(engine, score_sums):
    """Chance of a false alarm: 1e-6."""
    clients = {**CLIENTS, "site-1": (np.zeros(0, dtype=int), np.zeros(0))}
    result = engine.run(noisy_plan(1.0, score_sums=score_sums), clients)
    assert result.caution is None
    assert len(str(result).splitlines()) == 6
