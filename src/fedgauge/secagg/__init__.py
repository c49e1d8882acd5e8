"""Secure summation: the server learns the sum over the clients that stay, and nothing else."""

from fedgauge.secagg.client import Duties, SummationClient
from fedgauge.secagg.messages import Invitation, Stage
from fedgauge.secagg.server import Confirmed, Replies, Sum, SummationServer

__all__ = [
    "Confirmed",
    "Duties",
    "Invitation",
    "Replies",
    "Stage",
    "Sum",
    "SummationClient",
    "SummationServer",
]
