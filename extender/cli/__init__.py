"""The command ``tangram``, also installed as ``kubectl tangram``; nothing heavy is imported before it is needed."""

from __future__ import annotations


def main() -> None:
    """Run the command line of this process and exit."""
    from extender.cli.commands import run

    run()
