"""The one reader of what a pod asks, shared by filter, bind and the webhook (design section 2).

Everything that matters is first collected into a key; reading is a pure function of that key and is remembered, since
most pods repeat what another asked. Equal requests are therefore the same object. Pods that came past the webhook are
read by the same rules, and no pod makes this module fail otherwise than by InvalidRequest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, NamedTuple

from extender.allocation import ALLOCATION_KEY, DEFAULT_PREFIX, DEVICES_KEY, MPS_KEY, claimed_keys, owners
from extender.annotations import GPU_CONTAINER, MIG_PROFILE, Wishes, read_wishes
from extender.asks import GPU_COMPUTE, GPU_FRACTION, GPU_MEMORY, Rows, container_ask, fraction_percent
from extender.effective import HostSide, effective_amount, effective_totals, host_side
from extender.problems import attempt
from extender.quantity import whole_number
from scoring.errors import InvalidRequest
from scoring.request import ContainerAsk, ContainerKind, PluginAsk, PodRequest, SharingMode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from extender.objects import Container, Pod

__all__ = ["effective_totals", "parse_problems", "pod_request", "understood"]

PLUGIN_RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared")
PLUGIN_MIG_PREFIX = "nvidia.com/mig-"

MAX_CONTAINERS = 32
"""Containers of one pod that may ask for GPUs: each is placed on every node."""

_MOST_PROBLEMS = 32
"""Problems with containers of one pod beyond which the rest is not looked at."""

_CONTAINER_WEIGHS = 64
_REMEMBERED = 2048
_LARGEST_REMEMBERED = 8192
"""Characters beyond which a pod is read anew each time, so that the memory of requests stays small."""

_Pairs = tuple[tuple[str, str], ...]


class _ContainerKey(NamedTuple):
    """What counts of one container."""

    name: str
    kind: ContainerKind
    requests: _Pairs
    claimed: tuple[str, ...]


class _PodKey(NamedTuple):
    """What counts of one pod."""

    containers: tuple[_ContainerKey, ...]
    annotations: _Pairs
    overhead: _Pairs
    requests: _Pairs
    limits: _Pairs


@dataclass(frozen=True, slots=True)
class _Reading:
    """What was understood of a pod, and all that was not."""

    request: PodRequest
    problems: tuple[InvalidRequest, ...]


def pod_request(pod: Pod, prefix: str = DEFAULT_PREFIX) -> PodRequest:
    """Return what a pod asks; raise the first InvalidRequest of ``parse_problems`` where there is one.

    ``prefix`` is that of our resources and annotations, with its slash.
    """
    reading = _reading(pod, prefix)
    if reading.problems:  # Raised anew: the remembered one would gather tracebacks.
        first = reading.problems[0]
        raise type(first)(first.field, first.found, first.valid)
    return reading.request


def parse_problems(pod: Pod, prefix: str = DEFAULT_PREFIX) -> tuple[InvalidRequest, ...]:
    """Return everything in a pod that cannot be understood, containers first, then annotations; empty if all can."""
    return _reading(pod, prefix).problems


def understood(pod: Pod, prefix: str = DEFAULT_PREFIX) -> tuple[PodRequest | None, tuple[PluginAsk, ...]]:
    """Return what a pod asks, None where it cannot be understood, and what of the plugin can be; never raises."""
    reading = _reading(pod, prefix)
    return None if reading.problems else reading.request, reading.request.plugin


def _reading(pod: Pod, prefix: str) -> _Reading:
    key = _pod_key(pod, prefix)
    if _characters(key) > _LARGEST_REMEMBERED:
        return _read.__wrapped__(key, prefix)
    return _read(key, prefix)


def _characters(key: _PodKey) -> int:
    """Return about how much a key holds on to."""
    rows = [key.annotations, *(container.requests for container in key.containers)]
    names = (text for each in key.containers for text in (each.name, *each.claimed))
    texts = sum(len(name) + len(text) for pairs in rows for name, text in pairs) + sum(map(len, names))
    return texts + _CONTAINER_WEIGHS * len(key.containers)


def _pod_key(pod: Pod, prefix: str) -> _PodKey:
    spec = pod.spec
    level = spec.resources
    containers = [_container_key(container, prefix, is_init=True) for container in spec.init_containers or ()]
    containers += [_container_key(container, prefix, is_init=False) for container in spec.containers or ()]
    ours = (prefix + ALLOCATION_KEY, prefix + DEVICES_KEY, prefix + MPS_KEY)
    return _PodKey(
        tuple(containers),
        tuple(pair for pair in pod.annotations.items() if pair[0].startswith(prefix) and not pair[0].startswith(ours)),
        _pairs(spec.overhead),
        _pairs(level.requests) if level else (),
        _pairs(level.limits) if level else (),
    )


def _container_key(container: Container, prefix: str, *, is_init: bool) -> _ContainerKey:
    kind = ContainerKind.APP
    if is_init:
        kind = ContainerKind.SIDECAR if container.restart_policy == "Always" else ContainerKind.INIT
    resources = container.resources
    requests: _Pairs = ()
    if resources is not None:  # A request left out is the limit, as the API server would have set it.
        requests = _pairs({**(resources.limits or {}), **(resources.requests or {})})
    return _ContainerKey(container.name, kind, requests, claimed_keys(container, prefix) if container.env else ())


def _pairs(amounts: Mapping[str, str] | None) -> _Pairs:
    return tuple(amounts.items()) if amounts else ()


@lru_cache(maxsize=_REMEMBERED)
def _read(key: _PodKey, prefix: str) -> _Reading:
    problems: list[InvalidRequest] = []
    annotations = dict(key.annotations)
    asks = _asks(key, annotations, prefix, problems)
    plugin = _plugin_asks(key, problems)
    if asks and plugin:
        problems.append(_both_kinds(prefix, plugin))
    attempt(problems, None, lambda: owners((container.name, container.claimed) for container in key.containers))
    asks_gpu = bool(asks or plugin or problems)
    wishes = read_wishes(annotations, prefix, problems) if asks_gpu else Wishes()
    if wishes.sharing == {SharingMode.MIG} and not annotations.get(prefix + MIG_PROFILE, "").strip():
        problems.extend(_instance_unknown(ask, prefix) for ask in asks if ask.is_whole)
    host = attempt(problems, HostSide(0, 0), lambda: _host(key))
    request = PodRequest(
        containers=asks,
        conditions=wishes.conditions,
        sharing=wishes.sharing,
        topology=wishes.topology,
        preferences=wishes.preferences,
        policy=wishes.policy,
        workload=wishes.workload,
        cpu_milli=host.cpu_milli,
        host_memory_mib=host.memory_mib,
        plugin=plugin,
    )
    return _Reading(request, tuple(problems))


def _asks(
    key: _PodKey, annotations: Mapping[str, str], prefix: str, problems: list[InvalidRequest]
) -> tuple[ContainerAsk, ...]:
    percent: int | None = None
    target = attempt(problems, None, lambda: _fraction_container(key, annotations, prefix))
    if target is not None:
        field = prefix + GPU_FRACTION
        percent = attempt(problems, None, lambda: fraction_percent(annotations[field], field))
    asks = []
    for container in key.containers:
        rows = Rows(container.name, container.kind, dict(container.requests), prefix)
        share = percent if container.name == target else None
        ask = container_ask(rows, share, problems)
        if ask is not None:
            asks.append(ask)
        if len(asks) > MAX_CONTAINERS:
            found = f"more than {MAX_CONTAINERS} that ask for GPUs"
            problems.append(InvalidRequest("containers", found, f"at most {MAX_CONTAINERS}"))
            return ()
        if len(problems) >= _MOST_PROBLEMS:
            break
    return tuple(asks)


def _fraction_container(key: _PodKey, annotations: Mapping[str, str], prefix: str) -> str | None:
    """Return the container that ``gpu-fraction`` is for, None where the pod has no such row."""
    if not annotations.get(prefix + GPU_FRACTION, "").strip():
        return None
    names = [container.name for container in key.containers]
    chosen = annotations.get(prefix + GPU_CONTAINER, "").strip()
    if chosen:
        if chosen not in names:
            raise InvalidRequest(prefix + GPU_CONTAINER, chosen, f"one of {', '.join(names)}")
        return chosen
    apps = [container.name for container in key.containers if container.kind is ContainerKind.APP]
    if len(apps) != 1:
        field = prefix + GPU_CONTAINER
        raise InvalidRequest(field, "", f"the container that {GPU_FRACTION} is for: one of {', '.join(names)}")
    return apps[0]


def _plugin_asks(key: _PodKey, problems: list[InvalidRequest]) -> tuple[PluginAsk, ...]:
    parts: dict[str, list[tuple[ContainerKind, int]]] = {}
    for container in key.containers:
        for resource, text in container.requests:
            if resource in PLUGIN_RESOURCES or resource.startswith(PLUGIN_MIG_PREFIX):
                field = f"{resource} of container {container.name}"
                count = attempt(problems, 0, partial(whole_number, text, field))
                parts.setdefault(resource, []).append((container.kind, count))
    counts = {resource: int(effective_amount(found)) for resource, found in sorted(parts.items())}
    return tuple(PluginAsk(resource, count) for resource, count in counts.items() if count)


def _both_kinds(prefix: str, plugin: tuple[PluginAsk, ...]) -> InvalidRequest:
    found = ", ".join(ask.resource for ask in plugin)
    return InvalidRequest("resources", found, f"either {prefix}* or nvidia.com/* in one pod, not both")


def _instance_unknown(ask: ContainerAsk, prefix: str) -> InvalidRequest:
    valid = f"{prefix}{GPU_MEMORY} or less {prefix}{GPU_COMPUTE} beside gpu-sharing mig, or an annotation mig-profile"
    return InvalidRequest(f"{prefix}gpu of container {ask.name}", f"{ask.count} whole", valid)


def _host(key: _PodKey) -> HostSide:
    containers = [(container.name, container.kind, dict(container.requests)) for container in key.containers]
    return host_side(containers, dict(key.overhead), dict(key.requests), dict(key.limits))
