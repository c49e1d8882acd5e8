"""
Is the new model better?
========================

Both score the same rows, so their errors go together, and the difference is surer than either
AUC. The rows' two scores are counted together for that.
"""

import matplotlib.pyplot as plt
import numpy as np

import fedgauge as fg

rng = np.random.default_rng(3)


def site(rows):
    """Two scores of each row that share most of their errors."""
    y_true, (shared, own) = rng.random(rows) < 0.3, rng.normal(size=(2, rows))
    new, old = 1.5 * y_true - 1.2 + shared, 1.4 * y_true - 1.2 + 0.9 * shared + 0.44 * own
    return fg.Examples(y_true, {"new": 1 / (1 + np.exp(-new)), "old": 1 / (1 + np.exp(-old))})


result = fg.evaluate({f"site {k}": site(2000) for k in range(10)}, models=["new", "old"])
comparison = result.compare("new", "old", margin=0.01)

fig, (left, right) = plt.subplots(1, 2, figsize=(12, 5.5), layout="constrained")
fg.RocCurveDisplay.from_evaluation(result).plot(ax=left)
fg.ComparisonDisplay.from_comparison(comparison, at=0.5).plot(ax=right)

# %%
# In words:

print(comparison)
