"""A stand-in for Flower's Grid: nodes in this process, each with a context that stays."""

from flwr.app import Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

SERVER = 1


class StandInGrid:
    """Passes messages to the ClientApp of each node, by node id, and logs what was carried.
    `courier(node, message)` carries a message to its node and the reply back; None when either is
    lost. By default it calls the app."""

    def __init__(self, apps, configs, courier=None):
        self.apps, self.log = apps, []
        self.contexts = {
            node: Context(
                run_id=1, node_id=node, node_config=configs[node], state=RecordDict(), run_config={}
            )
            for node in apps
        }
        self._courier = courier or self.call
        _identify(1, SERVER, 1)

    def get_node_ids(self):
        return list(self.apps)

    def call(self, node, message):
        """The node's own answer; a simulated one has no identity to make messages with."""
        _identify(None, None, None)
        try:
            return self.apps[node](message, self.contexts[node])
        finally:
            _identify(1, SERVER, 1)

    def send_and_receive(self, messages, *, timeout=None):  # noqa: ARG002  (Flower's interface)
        replies = []
        for message in messages:
            self.log.append(message)
            reply = self._courier(message.metadata.dst_node_id, message)
            if reply is not None:
                self.log.append(reply)
                replies.append(reply)
        return replies


def _identify(run, node, task):
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, node, task


def carried(message):
    return b"".join(
        part
        for record in message.content.values()
        for value in record.values()
        for part in ([value] if isinstance(value, bytes) else [repr(value).encode()])
    )


def with_reply(message, reply):
    """A copy of a node's reply that says something else."""
    content = RecordDict({"fedgauge": type(message.content["fedgauge"])({"reply": reply})})
    return Message(content, metadata=message.metadata)
