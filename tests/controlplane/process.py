"""A program under test, started and stopped by process id, with its output in a file."""

import atexit
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_TETHER = Path(__file__).with_name("tether.py")
_STOP_S = 5.0
_POLL_S = 0.03
_TAIL_BYTES = 4_000


class ProcessDied(RuntimeError):
    """A program ended by itself; the message ends with the tail of its output."""


class Process:
    """One program that can be stopped, killed, frozen and started again; it never outlives this interpreter.

    Output of every run is appended to `log`. Not thread-safe: start and stop it from one thread that lives on.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.command = tuple(command)
        self.log = log
        self.environment = dict(environment or {})
        self._child: subprocess.Popen[bytes] | None = None
        atexit.register(self.kill)

    @property
    def pid(self) -> int:
        """The process id of the current run. Raises RuntimeError when it was never started."""
        if self._child is None:
            message = f"{self.name} is not running"
            raise RuntimeError(message)
        return self._child.pid

    def is_running(self) -> bool:
        """Tell whether the program was started and has not ended."""
        return self._child is not None and self._child.poll() is None

    def start(self) -> None:
        """Start the program, with the environment of this interpreter and the given additions."""
        if self.is_running():
            message = f"{self.name} is running already as {self.pid}"
            raise RuntimeError(message)
        with self.log.open("ab") as output:
            self._child = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_TETHER), str(os.getpid()), *self.command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **self.environment},
                process_group=0,  # Ctrl-C in a terminal is for the test run, which ends its programs itself
            )

    def stop(self, *, within_s: float = _STOP_S) -> None:
        """Ask the program to end, kill it when it has not after `within_s`; nothing happens when it is not running."""
        if self._child is None:
            return
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)
        try:
            self._child.wait(timeout=within_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill the program as a crash would, and wait until it is gone."""
        if self._child is not None:
            self._signal(signal.SIGKILL)
            self._child.wait()

    def restart(self) -> None:
        """Kill the program if it runs, and start it again."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """Stop the program from running at all without ending it, as a stalled machine would."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen program run on."""
        self._signal(signal.SIGCONT)

    def wait_until(self, ready: Callable[[], bool], *, within_s: float) -> None:
        """Wait for `ready`. Raises ProcessDied when the program ends first, TimeoutError after `within_s`."""
        deadline = time.monotonic() + within_s
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                message = f"{self.name} is not ready after {within_s:.0f} s; its last output:\n{self.tail()}"
                raise TimeoutError(message)
            time.sleep(_POLL_S)

    def check(self) -> None:
        """Raise ProcessDied when the program has ended."""
        if not self.is_running():
            code = None if self._child is None else self._child.returncode
            message = f"{self.name} ended with {code}; its last output:\n{self.tail()}"
            raise ProcessDied(message)

    def tail(self) -> str:
        """Return the last lines of the program's output."""
        if not self.log.exists():
            return "(no output)"
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)
