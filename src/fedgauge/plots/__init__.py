"""A result drawn for people; the only place that imports plotting."""

from fedgauge.plots.figures import Overlay, draw, save_plots

__all__ = ["Overlay", "draw", "save_plots"]
