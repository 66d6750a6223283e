"""Keeps the reader's process: asks it for sweeps, waits no longer than is good, restarts it, keeps the last good sweep.

::

    idle --ask--> waiting --answer--> idle
                   |  patience over: hand out the last sweep with its age, keep waiting
                   |  deadline over or the process died: kill, restart after a pause, state stale

``read`` never blocks longer than the patience. A process that cannot be killed (a call stuck in the kernel) is left
behind; after a few of those no more are started until one of them ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from node_agent.frames import ASK, Frame, FrameReader
from node_agent.readings import Readings
from node_agent.report import NodeState

READER_COMMAND = (sys.executable, "-m", "node_agent.reader")
MAX_STUCK = 3

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SupervisorTimes:
    """Seconds: how long one ``read`` waits, how long one sweep may take, pauses before a restart and a new probe.

    ``start_deadline_s`` is for the first sweep of a process: opening eight GPUs without persistence takes seconds each.
    """

    patience_s: float = 1.5
    deadline_s: float = 10.0
    start_deadline_s: float = 30.0
    restart_s: float = 1.0
    restart_limit_s: float = 60.0
    probe_s: float = 10.0


class Supervisor:
    """A reader that survives its driver. Used from one thread."""

    def __init__(
        self,
        times: SupervisorTimes | None = None,
        command: Sequence[str] = READER_COMMAND,
        environ: dict[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.restarts = 0
        self._times = times or SupervisorTimes()
        self._command = tuple(command)
        self._environ = environ
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._frames = FrameReader()
        self._asked_s: float | None = None
        self._has_answered = False
        self._start_due_s = 0.0
        self._failures = 0
        self._stuck: list[subprocess.Popen[bytes]] = []
        self._good: Readings | None = None
        self._good_at_s = 0.0
        self._trouble = ""
        self._nudged = False

    def read(self) -> Readings:
        """Return the newest sweep: a fresh one, or the last good one with its age and the state ``stale``."""
        self._ensure_asked()
        end_s = self._clock() + self._times.patience_s
        while self._process is not None and (left_s := end_s - self._clock()) > 0:
            fresh = self._receive(left_s)
            if fresh is not None:
                return fresh
        deadline_s = self._times.deadline_s if self._has_answered else self._times.start_deadline_s
        if self._asked_s is not None and self._clock() - self._asked_s >= deadline_s:
            self._fail(f"NVML does not answer for {deadline_s:g} s")
        return self._last()

    def wait(self, seconds: float) -> bool:
        """Wait, but not longer than until the driver announces something; tell whether it did."""
        if not self._nudged and self._process is not None and self._asked_s is None:
            self._receive(seconds)
        elif not self._nudged:
            time.sleep(seconds)
        nudged, self._nudged = self._nudged, False
        return nudged

    def close(self) -> None:
        """End the process: politely, since killing a collector has hung a GPU's firmware before, then not."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(2.0)
        except subprocess.TimeoutExpired:
            self._kill(self._process)
        self._drop_pipes(self._process)
        self._process = None

    def _ensure_asked(self) -> None:
        if self._process is None:
            self._start()
        if self._process is None or self._asked_s is not None or self._process.stdin is None:
            return
        try:
            self._process.stdin.write(ASK)
            self._process.stdin.flush()
        except OSError:
            self._fail(self._death_words())
            return
        self._asked_s = self._clock()

    def _start(self) -> None:
        self._stuck = [process for process in self._stuck if process.poll() is None]
        if self._clock() < self._start_due_s or len(self._stuck) >= MAX_STUCK:
            return
        self._frames = FrameReader()
        self._asked_s = None
        self._has_answered = False
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._environ
        )

    def _receive(self, timeout_s: float) -> Readings | None:
        process = self._process
        if process is None or process.stdout is None:
            return None
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, timeout_s))
        if not ready:
            return None
        piece = os.read(process.stdout.fileno(), 1 << 16)
        if not piece:
            self._fail(self._death_words())
            return None
        try:
            frames = self._frames.feed(piece)
            return self._take(frames)
        except (ValueError, msgspec.MsgspecError) as problem:
            self._fail(f"reader's answer not understood: {problem}")
            return None

    def _take(self, frames: Sequence[tuple[Frame, bytes]]) -> Readings | None:
        fresh = None
        for kind, body in frames:
            if kind is Frame.NUDGE:
                self._nudged = True
                continue
            fresh = msgspec.msgpack.decode(body, type=Readings)
            self._asked_s, self._has_answered = None, True
        if fresh is None:
            return None
        self._failures, self._trouble = 0, ""
        self._good, self._good_at_s = fresh, self._clock()
        if fresh.state not in {NodeState.OK, NodeState.DEGRADED}:
            self._part(self._times.probe_s)
        return fresh

    def _last(self) -> Readings:
        now_s = self._clock()
        if self._good is None:
            return Readings(state=NodeState.STALE, message=self._trouble or "first sweep is under way")
        age_s = now_s - self._good_at_s
        aged = replace(self._good, events=(), errors=(), age_s=age_s)
        is_late = age_s >= self._times.deadline_s or self._trouble
        if not is_late or self._good.state not in {NodeState.OK, NodeState.DEGRADED}:
            return aged
        return replace(aged, state=NodeState.STALE, message=self._trouble or f"last sweep is {age_s:.0f} s old")

    def _fail(self, words: str) -> None:
        logger.warning("reader: %s", words)
        self._failures += 1
        self.restarts += 1
        self._trouble = words
        self._part(min(self._times.restart_limit_s, self._times.restart_s * 2 ** min(self._failures - 1, 10)))

    def _part(self, pause_s: float) -> None:
        """Let the process go and start the next one after a pause."""
        process, self._process, self._asked_s = self._process, None, None
        self._start_due_s = self._clock() + pause_s
        if process is None:
            return
        self._kill(process)
        self._drop_pipes(process)

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        try:
            process.wait(0.2)
        except subprocess.TimeoutExpired:
            self._stuck.append(process)

    def _drop_pipes(self, process: subprocess.Popen[bytes]) -> None:
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _death_words(self) -> str:
        status = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                status = self._process.wait(1.0)
        return (
            f"reader was ended by signal {-status}" if status and status < 0 else f"reader ended with status {status}"
        )
