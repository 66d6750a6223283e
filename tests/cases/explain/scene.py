"""Reads a case: a pod, the nodes as their agents report them, the pods that are there; returns what explain says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from extender.decisions import Decision, Decisions, Verb
from extender.evaluations import Evaluations
from extender.explaining import Explained, Explainer, diagnosed
from extender.objects import Pod
from extender.observing import observe_pod
from extender.settings import Settings
from extender.store import ClusterStore
from node_agent.report import Device, Health, Mig, Mode, PluginResource
from tests.support.builders import PREFIX, bound, identity, node_facts, report

PRODUCTS: dict[str, dict[str, Any]] = {
    "T4": {"name": "Tesla T4", "compute_capability": (7, 5), "total_mib": 15_360},
    "V100": {"name": "Tesla V100-SXM2-16GB", "compute_capability": (7, 0), "total_mib": 16_384},
    "A100": {"name": "NVIDIA A100-SXM4-80GB", "compute_capability": (8, 0), "total_mib": 81_920},
}
NOW = 1000.0


@dataclass(frozen=True)
class Case:
    name: str
    about: str
    scene: dict[str, Any]
    answer: str


def cases() -> list[Case]:
    found = []
    for path in sorted(Path(__file__).parent.glob("*.yaml")):
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        found.append(Case(path.stem, raw["about"], raw, raw["answer"]))
    return found


def explained(scene: dict[str, Any]) -> Explained:
    """Build the cluster of a case and ask why its pod is where it is."""
    settings = Settings()
    store, decisions = ClusterStore(settings), Decisions(10)
    for node in scene["nodes"]:
        _add_node(store, node)
    for there in scene.get("there", ()):
        store.set_pod(_there(there))
    for name, node, priority, asks in (tuple(each) for each in scene.get("nominated", ())):
        promised = _pod({"name": name, "asks": asks, "nominated": node, "priority": priority})
        store.set_pod(observe_pod(promised, PREFIX))
    if scene.get("late"):
        store.expire(NOW + settings.stale_after_s + 1)
    pod = _pod(scene["pod"])
    if scene.get("asked", True):
        decisions.note(_decision(pod, scene.get("offered", len(scene["nodes"]))))
    explainer = Explainer(store, Evaluations(settings), settings, decisions)
    return explainer.answer(diagnosed(explainer.question(pod)))


def without_scores(line: str) -> str:
    """Return a line without the numbers that another weight of a scorer would change."""
    return re.sub(r"score \d.*", "score ...", line)


def _add_node(store: ClusterStore, node: dict[str, Any]) -> None:
    store.set_node(node_facts(node["name"], totals=tuple((node.get("totals") or {}).items())))
    if node.get("silent"):
        return
    devices = tuple(
        _device(f"GPU-{node['name']}-{number}", row)
        for number, row in enumerate(row for row in node.get("devices", ()) for _ in range(row.get("count", 1)))
    )
    plugin = tuple(PluginResource(**row) for row in node.get("plugin", ()))
    values = {"driver": node["driver"]} if "driver" in node else {}
    store.apply_report(report(node["name"], *devices, plugin=plugin, **values), NOW)


def _device(uuid: str, row: dict[str, Any]) -> Device:
    values = {**PRODUCTS[row["product"]], **row.get("values", {})}
    if "health" in values:
        values["health"] = Health(values["health"])
    if "mode" in values:
        values["mode"] = Mode(values["mode"])
    if "profile" in row:
        values |= {"mig": Mig(parent_uuid="GPU-parent", profile=row["profile"]), "mode": Mode.MIG}
    return Device(uuid=uuid, **values)


def _there(row: dict[str, Any]) -> Any:
    if row.get("unrecorded"):
        return observe_pod(_pod({"name": row["name"], "asks": {"gpu": 1}, "node": row["node"]}), PREFIX)
    return bound(
        row["name"], row["uuid"], row["memory"], row["compute"], row["node"], pod=identity(row["name"]), request=None
    )


def _pod(row: dict[str, Any]) -> Pod:
    containers = row.get("containers") or [{"name": "main", "asks": row["asks"]}]
    raw = {
        "metadata": {
            "name": row.get("name", "train"),
            "namespace": "ml",
            "uid": f"uid-{row.get('name', 'train')}",
            "labels": row.get("labels", {f"{PREFIX}managed": "true"}),
            "annotations": {PREFIX + key: text for key, text in row.get("annotations", {}).items()},
        },
        "spec": {
            "schedulerName": row.get("scheduler", "tangram-scheduler"),
            "nodeName": row.get("node", ""),
            "priority": row.get("priority", 0),
            "schedulingGates": [{"name": name} for name in row.get("gates", ())],
            "containers": [_container(each) for each in containers],
        },
        "status": {"phase": "Pending", "nominatedNodeName": row.get("nominated", "")},
    }
    return msgspec.json.decode(msgspec.json.encode(raw), type=Pod)


def _container(row: dict[str, Any]) -> dict[str, Any]:
    limits = {key if "/" in key else PREFIX + key: str(amount) for key, amount in row["asks"].items()}
    return {"name": row["name"], "resources": {"limits": limits, "requests": limits}}


def _decision(pod: Pod, offered: int) -> Decision:
    """Return the last answer to kube-scheduler: it offered so many nodes, of which all passed."""
    who = pod.metadata
    return Decision(Verb.FILTER, 0.0, who.uid, who.namespace, who.name, "fits", 1, 0.1, offered, offered)
