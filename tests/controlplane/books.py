"""The books twice: as the pods' annotations tell them, and as the extender does; and what devices can hold at most.

Annotations are read here anew, without the product's reader, so that a mistake there cannot hide itself.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from node_agent.simulated import device_uuid, instance_uuid
from node_agent.simulated_description import Description
from node_agent.simulated_products import Product
from tests.controlplane.api import Json
from tests.controlplane.kubelet import is_terminal

ALLOCATION = "tangram.dev/allocation"
_WHOLE_MILLI = 1000


@dataclass(frozen=True, slots=True)
class Hardware:
    """One simulated device: where it is, what it is, and what it can give away."""

    node: str
    product: str
    facts: Product
    capacity_mib: int
    mig_profile: str | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """What one container of one pod holds of a device."""

    pod_uid: str
    container: str
    memory_mib: int
    compute_milli: int


Books = dict[str, set[Share]]
"""Shares by UUID of the device; devices of which nobody holds any are left out."""


def hardware(descriptions: Iterable[Description]) -> dict[str, Hardware]:
    """Return every schedulable device of a described fleet by UUID."""
    found = {}
    for description in descriptions:
        node = description.node
        for index, row, product in description.rows():
            if row.mig is None:
                whole = Hardware(node, row.product, product, product.total_mib - product.reserved_mib)
                found[device_uuid(node, index)] = whole
            for number, profile in enumerate(row.mig or ()):
                size = product.mig[profile].memory_mib
                found[instance_uuid(node, index, number)] = Hardware(node, row.product, product, size, profile)
    return found


def devices_of(pod: Json) -> list[str]:
    """Return the UUIDs of the devices that a pod's allocation names, once for each share."""
    text = pod["metadata"].get("annotations", {}).get(ALLOCATION)
    containers = json.loads(text)["containers"] if text else {}
    return [share["uuid"] for shares in containers.values() for share in shares]


def annotated(pods: Iterable[Json]) -> Books:
    """Return the books as the annotations of the bound pods that have not ended tell them."""
    books: Books = {}
    for pod in pods:
        text = pod["metadata"].get("annotations", {}).get(ALLOCATION)
        if not text or not pod["spec"].get("nodeName") or is_terminal(pod):
            continue
        for container, shares in json.loads(text)["containers"].items():
            for each in shares:
                held = Share(pod["metadata"]["uid"], container, each["memory_mib"], each["compute_milli"])
                books.setdefault(each["uuid"], set()).add(held)
    return books


def booked(fleet: Json) -> Books:
    """Return the books as the extender's `/v1/fleet` tells them. Raises AssertionError where its sums disagree."""
    books: Books = {}
    for node in fleet["nodes"]:
        for device in node["devices"]:
            shares = {
                Share(each["pod_uid"], each["container"], each["memory_mib"], each["compute_milli"])
                for each in device["shares"]
            }
            assert sum(each.memory_mib for each in shares) == device["booked_mib"], device
            assert sum(each.compute_milli for each in shares) == device["booked_milli"], device
            if shares:
                books[device["uuid"]] = shares
    return books


def overfull(books: Books, devices: Mapping[str, Hardware]) -> list[str]:
    """Return in words which devices gave away more than they have."""
    found = []
    for uuid, shares in books.items():
        mib, milli = sum(each.memory_mib for each in shares), sum(each.compute_milli for each in shares)
        if mib > devices[uuid].capacity_mib or milli > _WHOLE_MILLI:
            found.append(f"{uuid}: {mib} of {devices[uuid].capacity_mib} MiB, {milli} of {_WHOLE_MILLI} thousandths")
    return found
