"""The product under the benchmark: the functions that its HTTP verbs call, fed with the harness' nodes and pods.

Nodes become rows of a fleet; a pod becomes the request that ``extender.podspec`` makes of such a pod: compute in
thousandths, memory following. Models that the catalogue knows are its products, the undisclosed ones unknown products.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import numpy as np

from benchmarks.quality.ledger import Ledger
from benchmarks.quality.trace import TraceNode, TracePod
from extender.evaluations import Evaluations
from extender.settings import Settings
from scoring import (
    Code,
    ContainerAsk,
    DeviceState,
    Fleet,
    FleetDraft,
    Mix,
    NodeState,
    Outlook,
    PlacedPod,
    PodRequest,
    Row,
    allocation_on,
    levels,
)
from scoring.catalog import DeviceKind, device_kind
from scoring.conditions import parse_conditions
from scoring.workload import shape_of

MODELS = {
    "P100": ("Tesla P100-PCIE-16GB", (6, 0), 16_280),
    "T4": ("Tesla T4", (7, 5), 15_360),
    "V100M16": ("Tesla V100-SXM2-16GB", (7, 0), 16_160),
    "V100M32": ("Tesla V100-SXM2-32GB", (7, 0), 32_510),
    "A10": ("NVIDIA A10", (8, 6), 23_028),
    "G2": ("NVIDIA G2", (8, 0), 32_768),
    "G3": ("NVIDIA G3", (8, 0), 32_768),
}
"""Model of the trace -> NVML name, compute capability and MiB. G2 and G3 are undisclosed: no product of that name."""


def kind_of(model: str) -> DeviceKind:
    """Return the device kind that stands for a model of the trace."""
    name, capability, total_mib = MODELS[model]
    return device_kind(name, compute_capability=capability, total_mib=total_mib)


def request_of(pod: TracePod) -> PodRequest:
    """Return what the product understands of a pod."""
    asks = () if not pod.cards else (ContainerAsk("main", pod.cards, compute_milli=pod.card_milli),)
    products = ",".join(kind_of(model).product for model in pod.models if model in MODELS)
    conditions = parse_conditions({"tangram.dev/gpu-product": products}) if products else parse_conditions({})
    return PodRequest(asks, conditions, cpu_milli=pod.cpu_milli, host_memory_mib=pod.memory_mib)


def mix_of(pods: Sequence[TracePod]) -> Mix:
    """Return the shapes of a list with their counts: what FGD is given, through the door that ``tangram mix`` uses."""
    counts: Counter[TracePod] = Counter(pods)
    weights: Counter[object] = Counter()
    shapes = {}
    for pod, count in counts.items():
        shape = shape_of(request_of(pod))
        shapes[repr(shape)] = shape
        weights[repr(shape)] += count
    total = sum(weights.values())
    return Mix(tuple((shapes[str(key)], count / total) for key, count in weights.most_common()))


class Product:
    """Decides as the product's verbs do: judge, eleven levels, one of the best at random, then the allocation.

    ``mix`` is what is expected of the pods; None starts cold and learns while it places.
    """

    def __init__(
        self, nodes: Sequence[TraceNode], mix: Mix | None, draw: random.Random, settings: Settings | None = None
    ) -> None:
        self._draft = FleetDraft()
        self._evaluations = Evaluations(settings or Settings())
        self._draw = draw
        self._requests: dict[TracePod, PodRequest] = {}
        self._asked = 0
        self._learns = mix is None
        self._rows = [self._add(node, number) for number, node in enumerate(nodes)]
        if mix is not None:
            self._plan(mix)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the nodes, in the order of the list."""
        return tuple(self._draft.freeze().names)

    def decide(self, pod: TracePod, ledger: Ledger) -> tuple[int, tuple[int, ...]] | None:
        """Return node and cards, or None where the product refuses every node that the stock filter leaves."""
        request = self._request(pod)
        fleet = self._draft.freeze()
        self._ask(request, fleet)
        judgement = self._evaluations.judge(request, fleet)
        nodes = np.flatnonzero(ledger.fits_host(pod) & (judgement.code == Code.FIT))
        if not len(nodes):
            return None
        level = levels(judgement.score[nodes], fleet.order[nodes])
        node = int(self._draw.choice(nodes[level == level.max()].tolist()))
        if not pod.cards:
            self.take_host(pod, node)
            return node, ()
        placed = allocation_on(request, fleet, node, judgement.policy, self._evaluations.outlook)
        assert isinstance(placed, PlacedPod), placed
        cards = self._book(node, placed.booked, 1)
        self._book_host(node, request, 1)
        return node, cards

    def take_host(self, pod: TracePod, node: int) -> None:
        """Take in that a pod without GPUs is on a node, whoever put it there."""
        self._book_host(node, self._request(pod), 1)

    def _request(self, pod: TracePod) -> PodRequest:
        return self._requests.get(pod) or self._requests.setdefault(pod, request_of(pod))

    def _ask(self, request: PodRequest, fleet: Fleet) -> None:
        self._asked += 1
        self._evaluations.note(str(self._asked), request, fleet)
        mix = self._evaluations.due(fleet) if self._learns else None
        if mix is not None:
            self._plan(mix)

    def _plan(self, mix: Mix) -> None:
        fleet = self._draft.freeze()
        self._evaluations.adopt(Outlook.of(mix, fleet.kinds), fleet.kinds, fleet)

    def release(self, pod: TracePod, node: int, cards: Sequence[int]) -> None:
        """Give back what a pod had."""
        request, fleet = self._requests[pod], self._draft.freeze()
        for card in cards:
            milli = request.containers[0].compute_milli or 0
            mib = int(fleet.capacity_mib[card, node]) * milli // 1000
            self._draft.book(self._rows[node], card, -mib, -milli, -1)
        self._book_host(node, request, -1)

    def report_load(self, node: int, load: Sequence[float]) -> None:
        """Let a node's agent report how busy its cards are, 0..1 each."""
        self._draft.set_load(self._rows[node], "load", np.array(load, np.float32))

    def _book(self, node: int, booked: Sequence[tuple[int, int, int]], sharers: int) -> tuple[int, ...]:
        for slot, mib, milli in booked:
            self._draft.book(self._rows[node], slot, mib, milli, sharers)
        return tuple(slot for slot, _, _ in booked)

    def _book_host(self, node: int, request: PodRequest, sign: int) -> None:
        row = self._rows[node]
        cpu = self._draft.value("cpu_booked_milli", row) + sign * request.cpu_milli
        memory = self._draft.value("host_booked_mib", row) + sign * request.host_memory_mib
        self._draft.set_node(row, cpu_booked_milli=cpu, host_booked_mib=memory)

    def _add(self, node: TraceNode, number: int) -> Row:
        row = self._draft.add_node(f"{node.name}-{number}-{self._draw.random()}")
        kind = kind_of(node.model)
        count = node.cards
        columns: dict[str, list[float]] = {
            "kind": [self._draft.kind_index(kind)] * count,
            "device_state": [DeviceState.HEALTHY] * count,
            "capacity_mib": [kind.total_mib] * count,
            "capacity_milli": [1000] * count,
        }
        uuids = tuple(f"GPU-{number}-{card}" for card in range(count))
        self._draft.set_devices(row, uuids, columns)
        self._draft.set_node(
            row,
            node_state=NodeState.FRESH,
            cpu_capacity_milli=node.cpu_milli,
            host_capacity_mib=node.memory_mib,
        )
        return row
