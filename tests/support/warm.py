"""Imports what commands load only where they need it, so that a process that forks pays once."""

from importlib import import_module

_MODULES = """
fedgauge.cli.evaluate fedgauge.cli.exchange fedgauge.cli.ledger fedgauge.cli.plan
fedgauge.cli.local fedgauge.cli.show fedgauge.cli.site fedgauge.cli.vertical fedgauge.demo
fedgauge.engines.simulation fedgauge.plots.figures matplotlib.backends.backend_agg mpmath
pyarrow.compute scipy.interpolate scipy.optimize scipy.sparse scipy.special scipy.stats tomllib
"""

for module in _MODULES.split():
    import_module(module)
