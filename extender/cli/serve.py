"""``tangram serve`` and ``tangram simulate``: the long-running commands."""

from __future__ import annotations

import os
from collections.abc import Sequence

from extender.cli.arguments import ENVIRONMENT


def serve() -> int:
    """Serve the extender until told to stop; the command line's own variables are no settings of it."""
    for name in ENVIRONMENT:
        os.environ.pop(name, None)
    from extender.__main__ import main

    return main()


def simulate(arguments: Sequence[str]) -> int:
    """Run the simulated cluster; the product runs as a process of its own and must not see our variables."""
    for name in ENVIRONMENT:
        os.environ.pop(name, None)
    from extender.simulation.run import main

    return main(arguments)
