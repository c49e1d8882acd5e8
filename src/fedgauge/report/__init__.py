"""Pages: all that results say, in one HTML file that needs no network."""

from fedgauge.report.page import is_report, report, save_report

__all__ = ["is_report", "report", "save_report"]
