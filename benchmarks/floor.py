"""The floor: the same bytes through the same server, with no work done between.

Run as ``python -m benchmarks.floor PORT``: an ASGI callable that reads the body and answers as many bytes as the
``X`` path segment says, under the uvicorn settings of the product.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvicorn

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_ANSWERS: dict[str, bytes] = {}


async def floor(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the whole body, then answer ``/<n>`` with n bytes."""
    if scope["type"] == "lifespan":
        await _lifespan(receive, send)
        return
    message = await receive()
    while message.get("more_body"):
        message = await receive()
    path = scope["path"]
    body = _ANSWERS.setdefault(path, b"0" * int(path.rsplit("/", 1)[1]))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def main() -> None:
    """Serve the floor on 127.0.0.1:PORT until killed."""
    uvicorn.run(
        floor,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        timeout_keep_alive=120,
        access_log=False,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
