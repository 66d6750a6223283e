"""``tangram audit``: exit 0 where books, annotations and measurements agree, 1 where they differ."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from extender.cli.arguments import Access, Output
from extender.cli.client import client_for
from extender.cli.output import print_json, print_lines
from extender.cli.problems import FOUND_SOMETHING


def audit(access: Access) -> None:
    """Print every difference and what to do."""
    found = client_for(access).json("v1", "audit")
    if access.output is Output.JSON:
        print_json(found)
    else:
        print_lines(_lines(found))
    if found["findings"]:
        raise SystemExit(FOUND_SOMETHING)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    for kind, group in groupby(found["findings"], key=lambda each: each["kind"]):
        findings = list(group)
        yield f"{kind} ({len(findings)})"
        for each in findings:
            where = " ".join(part for part in (each["node"], each["uuid"], each["pod"]) if part)
            yield f"  {where}: {each['found']}"
        yield f"  What to do: {findings[0]['advice']}."
    if not found["findings"]:
        yield "Books, annotations and measurements agree."
    if found["silent_nodes"]:
        yield f"Not compared, because their agents have not been heard: {', '.join(found['silent_nodes'])}."
