"""``tangram explain`` and ``tangram why-not``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from extender.cli.arguments import Access, Output
from extender.cli.client import client_for
from extender.cli.output import clock_time, print_json, print_lines

_MOST_REASONS = 4


def explain(access: Access, namespace: str, name: str, attempts: int) -> None:
    """Print why a pod is where it is, and how it came there."""
    found = client_for(access).json("v1", "explain", namespace, name, query={"limit": attempts})
    if access.output is Output.JSON:
        print_json(found)
    else:
        print_lines(_lines(found))


def why_not(access: Access, node: str, namespace: str, name: str) -> None:
    """Print how one node fares for a pod."""
    found = client_for(access).json("v1", "why-not", node, namespace, name)
    if access.output is Output.JSON:
        print_json(found)
    else:
        print_lines(found["words"])


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield from found["words"]
    if found["state"] != "waiting":
        yield from _earlier(found)
    if found["attempts"]:
        yield "Attempts, newest first:"
        yield from (f"  {_attempt(each)}" for each in found["attempts"])
    for kept in found["kept"]:
        if not kept["is_durable"]:
            yield f"Replica {kept['replica']}: {kept['note']}."
        if kept["lost"]:
            lost = ", ".join(f"{count} by {cause}" for cause, count in kept["lost"].items())
            yield f"Replica {kept['replica']} could not keep everything: {lost}."
    for peer in found["peers"]:
        if peer["problem"]:
            yield f"Replica at {peer['address']} did not answer ({peer['problem']}): its attempts are missing here."


def _earlier(found: dict[str, Any]) -> Iterator[str]:
    """Yield the newest explanation that was made while the pod waited."""
    uid = found["uid"]
    earlier = [each for each in found["explanations"] if not uid or each["pod_uid"] == uid]
    if earlier:
        newest = earlier[0]
        yield f"At {clock_time(newest['at'])} it was said:"
        yield from (f"  {line}" for line in newest["body"]["words"])


def _attempt(attempt: dict[str, Any]) -> str:
    times = f" x{attempt['times']} since {clock_time(attempt['first_at'])}" if attempt["times"] > 1 else ""
    parts = [f"{clock_time(attempt['last_at'])}  {attempt['verb']:<8} {attempt['outcome']}{times}"]
    if attempt["verb"] == "filter":
        parts.append(f"{attempt['nodes_out']}/{attempt['nodes_in']} nodes")
    if attempt["node"]:
        parts.append(f"node {attempt['node']}")
    if attempt["devices"]:
        parts.append(", ".join(attempt["devices"]))
    reasons = sorted(attempt["reasons"].items(), key=lambda entry: (-entry[1], entry[0]))
    if reasons:
        parts.append(", ".join(f"{count} {reason}" for reason, count in reasons[:_MOST_REASONS]))
    if attempt["message"]:
        parts.append(attempt["message"])
    return "  ".join(parts)
