"""
Several classes
===============

Each class has a score. Besides the counts by score, which give a curve of each class against the
rest, a table of true and predicted classes is summed up.
"""

import matplotlib.pyplot as plt
import numpy as np

import fedgauge as fg

rng = np.random.default_rng(5)
names = np.array(["cat", "dog", "owl"])


def site(rows):
    """Scores of three classes that add up to 1."""
    kind = rng.choice(3, rows, p=[0.5, 0.3, 0.2])
    odds = np.exp(rng.normal(size=(rows, 3)) + 1.5 * (kind[:, None] == np.arange(3)))
    return fg.Examples(names[kind], odds / odds.sum(axis=1, keepdims=True))


task = fg.MulticlassTask(labels=["cat", "dog", "owl"], also=["confusion"])
result = fg.evaluate({f"site {k}": site(2000) for k in range(5)}, task=task)

fig, (left, right) = plt.subplots(1, 2, figsize=(12, 5.5), layout="constrained")
fg.RocCurveDisplay.from_evaluation(result).plot(ax=left)
matrix = result.confusion_matrix()
fg.ConfusionMatrixDisplay.from_matrix(matrix, normalize="true").plot(ax=right)

# %%
# Averages over classes have intervals, too:

print(result.macro("roc_auc"))
print(matrix.macro_f1)
