"""
Has the model got worse?
========================

A model is evaluated every week. Numbers go up and down by chance, and by the noise that protects
patients; an alarm says that more than chance moved them, and how often it is raised in vain is
stated.
"""

import matplotlib.pyplot as plt
import numpy as np

import fedgauge as fg

rng = np.random.default_rng(5)


def week(number):
    """From week 15 on the model separates less well."""
    y_true = rng.random(6000) < 0.3
    signal = 1.5 if number < 15 else 1.25
    y_score = 1 / (1 + np.exp(1 - signal * y_true - rng.normal(size=6000)))
    sites = {f"site {k}": (y_true[k::3], y_score[k::3]) for k in range(3)}
    return fg.evaluate(sites, privacy=fg.DistributedDP(epsilon=1.0), seed=number)


trend = fg.Trend.of({f"week {n:02}": week(n) for n in range(1, 21)})
alarms = [alarm for alarm in trend.alarms if alarm.metric == "roc_auc"]

# %%
# Each week with its interval; weeks with an alarm are red squares.

values = [result.roc_auc for result in trend.results.values()]
alarmed = {alarm.look for alarm in alarms}
fig, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
for number, (name, auc) in enumerate(zip(trend.results, values, strict=True), start=1):
    low, high = auc.interval
    mark, colour = ("s", "tab:red") if name in alarmed else ("o", "tab:blue")
    errors = [[auc.value - low], [high - auc.value]]
    ax.errorbar(number, auc.value, errors, fmt=mark, color=colour)
ax.axvline(14.5, color="grey", linestyle=":")
ax.set(xlabel="week", ylabel="ROC AUC, 95% intervals", xticks=range(1, 21))

# %%
# The first alarm, and what it is worth.

print(alarms[0])
print(trend.promise)

# %%
# How far apart are the last week and the first?

weeks = list(trend.results.values())
print(fg.diff(weeks[-1], weeks[0]).roc_auc)
