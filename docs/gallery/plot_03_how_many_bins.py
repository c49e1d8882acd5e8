"""
How many bins?
==============

More bins tell scores apart more finely and collect more noise. Every number says how much each
source of error contributes, and the planner weighs them before there are any rows.
"""

import matplotlib.pyplot as plt
import numpy as np

import fedgauge as fg

rng = np.random.default_rng(6)
y_true = rng.random(20_000) < 0.2
y_score = 1 / (1 + np.exp(-rng.normal(2 * y_true - 2)))
sites = {f"site {k}": (y_true[k::5], y_score[k::5]) for k in range(5)}
privacy = fg.DistributedDP(epsilon=0.3)

# %%
# The same rows on axes of 4 to 1,024 bins of equal width, at epsilon 0.3.

counts = [2**k for k in range(2, 11)]
parts = []
for bins in counts:
    axis = fg.Axis.uniform(bins, outside="clip")
    plan = fg.EvaluationPlan.for_histogram(axis, fg.Cohort(5), privacy=privacy)
    parts.append(fg.evaluate(sites, plan, seed=bins).roc_auc.parts)

fig, ax = plt.subplots(figsize=(7, 5), layout="constrained")
for source, line in (("binning", "--"), ("noise", "-"), ("sampling", ":")):
    label = "binning, at most" if source == "binning" else f"{source}, standard deviation"
    ax.loglog(counts, [part[source] for part in parts], line, marker="o", label=label)
ax.set(xlabel="bins", ylabel="error of the ROC AUC")
ax.legend()

# %%
# Binning is shown at its worst: curves between edges are interpolated, and come much closer. So
# few bins are best at a small epsilon, and more at a larger one. The planner chooses from public
# hints alone:

for epsilon in (0.3, 1.0, 10.0):
    plan = fg.planner.propose(
        privacy=fg.DistributedDP(epsilon), clients=5, examples=20_000, positive_rate=0.2
    )
    print(f"epsilon {epsilon:g}: {plan.axis.bins} bins")
