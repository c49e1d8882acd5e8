"""The report: one HTML file with all that a result says, which needs no network."""

from fedgauge.plots.page.document import is_report, report, save_report

__all__ = ["is_report", "report", "save_report"]
