"""Gauges of the cluster's state for Prometheus: counts by closed sets, never a series a device."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from extender.store import ClusterStore
from scoring.fleet import DeviceState, NodeState

Gauges = dict[str, tuple[str, str, Mapping[str, float]]]
"""Name -> help text, label, and one value for each label value."""


def state_gauges(store: ClusterStore) -> Gauges:
    """Return the gauges as they are now."""
    fleet = store.snapshot()
    nodes = np.bincount(fleet.node_state, minlength=len(NodeState))
    devices = np.bincount(fleet.device_state.ravel(), minlength=len(DeviceState))
    present = fleet.kind >= 0
    memory = {
        "capacity": float(fleet.capacity_mib[present].sum(dtype=np.int64)),
        "booked": float(fleet.booked_mib[present].sum(dtype=np.int64)),
        "foreign": float(fleet.foreign_mib[present].sum(dtype=np.int64)),
    }
    compute = {
        "capacity": float(fleet.capacity_milli[present].sum(dtype=np.int64)) / 1000,
        "booked": float(fleet.booked_milli[present].sum(dtype=np.int64)) / 1000,
    }
    assumed = store.ledger.assumed()
    holdings = {
        "assumed": float(len(assumed)),
        "in_doubt": float(sum(holding.outcome_unknown for holding in assumed)),
        "confirmed": float(len(store.ledger) - len(assumed)),
    }
    return {
        "tangram_extender_nodes": (
            "Nodes by what is known of them",
            "state",
            {state.name.lower(): float(nodes[state]) for state in NodeState if state is not NodeState.EMPTY},
        ),
        "tangram_extender_devices": (
            "Devices by whether they take new pods",
            "state",
            {state.name.lower(): float(devices[state]) for state in DeviceState if state is not DeviceState.ABSENT},
        ),
        "tangram_extender_memory_mib": ("Schedulable GPU memory of all devices, in MiB", "part", memory),
        "tangram_extender_compute_devices": ("Compute of all devices, in whole devices", "part", compute),
        "tangram_extender_holdings": ("Pods that hold something of a node", "phase", holdings),
        "tangram_extender_overbooked_devices": (
            "Devices that have given away more than they have",
            "kind",
            {"any": float(len(store.overbooked()))},
        ),
    }
