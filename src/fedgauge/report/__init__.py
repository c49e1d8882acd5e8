"""A record drawn for people; the only place that imports plotting."""

from fedgauge.report.plots import Overlay, save_plots

__all__ = ["Overlay", "save_plots"]
