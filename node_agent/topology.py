"""Which devices of a node are close to each other: NVLink groups, and the NUMA node of a PCI address."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

SWITCH = "switch"
SAME_NUMA_NODE = 40
"""NVML's level of common ancestor for one NUMA node; smaller is closer (node-side.md 1.5, common ancestor)."""


def link_groups(peers: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Number the groups of devices that reach each other by NVLink.

    ``peers`` maps a device's PCI address to where its links lead: addresses, or ``switch``. An NVSwitch joins all its
    devices, since NVML does not say which. Devices without a link into the node are in no group. Groups are numbered in
    order of address.
    """
    leader = {address: address for address in peers}

    def find(address: str) -> str:
        while leader[address] != address:
            address = leader[address]
        return address

    on_switch = sorted(address for address, ends in peers.items() if SWITCH in ends)
    pairs = [(on_switch[0], address) for address in on_switch[1:]]
    pairs += [(address, end) for address, ends in peers.items() for end in ends if end in leader]
    for first, second in pairs:
        leader[find(second)] = find(first)
    members: dict[str, list[str]] = {}
    for address in sorted(peers):
        members.setdefault(find(address), []).append(address)
    linked = [group for group in members.values() if len(group) > 1]
    return {address: number for number, group in enumerate(linked) for address in group}


def near_groups(count: int, are_near: Callable[[int, int], bool]) -> list[int | None]:
    """Number the groups of things 0..count-1 that are near each other, None for one that is near to no other.

    Nearness is taken to be an equivalence, as a common ancestor is: each is compared with one member of each group.
    """
    groups: list[list[int]] = []
    for each in range(count):
        home = next((group for group in groups if are_near(group[0], each)), None)
        if home is None:
            groups.append([each])
        else:
            home.append(each)
    found: list[int | None] = [None] * count
    for number, group in enumerate(group for group in groups if len(group) > 1):
        for each in group:
            found[each] = number
    return found


def numa_node(sysfs_root: Path, pci_bus_id: str) -> int | None:
    """Return the NUMA node of an address as NVML writes it (``00000000:65:00.0``), None where there is none."""
    short = pci_bus_id[-12:].lower()
    try:
        number = int((sysfs_root / "bus/pci/devices" / short / "numa_node").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
    return number if number >= 0 else None
