"""The extender's metric families: the one place where names, kinds, labels and help texts are written down.

Base units are in the names (node-side.md 4.3). Labels come from closed sets, or from the nodes and products that the
cluster has; a series for a single device is the agents' business. ``docs/metrics.md`` has a row for each.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What Prometheus takes a family for."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family:
    """One family. ``name`` is the one to query: counters end in ``_total``, histograms have no suffix."""

    name: str
    kind: Kind
    words: str
    labels: tuple[str, ...] = ()


def _counter(name: str, words: str, *labels: str) -> Family:
    return Family(f"tangram_extender_{name}_total", Kind.COUNTER, words, labels)


def _gauge(name: str, words: str, *labels: str) -> Family:
    return Family(f"tangram_extender_{name}", Kind.GAUGE, words, labels)


def _of_nodes(name: str, words: str, *labels: str) -> Family:
    return _gauge(name, words, "node", "product", *labels)


REQUESTS = _counter("requests", "Calls of kube-scheduler by how they were answered", "verb", "outcome")
REQUEST_SECONDS = Family(
    "tangram_extender_request_duration_seconds",
    Kind.HISTOGRAM,
    "Time to answer kube-scheduler, without the transport",
    ("verb",),
)
DECISIONS = _counter("decisions", "Decisions by the policy that they were made with", "verb", "policy", "outcome")
REJECTIONS = _counter("filter_rejections", "Nodes that filter refused, by reason", "reason")
BINDS = _counter("binds", "Binds by how they ended", "outcome")
BIND_CONFLICTS = _counter("bind_conflicts", "Binds lost because the world had changed since filter", "outcome")
REPORTS = _counter("reports", "Agent reports by what became of them", "outcome")
ADVERTISEMENTS = _counter("advertisements", "Writes of node totals by outcome", "outcome")
WAKES = _counter("wakes", "Node annotations written to wake waiting pods", "outcome")
ADMISSIONS = _counter("admissions", "Pods judged at admission, by webhook and outcome", "webhook", "outcome")
POD_EVENTS = _counter("pod_events", "Events about waiting pods by what became of them", "outcome")
EXPLANATIONS_LOST = _counter("explanations_lost", "Attempts and explanations that could not be kept", "cause")
TROUBLE_EVENTS = _counter("trouble_events", "Events about devices in trouble by what became of them", "outcome")
REFLECTOR = tuple(
    _counter(f"reflector_{name}", words, "kind")
    for name, words in {
        "lists": "Lists that were begun",
        "watches": "Watches that were begun",
        "events": "Objects that watches set or deleted",
        "skips": "Objects that could not be decoded",
        "gone": "Answers 410: the version to watch from is too old",
        "errors": "Everything else that ended a list or a watch early",
    }.items()
)
SETTLED = _counter("settled", "Reservations settled by a later read", "outcome")

NODES = _gauge("nodes", "Nodes by what is known of them", "state")
HOLDINGS = _gauge("holdings", "Pods that hold something of a node", "phase")
BOOKS_DRIFT = _gauge("books_drift", "Contradictions between books, pods and hardware", "kind")
SNAPSHOT_AGE = _gauge("snapshot_age_seconds", "Time since the newest word from each source of the state", "source")
WAITING = _gauge("pods_waiting", "Pods that ask for devices and have no node yet, by what stands in the way", "reason")
SILENCE = _gauge("reflector_silence_seconds", "Time since the API server was heard last", "kind")
IN_TROUBLE = _gauge("devices_in_trouble", "Devices in trouble by kind", "kind")
PODS_IN_TROUBLE = _gauge(
    "pods_on_devices_in_trouble",
    "Pods that hold a share of a device in trouble; at most a thousand are named",
    *("namespace", "pod", "node", "uuid", "kind"),
)
HOLDERS = _gauge("gpu_holders", "Shares whose use is far from what was booked: idle for an hour, or over", "kind")
HOURS_BOOKED = _counter("gpu_hours_booked", "GPU hours that pods booked since the process began", "namespace")
HOURS_IDLE = _counter("gpu_hours_idle", "GPU hours that pods booked and left idle since then", "namespace")

DEVICES = _of_nodes("gpu_devices", "Devices by whether they take new pods", "state")
MEMORY_TOTAL = _of_nodes("gpu_memory_total_bytes", "Schedulable memory of the devices")
MEMORY_ALLOCATED = _of_nodes("gpu_memory_allocated_bytes", "Memory that pods booked")
MEMORY_FOREIGN = _of_nodes("gpu_memory_foreign_bytes", "Memory held by processes of no pod of ours; absent at none")
MEMORY_STRANDED = _of_nodes(
    "gpu_memory_stranded_bytes", "Free memory on healthy devices without free compute; absent at none"
)
COMPUTE_TOTAL = _of_nodes("gpu_compute_total_devices", "Compute of the devices, in whole devices")
COMPUTE_ALLOCATED = _of_nodes("gpu_compute_allocated_devices", "Compute that pods booked, in whole devices")
FRAGMENTATION = _of_nodes(
    "fragmentation_ratio", "Part of the free compute that lies on devices with pods; absent where none is free"
)
SHARES_ON_OUT = _of_nodes("gpu_shares_on_out_devices", "Shares that pods hold of devices that are out; absent at none")
SHARED_PODS = _gauge("gpu_shared_pods", "Shares of devices that pods hold", "product")

COUNTERS = (
    REQUESTS,
    DECISIONS,
    REJECTIONS,
    BINDS,
    BIND_CONFLICTS,
    REPORTS,
    ADVERTISEMENTS,
    WAKES,
    SETTLED,
)
STATE = (NODES, HOLDINGS, BOOKS_DRIFT, SNAPSHOT_AGE, WAITING)
FLEET = (
    DEVICES,
    MEMORY_TOTAL,
    MEMORY_ALLOCATED,
    MEMORY_FOREIGN,
    MEMORY_STRANDED,
    COMPUTE_TOTAL,
    COMPUTE_ALLOCATED,
    FRAGMENTATION,
    SHARES_ON_OUT,
    SHARED_PODS,
)
USAGE = (HOURS_BOOKED, HOURS_IDLE)
ELSEWHERE = (
    ADMISSIONS,
    TROUBLE_EVENTS,
    *REFLECTOR,
    SILENCE,
    IN_TROUBLE,
    PODS_IN_TROUBLE,
    EXPLANATIONS_LOST,
    POD_EVENTS,
    HOLDERS,
)
"""Counted or collected by modules of their own, under these names."""

REFUSALS = (
    _counter("agent_refusals", "Agent reports refused, by reason", "reason"),
    _counter("viewer_refusals", "Viewers refused pod names, by reason", "reason"),
)
"""Of a replica in a cluster, where callers have to say who they are."""

EXTENDER_FAMILIES = (*COUNTERS, REQUEST_SECONDS, *STATE, *FLEET, *USAGE, *ELSEWHERE, *REFUSALS)
"""Everything that an extender exports."""
