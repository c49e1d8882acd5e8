"""Labels apart from scores by files: roster, bins, five rounds, totals over the survivors."""

import numpy as np
import pytest
from platform_world import BOUGHT, SCORES, SHOPS, make_platform
from sklearn.metrics import roc_auc_score

import fedgauge as fg
from fedgauge.secagg import Stage


@pytest.fixture
def platform(tmp_path):
    return make_platform(tmp_path)


def play(platform, skip=(), since=Stage.ADVERTISE):
    return platform.play(platform.run, dict.fromkeys(platform.names), skip=skip, since=since)


def test_the_sum_gives_what_all_labels_give(platform):
    """Little noise is left at epsilon 8, and the totals of bins are exact."""
    assigned = platform.assign()
    platform.start(platform.run, assigned.plan)
    result = play(platform)
    assert result.roc_auc.value == pytest.approx(roc_auc_score(BOUGHT, SCORES), abs=3e-3)
    assert int(result.released.counts.sum()) == len(SCORES)
    assert (result.privacy.unit, result.privacy.neighbours) == ("label", "flip")
    assert result.privacy.claim == "enforced"
    assert result.privacy.public_inputs == ("positive_rate 0.3",)
    again = fg.Evaluation.from_json(platform.run / "result.json")
    assert again.roc_auc == result.roc_auc
    assert again.signature.state == "unknown key"


def test_totals_follow_the_survivors(platform):
    assigned = platform.assign()
    platform.start(platform.run, assigned.plan)
    for name in platform.names:
        platform.answer(platform.run, name, Stage.ADVERTISE)
    platform.advance(platform.run)
    result = play(platform, skip=[SHOPS[1]], since=Stage.SHARE)
    kept = np.concatenate([platform.rows_of(name) for name in SHOPS if name != SHOPS[1]])
    assert int(result.released.counts.sum()) == len(kept)
    assert result.roc_auc.value == pytest.approx(
        roc_auc_score(BOUGHT[kept], SCORES[kept]), abs=4e-3
    )
