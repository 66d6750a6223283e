"""``tangram top`` and ``tangram usage``: what is booked, and what is used of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from extender.cli.arguments import Access, Output
from extender.cli.client import client_for
from extender.cli.output import mib, percent, plain, print_json, print_lines, print_table
from extender.cli.problems import NOT_FOUND, CliProblem

_ORDERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "node": lambda row: (row["node"],),
    "booked": lambda row: (-row["booked_milli"] / (row["capacity_milli"] or 1), -row["booked_mib"]),
    "used": lambda row: (-(row["utilisation"] or 0.0), -(row["used_mib"] or 0)),
    "free": lambda row: (row["booked_mib"] + row["foreign_mib"] - row["capacity_mib"],),
}
_COLUMNS = (
    "node", "device", "product", "mode", "health", ">pods", ">memory GiB", ">booked", ">used", ">foreign", ">compute",
    ">busy",
)  # fmt: skip
_HOLDER_COLUMNS = ("pod", "node", "device", ">booked GiB", ">used GiB", ">booked %", ">used %", ">idle min")


def top(access: Access, order: str, node: str) -> None:
    """Print a row a device."""
    rows = client_for(access).json("v1", "devices")["devices"]
    rows = sorted((row for row in rows if not node or row["node"] == node), key=_ORDERS[order])
    if node and not rows:
        raise CliProblem(f"node {node}: no device of it is known", NOT_FOUND)
    if access.output is Output.JSON:
        print_json({"devices": rows})
        return
    print_table(_COLUMNS, [_cells(row) for row in rows])
    print_lines([_summary(rows)])


def usage(access: Access, idle_minutes: float) -> None:
    """Print idle holders, overuse and hours."""
    found = client_for(access).json("v1", "usage", query={"idle_after_s": idle_minutes * 60})
    if access.output is Output.JSON:
        print_json(found)
        return
    for title, holders in (
        (f"Booked and idle for {idle_minutes:g} minutes or more:", found["idle"]),
        ("Using more than booked:", found["over"]),
    ):
        print_lines([title] if holders else [f"{title} nobody"])
        if holders:
            print_table(_HOLDER_COLUMNS, [_holder_cells(each) for each in holders])
    hours = sorted(found["hours"].items(), key=lambda entry: -entry[1]["idle"])
    print_lines([f"GPU hours in the last {found['since_s'] / 3600:.1f} hours, since this extender began:"])
    print_table(
        ("namespace", ">booked", ">idle", ">idle %"),
        [(name, f"{h['booked']:.2f}", f"{h['idle']:.2f}", percent(h["idle"], h["booked"])) for name, h in hours],
    )


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["node"],
        row["uuid"],
        row["product"],
        row["mode"],
        _health(row),
        str(row["pods"]),
        mib(row["capacity_mib"]),
        mib(row["booked_mib"]),
        mib(row["used_mib"]),
        mib(row["foreign_mib"]),
        percent(row["booked_milli"], row["capacity_milli"]),
        percent(row["utilisation"]),
    )


def _health(row: dict[str, Any]) -> str:
    if not row["fresh"]:
        return "no report"
    return f"{row['health']}: {plain(row['problem'])}" if row["problem"] else str(row["health"])


def _summary(rows: list[dict[str, Any]]) -> str:
    whole_mib, whole_milli = sum(row["capacity_mib"] for row in rows), sum(row["capacity_milli"] for row in rows)
    known = [row["utilisation"] for row in rows if row["utilisation"] is not None]
    busy = percent(sum(known) / len(known)) if known else "-"
    return (
        f"{len(rows)} devices: {percent(sum(row['booked_mib'] for row in rows), whole_mib)} of memory and "
        f"{percent(sum(row['booked_milli'] for row in rows), whole_milli)} of compute booked, {busy} busy"
    )


def _holder_cells(holder: dict[str, Any]) -> tuple[str, ...]:
    return (
        f"{holder['namespace']}/{holder['pod']}",
        holder["node"],
        holder["uuid"],
        mib(holder["booked_mib"]),
        mib(holder["used_mib"]),
        f"{holder['booked_milli'] / 10:g}",
        percent(holder["used_ratio"]).removesuffix("%"),
        f"{holder['idle_s'] / 60:.0f}",
    )
