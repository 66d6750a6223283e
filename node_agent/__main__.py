"""The command ``tangram-agent``: runs on every GPU node, or prints one report and ends (``--once``)."""

from __future__ import annotations

import argparse
import importlib.metadata
import secrets
import signal
import sys
import time
from collections.abc import Sequence

import msgspec

from node_agent.agent import Agent
from node_agent.assembly import Build, assemble
from node_agent.inventory import Identity
from node_agent.logs import set_up
from node_agent.report import NodeState, Report
from node_agent.settings import SettingsError, load_settings

EXIT_OK = 0
EXIT_NO_GPU = 3
EXIT_USAGE = 2
EXIT_RESTART = 4


ONCE_DEADLINE_S = 15.0

_USABLE = frozenset({NodeState.OK, NodeState.DEGRADED})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0; 2 unusable settings, 3 no usable GPU, 4 wants a restart."""
    options = _parser().parse_args(arguments)
    try:
        settings = load_settings(overrides=_overrides(options))
        set_up(settings.log_level)
        build = assemble(settings)
    except (SettingsError, ValueError) as problem:
        print(problem, file=sys.stderr)
        return EXIT_USAGE
    agent = Agent(Identity(build.node, secrets.token_hex(8), _version()), build.parts, settings.sweep_s)
    if options.once:
        return _once(agent, build, as_json=options.output == "json")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    build.start()
    try:
        return EXIT_OK if agent.run() else EXIT_RESTART
    finally:
        build.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tangram-agent", description=__doc__)
    parser.add_argument("--once", action="store_true", help="print one report and end")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="how --once prints")
    parser.add_argument("--simulate", metavar="FILE", help="read this description instead of GPUs")
    parser.add_argument("--node", help="this node's name")
    parser.add_argument("--urls", help="base URLs of the extender, comma separated")
    return parser


def _overrides(options: argparse.Namespace) -> dict[str, object]:
    return {name: value for name in ("simulate", "node", "urls") if (value := getattr(options, name)) is not None}


def _version() -> str:
    try:
        return importlib.metadata.version("tangram-gpu")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _once(agent: Agent, build: Build, *, as_json: bool) -> int:
    build.claims_once()
    sweep = agent.step()
    deadline_s = time.monotonic() + ONCE_DEADLINE_S
    while sweep.readings.state is NodeState.STALE and time.monotonic() < deadline_s:
        sweep = agent.step()
    build.parts.reader.close()
    _print(sweep.report, as_json=as_json)
    if sweep.report.state in _USABLE:
        return EXIT_OK
    print(f"no usable GPU on this node: {sweep.report.message or sweep.report.state}", file=sys.stderr)
    return EXIT_NO_GPU


def _print(report: Report, *, as_json: bool) -> None:
    from node_agent.table import render

    print(msgspec.json.encode(report).decode() if as_json else render(report))


if __name__ == "__main__":
    sys.exit(main())
