"""The process that owns NVML: ``python -m node_agent.reader``. It answers each byte on its input with one sweep.

Everything that a sick driver can do to a caller happens in here: hang, crash, leak. The supervisor kills and restarts
it. When the driver cannot be used at all, the process says why and ends, because a library once loaded is never loaded
anew.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from node_agent.frames import Frame, write_frame
from node_agent.node_state import node_state_of
from node_agent.nvml import Nvml, WrongBindingError, check_binding
from node_agent.nvml_outcome import TIMEOUT, Kind
from node_agent.readings import Readings, XidEvent
from node_agent.report import NodeState
from node_agent.sweep import Sweeper

EVENT_WAIT_MS = 1000
MAX_EVENTS = 1024

_ENDING = frozenset({NodeState.NO_DRIVER, NodeState.DRIVER_MISMATCH, NodeState.NO_ACCESS, NodeState.NO_GPU})


class EventWatcher:
    """Waits for the driver's events in a thread of its own; ``take`` hands them over once."""

    def __init__(self, nvml: Nvml, nudge: Callable[[], None]) -> None:
        self._nvml = nvml
        self._nudge = nudge
        self._events: deque[XidEvent] = deque(maxlen=MAX_EVENTS)
        self._layout_changed = threading.Event()
        self._event_set: object | None = None
        self._generation = 0

    def watch(self, handles: list[object]) -> None:
        """Watch these devices instead of those before."""
        self._generation += 1
        created = self._nvml.watch_events(handles)  # type: ignore[arg-type]
        if created.kind is Kind.VALUE:
            arguments = (created.value, self._generation)
            threading.Thread(target=self._wait, args=arguments, name="events", daemon=True).start()

    def take(self) -> tuple[XidEvent, ...]:
        """Return the events since the last call."""
        taken = []
        while self._events:
            taken.append(self._events.popleft())
        return tuple(taken)

    def take_change(self) -> bool:
        """Tell whether the driver announced a change of layout or availability since the last call."""
        changed = self._layout_changed.is_set()
        self._layout_changed.clear()
        return changed

    def _wait(self, event_set: object, generation: int) -> None:
        while generation == self._generation:
            outcome = self._nvml.wait_event(event_set, EVENT_WAIT_MS)
            if outcome.value is not None:
                event = outcome.value
                if event.xid is None:
                    self._layout_changed.set()
                elif event.uuid:
                    self._events.append(XidEvent(uuid=event.uuid, xid=event.xid, gi_id=event.gi_id, ci_id=event.ci_id))
                self._nudge()
            elif outcome.code != TIMEOUT:
                time.sleep(EVENT_WAIT_MS / 1000)
        self._nvml.free_events(event_set)


def main() -> int:
    """Serve sweeps until the input ends; return 1 when the driver cannot be used."""
    output = os.dup(1)
    os.dup2(2, 1)  # Whatever the driver's library prints must not end up between frames.
    lock = threading.Lock()

    def send(kind: Frame, body: bytes = b"") -> None:
        with lock:
            write_frame(output, kind, body)

    encode = msgspec.msgpack.Encoder().encode
    nvml = Nvml()
    failure = _start(nvml)
    if failure is not None:
        if os.read(0, 1):
            send(Frame.READINGS, encode(failure))
        return 1
    sweeper = Sweeper(nvml, Path(os.environ.get("TANGRAM_AGENT_SYSFS_ROOT", "/sys")))
    watcher = EventWatcher(nvml, lambda: send(Frame.NUDGE))
    watched: list[object] = []
    while os.read(0, 1):
        events, changed = watcher.take(), watcher.take_change()
        if events or changed:
            sweeper.hurry()
        readings = replace(sweeper.sweep(), events=events)
        send(Frame.READINGS, encode(readings))
        if readings.state in _ENDING:
            return 1
        handles: list[object] = list(sweeper.handles())
        if len(handles) != len(watched) or any(new is not old for new, old in zip(handles, watched, strict=True)):
            watched = handles
            watcher.watch(watched)
    nvml.stop()
    return 0


def _start(nvml: Nvml) -> Readings | None:
    try:
        check_binding()
    except WrongBindingError as problem:
        return Readings(state=NodeState.NO_DRIVER, message=str(problem))
    opened = nvml.start()
    if opened.kind is Kind.VALUE:
        return None
    return Readings(state=node_state_of(opened), message=opened.words())


if __name__ == "__main__":
    sys.exit(main())
