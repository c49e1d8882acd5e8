"""
How far are groups apart?
=========================

One model and one threshold for everybody, and a recall for each group. Gaps have intervals, and
of several gaps those are named that stand out from what chance does.
"""

import matplotlib.pyplot as plt
import numpy as np

import fedgauge as fg

rng = np.random.default_rng(7)


def site(rows):
    """Scores that run higher for men."""
    y_true, sex = rng.random(rows) < 0.3, rng.choice(["women", "men"], rows)
    score = np.clip(rng.normal(0.35 + 0.25 * y_true + 0.08 * (sex == "men"), 0.2), 0, 1)
    return fg.Examples(y_true, score, group=sex)


result = fg.evaluate({name: site(4000) for name in "abc"}, groups=["women", "men"])
gaps = result.gaps("recall", at=0.5)

fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
fg.GapDisplay.from_gaps(gaps).plot(ax=ax)

# %%
# In words:

print(gaps)
