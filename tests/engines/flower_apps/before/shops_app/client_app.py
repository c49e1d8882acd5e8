"""What runs at a shop."""

from flwr.app import ConfigRecord, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp

from shops_app.task import read_orders

app = ClientApp()


def labels(context):
    """Users whom this shop saw, and which of them bought."""
    return read_orders(context.node_config["partition-id"])


@app.query()
def news(msg, context):
    """Whether this shop has orders."""
    users, _ = labels(context)
    content = RecordDict({"news": ConfigRecord({"ready": len(users) > 0})})
    return FlowerMessage(content=content, reply_to=msg)
