"""
Is acting on the scores worth it?
=================================

Net benefit weighs patients who are rightly treated against those treated in vain, at the odds
that the threshold stands for. A model is of use where its curve lies above treating everybody and
treating nobody.
"""

import matplotlib.pyplot as plt
import numpy as np

import fedgauge as fg

rng = np.random.default_rng(4)
sites = {}
for name, rows in {"a": 4000, "b": 2500, "c": 6000}.items():
    odds = rng.normal(-1.5, 1.3, rows)
    sites[name] = rng.random(rows) < 1 / (1 + np.exp(-odds)), 1 / (1 + np.exp(-odds))
result = fg.evaluate(sites)

fig, ax = plt.subplots(figsize=(7, 5))
fg.DecisionCurveDisplay.from_evaluation(result).plot(ax=ax)

# %%
# At one threshold, with an interval:

print(result.net_benefit(0.2))
print(result.at_threshold(0.2).recall)
