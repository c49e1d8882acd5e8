"""
The price of privacy
====================

The same rows as an exact sum and with differential privacy at two budgets. Each client adds a
share of noise before it sends; the band covers what noise and sampling do to the curve.
"""

import matplotlib.pyplot as plt
import numpy as np

import fedgauge as fg

rng = np.random.default_rng(1)
sites = {}
for name in ("a", "b", "c", "d", "e"):
    y_true = rng.random(2000) < 0.2
    sites[name] = y_true, 1 / (1 + np.exp(-rng.normal(1.6 * y_true - 1.4)))

# %%
# Bins and noise are chosen from public hints, never from the rows. The seed repeats the noise for
# this page, and takes away what it protects: leave it out.

fig, axes = plt.subplots(1, 3, figsize=(12, 4.4), layout="constrained")
for ax, epsilon in zip(axes, (None, 1.0, 0.1), strict=True):
    if epsilon is None:
        result = fg.evaluate(sites)
    else:
        result = fg.evaluate(
            sites,
            privacy=fg.DistributedDP(epsilon),
            cohort=fg.Cohort(min_survivors=5, max_colluding=1),
            examples=10_000,
            positive_rate=0.2,
            seed=2,
        )
    fg.RocCurveDisplay.from_evaluation(result).plot(ax=ax)
    ax.set_title("exact sum" if epsilon is None else f"epsilon {epsilon:g}")
    print(result.roc_auc)
