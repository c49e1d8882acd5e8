"""Imports what commands load only where they need it, so that a process that forks pays once."""

from importlib import import_module

for module in (
    "fedgauge.cli.evaluating",
    "fedgauge.cli.exchanges",
    "fedgauge.cli.ledgers",
    "fedgauge.cli.planning",
    "fedgauge.cli.reporting",
    "fedgauge.cli.results",
    "fedgauge.cli.sites",
    "fedgauge.cli.vertical",
    "fedgauge.demo",
    "fedgauge.engines.summation",
    "fedgauge.plots.figures",
    "matplotlib.backends.backend_agg",
    "mpmath",
    "pyarrow.compute",
    "scipy.interpolate",
    "scipy.optimize",
    "scipy.sparse",
    "scipy.special",
    "scipy.stats",
    "tomllib",
):
    import_module(module)
