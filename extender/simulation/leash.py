"""Child processes that end when their parent does, however it ends.

The parent holds the writing end of the child's standard input. When that closes, the child asks itself to stop, and
leaves at once if it has not within a few seconds: ``python -m extender.simulation.leash MODULE``.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

_PATIENCE_S = 8.0


class Child:
    """A module running in a process of its own."""

    def __init__(self, module: str, environment: Mapping[str, str]) -> None:
        self.module = module
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module names
            [sys.executable, "-m", "extender.simulation.leash", module],
            stdin=subprocess.PIPE,
            env={**os.environ, **environment},
            start_new_session=True,  # Ctrl-C is for the parent, which stops its children in order.
        )

    @property
    def process_id(self) -> int:
        """Return its process id."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Return how it ended; None while it runs."""
        return self._process.poll()

    def stop(self) -> int:
        """Ask it to stop, insist after a while, and return its exit status."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            return self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            if self._process.stdin is not None:
                self._process.stdin.close()


def main() -> None:
    """Run a module on the leash."""
    module = sys.argv[1]
    threading.Thread(target=_follow_parent, name="leash", daemon=True).start()
    sys.argv = [module]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _follow_parent() -> None:
    """Wait until the parent lets go of our standard input, then stop this process."""
    with contextlib.suppress(OSError):
        while os.read(0, 1024):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_PATIENCE_S / 2)
    os._exit(1)


if __name__ == "__main__":
    main()
