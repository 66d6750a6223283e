"""The command ``tangram-agent``: runs on every GPU node, or prints one report and ends (``--once``)."""

from __future__ import annotations

import argparse
import importlib.metadata
import logging
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from node_agent.agent import Agent, NowhereOutlet, Outlet, Parts, Sweep
from node_agent.inventory import Identity
from node_agent.report import NodeState, Report
from node_agent.settings import Settings, SettingsError, load_settings

EXIT_OK = 0
EXIT_NO_GPU = 3
EXIT_USAGE = 2


@dataclass(frozen=True, slots=True)
class Build:
    """An agent put together: for which node, from which parts, and what to start and to close around its loop."""

    node: str
    parts: Parts
    start: Callable[[], None]
    close: Callable[[], None]


_USABLE = frozenset({NodeState.OK, NodeState.DEGRADED})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status: 0, 2 for unusable settings, 3 for a node without usable GPUs."""
    options = _parser().parse_args(arguments)
    try:
        settings = load_settings(overrides=_overrides(options))
        build = _build(settings, _outlet(settings))
    except (SettingsError, ValueError) as problem:
        print(problem, file=sys.stderr)
        return EXIT_USAGE
    logging.basicConfig(
        level=settings.log_level, format='{"level":"%(levelname)s","logger":"%(name)s","event":"%(message)s"}'
    )
    agent = Agent(Identity(build.node, secrets.token_hex(8), _version()), build.parts, settings.sweep_s)
    if options.once:
        return _once(agent, build, as_json=options.output == "json")
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: agent.stop())
    build.start()
    try:
        agent.run()
    finally:
        build.close()
    return EXIT_OK


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


def _outlet(settings: Settings) -> Outlet:
    urls = settings.url_list()
    if not urls:
        return NowhereOutlet()
    from node_agent.endpoint import Credentials, Endpoint
    from node_agent.pace import PaceTimes
    from node_agent.publisher import Publisher

    return Publisher(
        [Endpoint.parse(url) for url in urls],
        Credentials(settings.token_path(), settings.ca_path()),
        PaceTimes(heartbeat_s=settings.heartbeat_s),
        settings.push_timeout_s,
    )


def _build(settings: Settings, outlet: Outlet) -> Build:
    if not settings.simulate:
        raise SettingsError("TANGRAM_AGENT_SIMULATE: not set, and this version reads simulated GPUs only")
    from node_agent.publisher import Publisher
    from node_agent.simulated import SimulatedReader, claims_of
    from node_agent.simulated_description import load_descriptions

    descriptions = load_descriptions(Path(settings.simulate))
    description = next((each for each in descriptions if each.node == settings.node), descriptions[0])
    reader = SimulatedReader(description, time.monotonic, lambda: outlet.heard().bookings)
    claims = claims_of(description)
    start, close = (outlet.start, outlet.stop) if isinstance(outlet, Publisher) else (_nothing, _nothing)
    return Build(description.node, Parts(reader, reader, lambda: claims, outlet), start, close)


def _nothing() -> None:
    """Do nothing."""


def _once(agent: Agent, build: Build, *, as_json: bool) -> int:
    sweep: Sweep = agent.step()
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
