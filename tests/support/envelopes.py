"""Messages of a secure sum, signed by whoever a test says."""

from fedgauge.protocol import Envelope


def sealed(key, session, stage, sender, recipient, body):
    return Envelope.sealed(
        key, session=session, stage=stage, sender=sender, recipient=recipient, body=body
    )
