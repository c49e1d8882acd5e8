"""Pooled evaluation inside a Flower app: a line on the client, a line on the server."""

from fedgauge.engines.flower import attach, evaluate
from fedgauge.vertical.flower import attach_labels, evaluate_vertical

__all__ = ["attach", "attach_labels", "evaluate", "evaluate_vertical"]
