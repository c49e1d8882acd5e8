"""What runs at a hospital."""

import numpy as np
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

import fedgauge.flower
from hospitals.task import load_data, model_from, model_to_arrays

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Fit the model to this hospital's patients."""
    x, _, y, _ = load_data(int(context.node_config["partition-id"]))
    model = model_from(message).fit(x, y)
    # Every hospital weighs the same, so none tells how many patients it has.
    content = {"arrays": model_to_arrays(model), "metrics": MetricRecord({"weight": 1})}
    return Message(RecordDict(content), reply_to=message)


def score(message: Message, context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Labels and scores of this hospital's test patients; they stay here."""
    _, x, _, y = load_data(int(context.node_config["partition-id"]))
    return y, model_from(message).predict_proba(x)[:, 1]


fedgauge.flower.attach(app, score)
