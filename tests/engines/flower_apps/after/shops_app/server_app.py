"""What runs at the platform."""

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

import fedgauge.flower
from shops_app.task import score_users

app = ServerApp()


@app.main()
def main(grid, context):
    """Score all users, and see which shops are ready."""
    users, scores = score_users()
    asked = [
        Message(RecordDict({"ask": ConfigRecord()}), dst_node_id=node, message_type="query")
        for node in grid.get_node_ids()
    ]
    ready = [reply.content["news"]["ready"] for reply in grid.send_and_receive(asked)]
    told = {"shops": sum(ready), "users": len(users), "mean-score": float(scores.mean())}
    context.state["news"] = ConfigRecord(told)
    result = fedgauge.flower.evaluate_vertical(grid, (users, scores), positive_rate=0.1)
    result.to_json("vertical.json")
