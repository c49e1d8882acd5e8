"""Imports what commands load only where they need it, so that a process that forks pays once."""

from importlib import import_module

for module in (
    "fedgauge.cli",
    "fedgauge.plots.figures",
    "matplotlib.backends.backend_agg",
    "pandas",  # pyarrow loads it in every process that reads a file
    "pyarrow.pandas_compat",
    "scipy.interpolate",
    "scipy.optimize",
    "scipy.sparse",
    "scipy.stats",
    "tomllib",
):
    import_module(module)
