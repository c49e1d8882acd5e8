"""The hospitals' generated data, and the model they train together."""

import numpy as np
from flwr.app import ArrayRecord, Message
from sklearn.linear_model import LogisticRegression

FEATURES = 6
EFFECTS = np.array([1.2, -0.8, 0.6, 0.4, 0.0, 0.0])


def load_data(hospital: int) -> tuple[np.ndarray, ...]:
    """Train and test rows of one hospital; hospitals differ in size, patients and devices."""
    rng = np.random.default_rng([2026, hospital])
    rows = int(rng.integers(500, 2500))
    x = rng.normal(rng.normal(0, 0.5, FEATURES), 1, (rows, FEATURES))
    risk = x @ EFFECTS + rng.normal(-1.5, 0.7)
    y = (rng.random(rows) < 1 / (1 + np.exp(-risk))).astype(np.int64)
    half = rows // 2
    return x[:half], x[half:], y[:half], y[half:]


def new_model() -> LogisticRegression:
    """A model that knows nothing yet."""
    model = LogisticRegression(max_iter=20, warm_start=True)
    model.classes_ = np.array([0, 1])
    model.coef_ = np.zeros((1, FEATURES))
    model.intercept_ = np.zeros(1)
    return model


def model_to_arrays(model: LogisticRegression) -> ArrayRecord:
    """What is sent of a model."""
    return ArrayRecord([model.coef_, model.intercept_])


def model_from(message: Message) -> LogisticRegression:
    """The model in a message."""
    model = new_model()
    model.coef_, model.intercept_ = message.content["arrays"].to_numpy_ndarrays()
    return model
