"""What runs at a node."""

import numpy as np
from flwr.app import ArrayRecord, MetricRecord, RecordDict
from flwr.app import Message as FlowerMessage
from flwr.clientapp import ClientApp

import fedgauge.flower
from quickstart.task import fit, load_data, predict

app = ClientApp()


def load_weights(msg):
    """The model in a message."""
    return msg.content["arrays"].to_numpy_ndarrays()[0]


def predict_test(msg, context):
    """Labels of this node's test rows, and what the model says about them."""
    _, x, _, y = load_data(context.node_config["partition-id"])
    return y, predict(load_weights(msg), x)


@app.train()
def train(msg, context):
    """Train on this node's rows."""
    x, _, y, _ = load_data(context.node_config["partition-id"])
    weights = fit(load_weights(msg), x, y)
    metrics = MetricRecord({"num-examples": len(y)})
    content = RecordDict({"arrays": ArrayRecord([weights]), "metrics": metrics})
    return FlowerMessage(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg, context):
    """Accuracy on this node's rows."""
    y, score = predict_test(msg, context)
    accuracy = float(np.mean((score > 0.5) == y))
    metrics = MetricRecord({"accuracy": accuracy, "num-examples": len(y)})
    return FlowerMessage(content=RecordDict({"metrics": metrics}), reply_to=msg)


fedgauge.flower.attach(app, predict_test)
