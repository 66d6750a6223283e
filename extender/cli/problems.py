"""What can keep a command from doing its work, with the exit status that says so."""

from __future__ import annotations

FOUND_SOMETHING = 1
WRONG_USAGE = 2
NOT_REACHED = 3
NOT_FOUND = 4


class CliProblem(Exception):
    """A command cannot go on; the message is for the terminal, ``status`` for the shell.

    1: what was looked for was found (an audit's findings, an invalid policy). 2: wrong usage. 3: the extender or the
    API server was not reached, or refused. 4: there is no such pod, node or device.
    """

    def __init__(self, message: str, status: int = NOT_REACHED) -> None:
        self.status = status
        super().__init__(message)
