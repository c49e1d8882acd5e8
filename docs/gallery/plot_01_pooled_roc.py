"""
One threshold for unlike sites
==============================

Every site ranks its own examples well, and yet no threshold serves them all. The mean of the
sites' AUCs hides that; the pooled curve shows it.
"""

import matplotlib.pyplot as plt
import numpy as np

import fedgauge as fg

rng = np.random.default_rng(0)


def site(rows, shift):
    """Scores of a good model on a device that reads higher or lower."""
    y_true = rng.random(rows) < 0.3
    return y_true, 1 / (1 + np.exp(-(rng.normal(2 * y_true - 1) + shift)))


sites = {"north": site(4000, -1.5), "west": site(3000, 0.0), "south": site(5000, 1.5)}

# %%
# Each alone, then all together. Only the sum of the sites' histograms is used.

fig, ax = plt.subplots(figsize=(6, 6))
for name, rows in sites.items():
    alone = fg.evaluate({name: rows})
    fg.RocCurveDisplay.from_evaluation(alone, name=f"{name} alone").plot(ax=ax)
pooled = fg.evaluate(sites)
fg.RocCurveDisplay.from_evaluation(pooled, name="pooled").plot(ax=ax)

# %%
# The number, an interval for the population, and bounds that surely hold what the pooled rows
# would give.

print(pooled.roc_auc)
print(pooled.roc_auc.bounds)
