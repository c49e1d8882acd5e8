"""
From scores to probabilities
============================

A model that is too sure of itself ranks well, and its 90% are no 90%. A map that is fitted to the
counts mends that, without reading a row again.
"""

import matplotlib.pyplot as plt
import numpy as np

import fedgauge as fg

rng = np.random.default_rng(3)


def site(rows):
    """Outcomes that follow log-odds, and scores that double them."""
    odds = rng.normal(-0.5, 1.2, rows)
    return rng.random(rows) < 1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(-2 * odds))


first = fg.evaluate({"a": site(6000), "b": site(4000)})
later = fg.evaluate({"a": site(3000), "b": site(5000)})

# %%
# The map is fitted on one result, and judged on rows that it was not fitted to.

mended = later.with_calibrator(first.calibrator())
fig, axes = plt.subplots(1, 2, figsize=(10, 5.5))
for ax, result, title in zip(axes, (later, mended), ("as scored", "calibrated"), strict=True):
    fg.ReliabilityDisplay.from_evaluation(result).plot(ax=ax)
    ax.set_title(title)
    print(f"{title}: log loss {result.log_loss:.4f}, slope {result.calibration_slope:.2f}")
fig.tight_layout()
