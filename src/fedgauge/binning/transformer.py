"""A calibrator as scikit-learn's pipelines want it, without scikit-learn."""

import sys
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fedgauge.typing import Floats

if TYPE_CHECKING:
    from fedgauge.binning.calibrator import Calibrator


class CalibratorTransformer:
    """The methods that ``sklearn.pipeline.Pipeline`` and ``sklearn.base.clone`` call.

    The map was fitted elsewhere, so :meth:`fit` learns nothing.

    Parameters
    ----------
    calibrator
        The map.
    """

    def __init__(self, calibrator: "Calibrator") -> None:
        self.calibrator = calibrator

    def fit(self, X: Any = None, y: Any = None) -> Self:
        """Nothing is learned: the map stays as it is."""
        return self

    def transform(self, X: Any) -> Floats:
        """Calibrated probabilities, in the shape of the scores: (n,) or (n, 1)."""
        mapped = self.calibrator.transform(np.asarray(X) if isinstance(X, list) else X)
        return mapped.reshape(-1, 1) if np.ndim(X) == 2 else mapped

    def fit_transform(self, X: Any, y: Any = None) -> Floats:
        """The same as :meth:`transform`."""
        return self.transform(X)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The map, by the name that the constructor gives it."""
        return {"calibrator": self.calibrator}

    def set_params(self, **params: Any) -> Self:
        """Another map."""
        for name, value in params.items():
            if name != "calibrator":
                raise ValueError(f"a calibrator's transformer has no parameter {name!r}.")
            self.calibrator = value
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:
        # Asked by scikit-learn alone, so that is loaded, in a version (1.6) that has these.
        utils = sys.modules["sklearn.utils"]
        return utils.Tags(
            estimator_type=None,
            target_tags=utils.TargetTags(required=False),
            transformer_tags=utils.TransformerTags(),
        )

    def __repr__(self) -> str:
        return f"CalibratorTransformer({self.calibrator.in_words()})"
