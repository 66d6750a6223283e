"""Explanations in words, for people: what is asked, how the nodes fare, what is missing where, what would help.

The words are made here once, so that the page, the API, the command line and pod events say the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from extender.plugin_words import plugin_asked_words, plugin_node_lines
from extender.reason_advice import ADVICE
from scoring.diagnosis import Asked, DeviceDetail, Diagnosis, Hindrance, NodeDetail, ReasonCount, Shortage, Understood
from scoring.nearest import Change
from scoring.request import WHOLE_MILLI
from scoring.status import Reason

if TYPE_CHECKING:
    from extender.explaining import Explained, Wait
    from extender.holdings import Holding

_NODES_TOLD = 3
_DEVICES_TOLD = 4
_RUNNERS_UP = 3
_VERSIONS = ("gpu-driver", "gpu-cuda")
EVENT_LENGTH = 1000


@dataclass(frozen=True, slots=True)
class WordsOf:
    """What the words need beside the diagnosis.

    ``trouble``   node -> UUID -> why the device takes no new pods
    ``software``  node -> condition (``gpu-driver``) -> what the node has
    ``problems``  node -> why its books cannot be right
    ``kept_for``  pods of higher priority that were promised room, which counts as taken
    """

    trouble: Mapping[str, Mapping[str, str]]
    software: Mapping[str, Mapping[str, str]]
    problems: Mapping[str, Sequence[str]]
    kept_for: Sequence[str]


def in_words(explained: Explained, of: WordsOf) -> tuple[str, ...]:
    """Return the explanation, a line an entry; lines that begin with blanks belong to the one above."""
    return tuple(_lines(explained, of))


def event_words(diagnosis: Diagnosis, waits: Sequence[Wait]) -> str:
    """Return why a pod waits in one sentence or two, short enough for an event."""
    counts = ", ".join(f"{count.nodes} {count.sentence}" for count in diagnosis.counts if count.reason is not None)
    total = sum(count.nodes for count in diagnosis.counts)
    helps = [_change_words(change, len(diagnosis.asked.containers)) for change in diagnosis.changes]
    helps += [_wait_words(wait) for wait in waits]
    text = f"0/{total} nodes have the GPUs: {counts}." + (f" Would help: {'; or '.join(helps)}." if helps else "")
    return text if len(text) <= EVENT_LENGTH else text[: EVENT_LENGTH - 3] + "..."


def node_words(node: NodeDetail, of: WordsOf) -> tuple[str, ...]:
    """Return how one node fares, every device of it, a line an entry."""
    if node.reason is None:
        chosen = ", ".join(f"{container}: {', '.join(uuids)}" for container, uuids in node.chosen)
        head = [f"Node {node.node} fits, score {node.score:.2f}: {_parts(node)}", f"It would give {chosen}"]
    else:
        head = [f"Node {node.node}: {node.sentence}", *of.problems.get(node.node, ())]
    return (*head, *(f"  {line}" for device in node.devices for line in _device_lines(node, device, of)))


def _lines(explained: Explained, of: WordsOf) -> Iterator[str]:
    yield _headline(explained)
    for problem in explained.problems:
        yield f"  {problem}"
    if explained.holding is not None and explained.state == "placed":
        yield from _holding_lines(explained.holding)
    diagnosis = explained.diagnosis
    if diagnosis is not None:
        yield "It asks: " + asked_words(diagnosis.asked) + "."
    if diagnosis is not None and explained.state == "waiting":
        yield from _count_lines(diagnosis.counts)
        yield from _node_lines(diagnosis, of)
        if of.kept_for:
            yield f"Room that was promised to pods of higher priority counts as taken: {', '.join(of.kept_for)}."
        yield from _help_lines(explained, diagnosis)
    if explained.plugin is not None:
        yield "It asks NVIDIA's device plugin: " + plugin_asked_words(explained.plugin) + "."
    if explained.plugin is not None and explained.state == "waiting":
        yield from _count_lines(explained.plugin.counts)
        yield from plugin_node_lines(explained.plugin)
    if explained.hints:
        yield "Note:"
        yield from (f"  {hint}" for hint in explained.hints)


def _headline(explained: Explained) -> str:
    who = f"Pod {explained.pod}"
    if explained.state == "over":
        return f"{who} ran to its end and holds nothing any more."
    if explained.state == "invalid":
        return f"{who} asks for something that Tangram does not understand:"
    if explained.state == "placed":
        return f"{who} is on node {explained.node or (explained.holding.node if explained.holding else '?')}."
    counts = explained.counts()
    if counts is None:
        return f"{who} asks Tangram for no GPU; where it goes is kube-scheduler's own decision."
    total = sum(count.nodes for count in counts)
    fits = sum(count.nodes for count in counts if count.reason is None)
    if fits:
        could = "the only node" if total == 1 else f"{fits} of {total} nodes"
        return f"{who} has no node yet, and {could} could take it now."
    if total <= 1:
        return f"{who} waits: " + ("the only node cannot take it now." if total else "there is no node.")
    return f"{who} waits: none of {total} nodes can take it now."


def asked_words(asked: Understood) -> str:
    """Return what a pod asks in one line, in the words of its annotations."""
    parts = [_ask_words(ask) for ask in asked.containers]
    parts += [f"{key} {text}" for key, text in asked.conditions]
    if asked.sharing != ("time-slicing",):
        parts.append(f"gpu-sharing {' or '.join(asked.sharing)}")
    if asked.topology != "any":
        parts.append(f"gpu-topology {asked.topology}")
    if asked.preferences:
        parts.append("gpu-prefer " + ", ".join(f"{name}={weight:g}" for name, weight in asked.preferences))
    if asked.workload:
        parts.append(f"workload {asked.workload}")
    return "; ".join([*parts, f"policy {asked.policy}"])


def _ask_words(ask: Asked) -> str:
    devices = "1 GPU" if ask.count == 1 else f"{ask.count} GPUs"
    each = "" if ask.count == 1 else " of each"
    if ask.memory_mib is None and ask.compute_milli == WHOLE_MILLI:
        return f"container {ask.container}: {devices}, whole"
    memory = "memory in proportion" if ask.memory_mib is None else f"{ask.memory_mib} MiB{each}"
    compute = "compute in proportion" if ask.compute_milli is None else f"{_percent(ask.compute_milli)} compute{each}"
    return f"container {ask.container}: {devices}, {memory}, {compute}"


def _holding_lines(holding: Holding) -> Iterator[str]:
    if holding.problem:
        yield f"  Its share cannot be counted: it {holding.problem}."
    for container, shares in holding.allocation.containers if holding.allocation is not None else ():
        for share in shares:
            booked = f"{share.memory_mib} MiB, {_percent(share.compute_milli)} compute"
            yield f"  container {container} has {booked} of {share.uuid} ({share.mode})"
    if holding.outcome_unknown:
        yield "  The Binding was sent without an answer; a read will settle whether it landed."


def _count_lines(counts: Sequence[ReasonCount]) -> Iterator[str]:
    for count in counts:
        nodes = "1 node" if count.nodes == 1 else f"{count.nodes} nodes"
        yield f"  {nodes}: {count.sentence if count.reason is not None else 'fits'}"


def _node_lines(diagnosis: Diagnosis, of: WordsOf) -> Iterator[str]:
    fitting = [node for node in diagnosis.nodes if node.reason is None]
    for node in fitting[: 1 + _RUNNERS_UP]:
        yield f"Node {node.node} fits, score {node.score:.2f}: {_parts(node)}"
    if fitting:
        return
    telling = [node for node in diagnosis.nodes if node.devices]
    for node in telling[:_NODES_TOLD]:
        yield f"Node {node.node}: {node.sentence}"
        yield from (f"  {problem}" for problem in of.problems.get(node.node, ()))
        lines = [line for device in node.devices for line in _device_lines(node, device, of)]
        yield from (f"  {line}" for line in lines[:_DEVICES_TOLD])
        if len(lines) > _DEVICES_TOLD:
            yield f"  and {len(lines) - _DEVICES_TOLD} more"


def _parts(node: NodeDetail) -> str:
    return ", ".join(f"{part.scorer} {part.value:.2f} x {part.weight:.2f}" for part in node.parts if part.weight)


def _device_lines(node: NodeDetail, device: DeviceDetail, of: WordsOf) -> Iterator[str]:
    """Yield what is between a device and each ask of the pod; equal sentences once."""
    sentences = dict.fromkeys(shortage_words(node, device, shortage, of) for shortage in device.shortages)
    for sentence in sentences:
        yield f"{device.uuid} ({device.product}): {sentence}"


def shortage_words(node: NodeDetail, device: DeviceDetail, shortage: Shortage, of: WordsOf) -> str:
    """Return what keeps a device from taking one share of an ask, in numbers."""
    match shortage.hindrance:
        case Hindrance.CONDITIONS:
            return "does not meet " + ", ".join(_unmet(key, of.software.get(node.node, {})) for key in device.unmet)
        case Hindrance.SHARING:
            return f"is set up for {device.mode}"
        case Hindrance.TOO_SMALL:
            return f"has {device.capacity_mib} MiB in all"
        case Hindrance.OUT:
            return of.trouble.get(node.node, {}).get(device.uuid) or _node_trouble(node)
        case Hindrance.MEMORY | Hindrance.COMPUTE if node.reason is Reason.NO_FREE_DEVICE:
            return _taken_words(device)
        case Hindrance.MEMORY:
            return _memory_words(device, shortage)
        case Hindrance.COMPUTE:
            return (
                f"{_percent(shortage.need_milli)} compute needed, {_percent(max(device.free_milli, 0))} free"
                f" ({max(device.free_mib, 0)} MiB of memory are)"
            )
        case None:
            return "would do" if node.reason is None else "would do by itself"


def _node_trouble(node: NodeDetail) -> str:
    return node.sentence or "takes no new pods"


def _unmet(key: str, software: Mapping[str, str]) -> str:
    found = software.get(key)
    return f"{key} (the node has {found})" if key in _VERSIONS and found else key


def _taken_words(device: DeviceDetail) -> str:
    pods = "1 pod has" if device.sharers == 1 else f"{device.sharers} pods have"
    text = f"{pods} a share of it" if device.sharers else "nobody has a share of it"
    return text + (f"; processes of no pod hold {device.foreign_mib} MiB" if device.foreign_mib else "")


def _memory_words(device: DeviceDetail, shortage: Shortage) -> str:
    text = f"{shortage.need_mib} MiB needed, {max(device.free_mib, 0)} of {device.capacity_mib} free"
    if device.foreign_mib:
        text += f"; processes of no pod hold {device.foreign_mib} MiB"
    return text


def _help_lines(explained: Explained, diagnosis: Diagnosis) -> Iterator[str]:
    if any(count.reason is None for count in diagnosis.counts):
        return
    helps = [
        f"{_change_words(change, len(diagnosis.asked.containers))} ({_nodes(change.nodes)} would do)"
        for change in diagnosis.changes
    ]
    helps += [_wait_words(wait) for wait in explained.waits]
    if helps:
        yield "Any one of these would help:"
        yield from (f"  {text}" for text in helps)
    elif diagnosis.if_emptied:
        yield f"No single change would help; {_nodes(diagnosis.if_emptied)} would do, once empty and healthy."
    else:
        yield "No node whose GPUs are known would do, even if it were empty."
    for count in diagnosis.counts[:2]:
        if count.reason is not None and not helps:
            yield f"  {ADVICE[count.reason].do}"


def _wait_words(wait: Wait) -> str:
    frees = f"{wait.frees_mib} MiB and {_percent(wait.frees_milli)} compute"
    pods = "pod " + wait.pods[0] if len(wait.pods) == 1 else "pods " + ", ".join(wait.pods)
    return f"wait for {pods} on {wait.uuid} to end (frees {frees})"


def _change_words(change: Change, containers: int) -> str:
    return f"{change.text} in container {change.container}" if change.container and containers > 1 else change.text


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _percent(milli: int) -> str:
    return f"{milli / 10:g} %"
