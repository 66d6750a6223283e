"""How the reader's process and its supervisor talk over pipes: a kind, a length, a msgpack body."""

from __future__ import annotations

import os
import struct
from enum import IntEnum

HEADER = struct.Struct(">BI")
MAX_BODY_BYTES = 8 * 1024 * 1024
"""A sweep of 64 devices with thousands of processes stays far below."""

ASK = b"\x01"


class Frame(IntEnum):
    """``READINGS`` answers a question; ``NUDGE`` comes unasked: the driver announced something, ask now."""

    READINGS = 1
    NUDGE = 2


def write_frame(descriptor: int, kind: Frame, body: bytes = b"") -> None:
    """Write a whole frame, however often the pipe takes only a part."""
    rest = memoryview(HEADER.pack(kind, len(body)) + body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class FrameReader:
    """Puts frames together from whatever pieces arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> list[tuple[Frame, bytes]]:
        """Take bytes and return the frames that are whole now; raise ValueError for what is no frame."""
        self._buffer += piece
        frames = []
        while len(self._buffer) >= HEADER.size:
            kind, length = HEADER.unpack_from(self._buffer)
            if length > MAX_BODY_BYTES:
                raise ValueError(f"frame of {length} bytes")
            if len(self._buffer) < HEADER.size + length:
                break
            frames.append((Frame(kind), bytes(self._buffer[HEADER.size : HEADER.size + length])))
            del self._buffer[: HEADER.size + length]
        return frames
