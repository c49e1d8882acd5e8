"""Pages: all that results say, or a series of them, in one HTML file that needs no network."""

from fedgauge.plots.page.document import is_report, report, save_report
from fedgauge.plots.page.trend import is_trend_page, save_trend

__all__ = ["is_report", "is_trend_page", "report", "save_report", "save_trend"]
