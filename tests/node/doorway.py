"""A way from the test run to addresses inside a machine's own network, without a link between the two networks.

A socket belongs to the network in which it was made, wherever it is used later. So one thread enters the machine's
network and connects from there, while it listens on sockets that were made outside.
"""

import asyncio
import contextlib
import ctypes
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

_CLONE_NEWNET = 0x40000000  # linux/sched.h
_CHUNK = 65_536
_ENTERED_S = 10.0


class Doorway:
    """Ports of 127.0.0.1 that lead to addresses inside the network of the process `pid`; `close` ends all of them."""

    def __init__(self, pid: int) -> None:
        self._network = os.open(Path(f"/proc/{pid}/ns/net"), os.O_RDONLY)
        self._doors: dict[tuple[str, int], int] = {}
        self._servers: list[asyncio.Server] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._entered = threading.Event()
        self._thread = threading.Thread(target=self._run, name="doorway", daemon=True)
        self._thread.start()
        if not self._entered.wait(_ENTERED_S):
            message = f"the network of process {pid} was not entered within {_ENTERED_S:g} s"
            raise TimeoutError(message)

    def to(self, host: str, port: int) -> int:
        """Return the port of 127.0.0.1 that leads to an address inside."""
        if (host, port) not in self._doors:
            listener = socket.create_server(("127.0.0.1", 0))
            self._doors[host, port] = listener.getsockname()[1]
            asyncio.run_coroutine_threadsafe(self._open(listener, host, port), self._loop).result(_ENTERED_S)
        return self._doors[host, port]

    def close(self) -> None:
        """Close every port and every connection through them."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(_ENTERED_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(self._network, _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        os.close(self._network)
        self._entered.set()
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    async def _open(self, listener: socket.socket, host: str, port: int) -> None:
        async def pass_through(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with self._kept(writer):
                try:
                    inner_reader, inner_writer = await asyncio.open_connection(host, port)
                except OSError:
                    return
                with self._kept(inner_writer):
                    await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))

        self._servers.append(await asyncio.start_server(pass_through, sock=listener))

    @contextlib.contextmanager
    def _kept(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        self._writers.add(writer)
        try:
            yield
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if others:
            await asyncio.wait(others, timeout=_ENTERED_S)
        await asyncio.sleep(0)  # transports close their sockets in the loop's next turn


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
