"""The calibrator as a step of a scikit-learn pipeline."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from calibrators import FORMS, calibrator
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.validation import check_is_fitted

SCORES = np.linspace(0, 1, 21)


@pytest.fixture
def step():
    return calibrator(FORMS["beta"]).as_transformer()


def test_the_shape_of_the_scores_is_kept(step):
    flat = calibrator(FORMS["beta"]).transform(SCORES)
    np.testing.assert_array_equal(step.transform(SCORES), flat)
    np.testing.assert_array_equal(step.transform(SCORES.tolist()), flat)
    for column in (SCORES[:, None], SCORES[:, None].tolist(), pd.DataFrame({"p": SCORES})):
        np.testing.assert_array_equal(step.transform(column), flat[:, None])
    np.testing.assert_array_equal(step.fit_transform(SCORES[:, None], None), flat[:, None])


def test_fitting_learns_nothing(step):
    before = step.calibrator
    assert step.fit(SCORES, SCORES > 0.5) is step
    assert step.calibrator is before
    check_is_fitted(step)


def test_it_works_in_pipelines(step):
    column, labels = np.tile(SCORES, 5)[:, None], np.tile(SCORES > 0.5, 5)
    last = make_pipeline(FunctionTransformer(), step)
    np.testing.assert_array_equal(last.fit(column).transform(column), step.transform(column))
    first = make_pipeline(step, LogisticRegression())
    assert cross_val_score(first, column, labels).mean() > 0.8
    chosen = ColumnTransformer([("map", step, [0])])
    np.testing.assert_array_equal(chosen.fit_transform(column), step.transform(column))


def test_clones_and_pickles_are_the_same_map(step):
    loaded = pickle.loads(pickle.dumps(step))  # noqa: S301
    for other in (clone(step), clone(make_pipeline(step))[0], loaded):
        assert other is not step
        assert other.get_params() == step.get_params() == {"calibrator": step.calibrator}


def test_parameters(step):
    other = calibrator(FORMS["steps"])
    assert step.set_params(calibrator=other).calibrator is other
    with pytest.raises(ValueError, match="no parameter 'bins'"):
        step.set_params(bins=3)


def test_scikit_learn_is_not_loaded():
    code = (
        "import sys, fedgauge as fg; from fedgauge.binning.calibrator import Beta\n"
        "fg.Calibrator('x', Beta(1, 1, 0)).as_transformer().fit([0.5]).transform([0.5])\n"
        "sys.exit('sklearn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
