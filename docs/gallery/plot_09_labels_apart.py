"""
Labels and scores at different parties
======================================

A platform scores its users, shops know who bought. Neither shows the other what it has; what a
reader learns of one label is limited by epsilon.
"""

import matplotlib.pyplot as plt
import numpy as np

import fedgauge as fg

rng = np.random.default_rng(0)
bought = rng.random(20_000) < 0.1
score = 1 / (1 + np.exp(-rng.normal(2 * bought - 2.5)))
ids = np.arange(20_000)
shops = {f"shop {k}": (ids[k::4], bought[k::4]) for k in range(4)}

# %%
# The seed repeats the noise for this page, and takes away what it protects: leave it out.

result = fg.evaluate_vertical((ids, score), shops, positive_rate=0.1, seed=1)
pooled = fg.evaluate({"everything": (bought, score)})

fig, (left, right) = plt.subplots(1, 2, figsize=(12, 5.5), layout="constrained")
for name, each in {"epsilon 1 for a label": result, "pooled rows": pooled}.items():
    fg.RocCurveDisplay.from_evaluation(each, name=name).plot(ax=left)
    fg.PrecisionRecallDisplay.from_evaluation(each, name=name).plot(ax=right)
print(result.privacy.epsilon, result.privacy.unit, result.privacy.neighbours)
