"""``tangram cordon`` and ``uncordon``: one annotation of the node, written with the user's own rights."""

from __future__ import annotations

from extender.allocation import DEFAULT_PREFIX
from extender.cli.arguments import Access, Output
from extender.cli.client import client_for
from extender.cli.cluster import change_cordon, check_uuid, core_api
from extender.cli.output import print_json, print_lines
from extender.cli.problems import NOT_FOUND, CliProblem

CORDONED = f"{DEFAULT_PREFIX}cordoned"


def cordon(access: Access, uuid: str, node: str, *, cordon: bool) -> None:
    """Put a device on its node's list of cordoned ones, or take it off; without a node the extender is asked for it."""
    check_uuid(uuid)
    where = node or _node_of(access, uuid)
    listed = change_cordon(core_api(access), where, uuid, CORDONED, cordon=cordon)
    if access.output is Output.JSON:
        print_json({"node": where, "uuid": uuid, "cordoned": listed})
        return
    said = "gets no new pods; those on it stay" if cordon else "gets new pods again"
    print_lines([f"{uuid} on node {where} {said}."])


def _node_of(access: Access, uuid: str) -> str:
    for row in client_for(access).json("v1", "devices")["devices"]:
        if row["uuid"] == uuid:
            return str(row["node"])
    raise CliProblem(f"device {uuid} is on no node that has reported; name its node with --node", NOT_FOUND)
