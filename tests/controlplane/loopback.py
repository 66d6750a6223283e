"""Loopback ports that were free a moment ago."""

import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """Return `count` different ports of 127.0.0.1 on which nothing listens now; another program may take one later."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
