"""A result drawn for people; the only place that imports plotting."""

from fedgauge.plots.figures import Overlay, save_plots

__all__ = ["Overlay", "save_plots"]
