"""What callers read who are no viewers: the same devices, amounts and reasons, and nobody's pod.

Whoever reaches the page and the API sees how full devices are and why pods wait. Names of pods, of their namespaces and
containers, and texts that may contain them, are for viewers (``identity.ViewerGate``). What is about one pod from
beginning to end (``explain``, ``why-not``, ``history``, ``audit``) is for viewers altogether.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec

from extender.decisions import Decision
from extender.errors import ExtenderError
from extender.routes.raw import Headers
from extender.usage import Holder, UsageView
from extender.views import DeviceView, FleetView, NodeView, ShareView

HIDDEN = "(hidden)"
"""Stands where a pod's name would be; no pod can be called so."""

Viewers = Callable[[Headers], Awaitable[bool]]
"""Tells whether a request comes from somebody who may see pod names."""

_QUOTED = re.compile(r'"[^"]*"')


class ViewersOnly(ExtenderError):
    """The caller asked about a pod and is no viewer."""

    code = "ViewersOnly"

    def __init__(self) -> None:
        super().__init__(
            "pods are shown to viewers only: send a bearer token of the account tangram-viewer, or of another that the"
            " operator named, for the audience tangram; `kubectl tangram` gets one where you may create it"
        )


async def everyone(headers: Headers) -> bool:
    """Let every caller see pod names: for a loopback address and the simulation."""
    del headers
    return True


def decision_without_names(decision: Decision) -> Decision:
    """Return a decision that says what came out, and not for whom."""
    return msgspec.structs.replace(decision, pod_uid="", namespace="", name=HIDDEN, message="")


def fleet_without_names(fleet: FleetView) -> FleetView:
    """Return a fleet whose shares are nobody's."""
    return {
        **fleet,
        "nodes": [_node(node) for node in fleet["nodes"]],
        "overbooked": [{**each, "pods": [HIDDEN] * _count(each["pods"])} for each in fleet["overbooked"]],
    }


def usage_without_names(usage: UsageView) -> UsageView:
    """Return who idles and who is over, without saying who; hours by namespace stay, metrics have them too."""
    return replace(usage, idle=tuple(map(_holder, usage.idle)), over=tuple(map(_holder, usage.over)))


def words_without_names(words: str) -> str:
    """Return a message of kube-scheduler without what it quotes: claims and volumes that are called as their pods."""
    return _QUOTED.sub('"…"', words)


def _node(node: NodeView) -> NodeView:
    problems = [f"pod {HIDDEN}: {problem.partition(': ')[2]}" for problem in node["problems"]]
    return {**node, "problems": problems, "devices": [_device(device) for device in node["devices"]]}


def _device(device: DeviceView) -> DeviceView:
    return {**device, "shares": [_share(share) for share in device["shares"]]}


def _share(share: ShareView) -> ShareView:
    return {**share, "pod_uid": "", "namespace": "", "pod": HIDDEN, "container": HIDDEN}


def _holder(holder: Holder) -> Holder:
    return msgspec.structs.replace(holder, namespace="", pod=HIDDEN)


def _count(pods: object) -> int:
    return len(pods) if isinstance(pods, list) else 0
