"""Runs one command so that it cannot outlive its starter: `python tether.py PARENT_PID COMMAND [ARGUMENT ...]`.

Fixtures are not torn down when a test run is killed, and a control plane that stays behind costs 300 MB. Linux can send
a process a signal when its parent dies; the setting survives exec, so the command keeps this process's id and needs no
code between fork and exec in a parent that has threads. Elsewhere the command is simply run.

The kernel counts the *thread* that started the process as its parent: start long-lived commands from one that stays.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Ask to be killed with the parent, then become the command."""
    expected_parent = int(sys.argv[1])
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != expected_parent:  # it died before the line above
            sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
