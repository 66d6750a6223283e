"""The verbs over HTTP place a workload exactly as the benchmark does, which calls the functions behind them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec
import pytest

from benchmarks.quality.data import folder
from benchmarks.quality.ledger import Ledger
from benchmarks.quality.manifest import manifest_of
from benchmarks.quality.product import Product, kind_of, mix_of, request_of
from benchmarks.quality.trace import TraceNode, TracePod, arrivals, read_nodes, read_pods
from extender.allocation import decode_allocation
from extender.objects import Pod
from extender.podspec import pod_request
from scoring import Outlook
from tests.support.builders import PREFIX, device, node_facts, report
from tests.support.harness import harness

EVERY = 12
"""One node in so many of the trace's: the whole of it takes minutes over HTTP."""

SEED = 1000


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class OverHttp:
    """Filter, prioritize and bind as kube-scheduler calls them, on nodes of these names.

    The trace knows no load, so what was just placed does not count as load here either.
    """

    def __init__(self, nodes: Sequence[TraceNode], names: Sequence[str], pods: Sequence[TracePod], draw: random.Random):
        self._names, self._draw = list(names), draw
        self._number = {name: number for number, name in enumerate(names)}
        self._asked = 0
        self._harness = harness(settle_s=0)
        for name, node in zip(names, nodes, strict=True):
            self._add(name, node)
        services = self._harness.app.services
        fleet = services.store.snapshot()
        services.evaluations.adopt(Outlook.of(mix_of(pods), fleet.kinds), fleet.kinds, fleet)

    def _add(self, name: str, node: TraceNode) -> None:
        kind, number = kind_of(node.model), self._number[name]
        facts = node_facts(name, cpu_milli=node.cpu_milli, host_memory_mib=node.memory_mib)
        held = [
            device(
                f"GPU-{number}-{card}",
                name=kind.nvml_name,
                compute_capability=kind.compute_capability,
                total_mib=kind.total_mib,
                utilisation=None,
            )
            for card in range(node.cards)
        ]
        self._harness.store.set_node(facts)
        self._harness.store.apply_report(report(name, *held, driver="", cuda=""), self._harness.clock.now())

    async def decide(self, pod: TracePod, ledger: Ledger) -> tuple[int, tuple[int, ...]] | None:
        self._asked += 1
        manifest = pod_of(pod, f"pod-{self._asked}")
        self._harness.kube.add(manifest)
        asked = [self._names[number] for number in ledger.fits_host(pod).nonzero()[0]]
        passed = (await self._harness.filter(manifest, asked))["NodeNames"] if asked else []
        if not passed:
            return None
        scores = await self._harness.prioritize(manifest, passed)
        best = [name for name in passed if scores[name] == max(scores.values())]
        node = self._draw.choice(best)
        assert await self._harness.bind(manifest, node) == ""
        self._harness.store.expire(self._harness.clock.now())
        return self._number[node], self._cards_of(manifest)

    def _cards_of(self, pod: Pod) -> tuple[int, ...]:
        bound = self._harness.kube.pods[pod.metadata.namespace, pod.metadata.name]
        text = (bound.metadata.annotations or {}).get(f"{PREFIX}allocation")
        if not text:
            return ()
        ((_, shares),) = decode_allocation(text).containers
        return tuple(int(share.uuid.rpartition("-")[2]) for share in shares)


def pod_of(pod: TracePod, name: str) -> Pod:
    manifest = manifest_of(pod, name)
    manifest["metadata"] |= {"namespace": "default", "uid": f"uid-{name}"}
    return msgspec.convert(manifest, Pod)


def test_a_pod_as_its_author_writes_it_is_what_the_benchmark_asks():
    for pod in set(read_pods(folder(), "gpuspec33")[:500]):
        assert pod_request(pod_of(pod, "p"), PREFIX) == request_of(pod), pod


@pytest.mark.anyio
@pytest.mark.parametrize("workload", ["default", "gpuspec33"])
async def test_every_decision_is_the_same_over_http(workload):
    nodes = read_nodes(folder())[::EVERY]
    pods = read_pods(folder(), workload)
    order = arrivals(pods, nodes, random.Random(SEED))
    direct, ledger = Product(nodes, mix_of(pods), random.Random(SEED)), Ledger(nodes)
    ours = OverHttp(nodes, direct.names, pods, random.Random(SEED))
    placed = 0
    for pod in order:
        expected = direct.decide(pod, ledger)
        assert await ours.decide(pod, ledger) == expected, pod
        if expected is not None:
            ledger.take(pod, *expected)
            placed += 1
    assert placed > 300
