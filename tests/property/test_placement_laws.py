from __future__ import annotations

import itertools
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring.exact import Node, search
from scoring.ground import Ground, survey
from scoring.outlook import TYPICAL_SHARE, Outlook
from scoring.pipeline import PlacedPod, allocation_on, booked_by, evaluate
from scoring.policies.fragmentation import fragmentation
from scoring.registry import Policy
from scoring.request import Allocation, ContainerAsk, ContainerKind, PodRequest, Share, SharingMode, Topology
from scoring.status import Code
from scoring.workload import Mix, Shape
from tests.support.fleet_strategies import container_asks, fleets, policies, requests
from tests.support.fleets import BINPACK, T4, draft_of, gpu, node

_KINDS = tuple(ContainerKind)


def _moments(asks: tuple[ContainerAsk, ...]) -> list[list[int]]:
    """Return which containers hold devices at each moment of a pod's life, straight from Kubernetes' rules.

    Init containers start in the pod's order; a plain one ends before the next begins, a sidecar stays.
    """
    moments, sidecars = [], []
    for at, ask in enumerate(asks):
        if ask.kind is ContainerKind.INIT:
            moments.append([*sidecars, at])
        elif ask.kind is ContainerKind.SIDECAR:
            sidecars.append(at)
    return [*moments, [at for at, ask in enumerate(asks) if ask.kind is not ContainerKind.INIT]]


def _brute_force(asks: tuple[ContainerAsk, ...], at_node: Node) -> bool:
    slots = range(len(at_node.free_mib))

    def ways(at: int) -> list[tuple[int, ...]]:
        found = itertools.combinations([slot for slot in slots if at_node.usable[at][slot]], asks[at].count)
        return [way for way in found if len(way) == 1 or _one_group([at_node.group[slot] for slot in way])]

    def holds(choice: tuple[tuple[int, ...], ...]) -> bool:
        for moment, slot in itertools.product(_moments(asks), slots):
            here = [at for at in moment if slot in choice[at]]
            if sum(at_node.need_mib[at][slot] for at in here) > at_node.free_mib[slot]:
                return False
            if sum(at_node.need_milli[at][slot] for at in here) > at_node.free_milli[slot]:
                return False
        return True

    return any(map(holds, itertools.product(*(ways(at) for at in range(len(asks))))))


def _one_group(groups: list[int]) -> bool:
    return groups[0] >= 0 and len(set(groups)) == 1


def _plain(ground: Ground, row: int) -> Node:
    of = ground.fleet
    groups = {Topology.NUMA: of.numa, Topology.NVLINK: of.link, Topology.ANY: np.zeros_like(of.numa)}
    group = groups[ground.request.topology]
    return Node(
        tuple(ground.free_mib[:, row].tolist()),
        tuple(ground.free_milli[:, row].tolist()),
        tuple(group[:, row].tolist()),
        tuple(tuple((ground.eligible.usable & need.sized)[:, row].tolist()) for need in ground.needs),
        tuple(tuple(need.mib[:, row].tolist()) for need in ground.needs),
        tuple(tuple(need.milli[:, row].tolist()) for need in ground.needs),
    )


class TestExactness:
    """A node is accepted exactly when some choice of devices holds every container at every moment."""

    @given(requests(), fleets(most=2, largest=4), policies())
    @settings(max_examples=250, deadline=None)
    def test_placement_agrees_with_trying_everything(self, request: PodRequest, of, policy: Policy):
        ground = survey(request, of, policy, Outlook.empty())
        found = evaluate(request, of, policy, Outlook.empty())
        for row in range(len(of)):
            assert (found.code[row] == Code.FIT) == _brute_force(request.containers, _plain(ground, row))

    @given(st.data())
    @settings(max_examples=250, deadline=None)
    def test_search_agrees_with_trying_everything(self, data):
        sizes = data.draw(st.lists(st.tuples(st.integers(1, 6), st.sampled_from(_KINDS)), min_size=1, max_size=4))
        count = data.draw(st.integers(1, 3))
        free = data.draw(st.lists(st.integers(0, 12), min_size=count, max_size=count))
        groups = data.draw(st.lists(st.integers(-1, 1), min_size=count, max_size=count))
        asks = tuple(
            ContainerAsk(f"c{number}", data.draw(st.integers(1, 2)), size, None, kind)
            for number, (size, kind) in enumerate(sizes)
        )
        need = tuple((ask.memory_mib or 0,) * count for ask in asks)
        usable = tuple((True,) * count for _ in asks)
        at_node = Node(tuple(free), (1000,) * count, tuple(groups), usable, need, ((1,) * count,) * len(asks))
        found = search(asks, at_node)
        assert (found is not None) == _brute_force(asks, at_node)
        if found is not None:
            for moment, slot in itertools.product(_moments(asks), range(count)):
                assert sum(need[at][slot] for at in moment if slot in found[at]) <= free[slot]
            assert all(len(set(slots)) == ask.count for ask, slots in zip(asks, found, strict=True))

    def test_a_search_out_of_steps_finds_nothing(self):
        asks = (ContainerAsk("a", memory_mib=1), ContainerAsk("b", memory_mib=1))
        at_node = Node((1, 1), (10, 10), (0, 0), ((True,) * 2,) * 2, ((1, 1),) * 2, ((1, 1),) * 2)
        assert search(asks, at_node) == ((0,), (1,))
        assert search(asks, at_node, steps=1) is None


class TestEffectiveArithmetic:
    """What a device books for a pod is the most that its containers hold of it at one moment."""

    @given(st.data())
    @settings(max_examples=200, deadline=None)
    def test_booking_equals_a_simulation_of_the_pods_life(self, data):
        asks = tuple(data.draw(st.lists(container_asks(), min_size=1, max_size=5)))
        names = [f"c{number}" for number in range(len(asks))]
        amounts = st.tuples(st.sampled_from("xyz"), st.integers(1, 50), st.integers(0, 50))
        held = [data.draw(st.lists(amounts, min_size=1, max_size=3, unique_by=lambda one: one[0])) for _ in asks]
        containers = tuple(
            (name, tuple(Share(uuid, mib, milli, SharingMode.TIME_SLICING) for uuid, mib, milli in shares))
            for name, shares in zip(names, held, strict=True)
        )
        kinds = {name: ask.kind for name, ask in zip(names, asks, strict=True)}
        most: dict[str, tuple[int, int]] = {}
        for moment, uuid in itertools.product(_moments(asks), "xyz"):
            mib = sum(share[1] for at in moment for share in held[at] if share[0] == uuid)
            milli = sum(share[2] for at in moment for share in held[at] if share[0] == uuid)
            before = most.get(uuid, (0, 0))
            most[uuid] = max(before[0], mib), max(before[1], milli)
        wanted = {uuid: amount for uuid, amount in most.items() if amount != (0, 0)}
        assert booked_by(Allocation(containers, "binpack"), kinds) == wanted

    @given(requests(), fleets(most=3), policies())
    @settings(max_examples=100, deadline=None)
    def test_a_placement_books_what_its_annotation_says(self, request: PodRequest, of, policy):
        for row in range(len(of)):
            placed = allocation_on(request, of, row, policy, Outlook.empty())
            if isinstance(placed, PlacedPod):
                kinds = {ask.name: ask.kind for ask in request.containers}
                said = booked_by(placed.allocation, kinds)
                assert {(of.uuids[row].index(uuid), *amounts) for uuid, amounts in said.items()} == set(placed.booked)


def _unusable(shape: Shape, rests: list[int], cpu_free: int) -> float:
    """F_n(m), read off quality-benchmark section 3: what of the node's rests a pod of the shape cannot use."""
    need = max(-(-(shape.memory_mib or 0) * 1000 // T4.total_mib), shape.compute_milli or 0)
    if shape.count == 0 or need > 1000 or shape.cpu_milli > cpu_free:
        return sum(rests)
    if sum(rest >= need for rest in rests) < shape.count:
        return sum(rests)
    return sum(rest for rest in rests if rest < need)


def _shapes() -> st.SearchStrategy[Shape]:
    cpu = st.sampled_from((0, 2_000, 8_000))
    one = st.builds(Shape, st.just(1), st.sampled_from((None, 4_096)), st.sampled_from((100, 500, 810)), cpu)
    several = st.builds(Shape, st.sampled_from((1, 2, 4)), st.none(), st.just(1000), cpu)
    return st.one_of(st.builds(Shape, cpu_milli=cpu), one, several)


class TestFragmentation:
    """The tables give FGD's F_n(M) of any node of one kind of device, for whole devices and shares of one."""

    @given(
        st.lists(_shapes(), min_size=1, max_size=8), st.lists(st.integers(0, 1000), min_size=1, max_size=6), st.data()
    )
    @settings(max_examples=200, deadline=None)
    def test_tables_equal_the_definition(self, shapes, rests, data):
        cpu_free = data.draw(st.sampled_from((0, 1_000, 2_000, 9_000)))
        mix = Mix(tuple((shape, 1 / len(shapes)) for shape in shapes))
        outlook = Outlook.of(mix, (T4,))
        typical = mix.covering(TYPICAL_SHARE)
        level = int(outlook.cpu_level(np.array([cpu_free]))[0])
        untouched = sum(rest == 1000 for rest in rests)
        table = sum(float(outlook.unusable[1, level, rest]) for rest in rests) + sum(
            float(weight[1, level]) * untouched * 1000 for count, weight in outlook.several.items() if untouched < count
        )
        direct = sum(weight * _unusable(shape, rests, cpu_free) for shape, weight in typical.shapes)
        assert math.isclose(table, direct, rel_tol=1e-4, abs_tol=0.05)

    @given(
        st.lists(_shapes(), min_size=1, max_size=6), st.lists(st.integers(0, 900), min_size=1, max_size=4), st.data()
    )
    @settings(max_examples=100, deadline=None)
    def test_scorer_squeezes_the_fall_of_the_measure(self, shapes, used, data):
        mix = Mix(tuple((shape, 1 / len(shapes)) for shape in shapes))
        outlook = Outlook.of(mix, (T4,))
        hosts = {
            "a": node(*(gpu(T4, capacity_mib=16_000, booked_mib=16 * milli, booked_milli=milli) for milli in used))
        }
        of = draft_of(hosts).freeze()
        request = PodRequest((ContainerAsk("main", 1, None, data.draw(st.integers(1, 100))),), cpu_milli=3_000)
        ground = survey(request, of, BINPACK, outlook)
        fits = ground.fits(0, ground.free_mib, ground.free_milli)
        view = ground.candidates(0, fits, ground.free_mib, ground.free_milli)
        scored = fragmentation(view)
        typical, need = mix.covering(TYPICAL_SHARE), request.containers[0].compute_milli
        for slot in range(len(used)):
            rests = [1000 - milli for milli in used]
            before = sum(weight * _unusable(shape, rests, 96_000) for shape, weight in typical.shapes)
            rests[slot] -= need
            after = sum(weight * _unusable(shape, rests, 93_000) for shape, weight in typical.shapes)
            assert math.isclose(scored[slot, 0], 1 / (1 + math.exp((after - before) / 1000)), abs_tol=1e-4)
