"""Pooled evaluation inside a Flower app: a line on the client, a line on the server."""

from fedgauge.engines.flower import attach, evaluate

__all__ = ["attach", "evaluate"]
