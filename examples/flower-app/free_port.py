"""Print a port of this machine on which nobody listens now."""

import socket

with socket.create_server(("127.0.0.1", 0)) as server:
    print(server.getsockname()[1])  # noqa: T201
