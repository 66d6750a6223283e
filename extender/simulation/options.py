"""How the simulation is to run: from the command line, or from FOR, SEED and PORT as ``make run`` passes them."""

from __future__ import annotations

import argparse
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_LONGEST_S = 7 * 24 * 3600.0


class InvalidOption(ValueError):
    """An option cannot be used; the message names it, the value found and what is valid."""


@dataclass(frozen=True, slots=True)
class Options:
    """``for_s`` None runs until interrupted; ``port`` is that of the live page."""

    for_s: float | None
    seed: int
    port: int


def read_options(arguments: Sequence[str], environment: Mapping[str, str]) -> Options:
    """Return the options; the command line wins over the environment. Raises InvalidOption."""
    parser = argparse.ArgumentParser(prog="python -m extender.simulation.run", description=__doc__)
    parser.add_argument("--for", dest="for_s", metavar="SECONDS", help="stop after so many seconds (FOR)")
    parser.add_argument("--seed", help="another seed, another part of the trace (SEED)")
    parser.add_argument("--port", help="port of the live page, default: a free one (PORT)")
    found = parser.parse_args(arguments)
    duration = found.for_s or environment.get("FOR", "")
    seed = found.seed or environment.get("SEED", "") or "1"
    port = found.port or environment.get("PORT", "") or "0"
    return Options(
        for_s=_number("FOR", duration, 1.0, _LONGEST_S) if duration else None,
        seed=int(_number("SEED", seed, 0, 2**31 - 1)),
        port=_free_port(int(_number("PORT", port, 0, 65_535))),
    )


def _number(name: str, text: str, low: float, high: float) -> float:
    try:
        value = float(text) if name == "FOR" else int(text)
    except ValueError:
        value = low - 1
    if not low <= value <= high:
        raise InvalidOption(f"{name}: found {text!r}, valid is a number from {low:g} to {high:g}")
    return value


def _free_port(wanted: int) -> int:
    """Return the port if nobody listens there, or any free one for 0."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError as problem:
            raise InvalidOption(f"PORT: found {wanted}, valid is a port that is free: {problem.strerror}") from problem
        return int(probe.getsockname()[1])
