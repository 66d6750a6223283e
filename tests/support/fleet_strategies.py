"""Hypothesis strategies of fleets and requests: small numbers, so that ties, tight fits and refusals are common."""

from __future__ import annotations

from hypothesis import strategies as st

from scoring.conditions import parse_conditions
from scoring.fleet import DeviceState, Fleet, ModeCode, NodeState
from scoring.outlook import Outlook
from scoring.registry import Policy
from scoring.request import ContainerAsk, ContainerKind, PodRequest, SharingMode, Topology
from scoring.workload import Mix, MixHistogram
from tests.support.fleets import A100, H200, L4, MIG_10GB, POLICIES, T4, Gpu, Host, draft_of, gpu, node

CONDITIONS = (
    {},
    {"tangram.dev/gpu-architecture": ">=ampere"},
    {"tangram.dev/gpu-product": "T4"},
    {"tangram.dev/gpu-uuid": "!GPU-n0-0"},
    {"tangram.dev/gpu-uuid": "GPU-n0-0,GPU-n1-1"},
)

_STEPS = 8


@st.composite
def gpus(draw: st.DrawFn) -> Gpu:
    kind = draw(st.sampled_from((T4, T4, A100, L4, H200, MIG_10GB)))
    capacity = draw(st.sampled_from((kind.total_mib, kind.total_mib - 450, 0)))
    used = draw(st.integers(0, _STEPS))
    foreign = draw(st.sampled_from((0, 0, 0, capacity // 4)))
    booked = min(capacity * used // _STEPS, capacity - foreign)
    columns = {
        "capacity_mib": capacity,
        "booked_mib": booked,
        "booked_milli": kind.sm_milli * used // _STEPS,
        "foreign_mib": foreign,
        "device_state": draw(st.sampled_from((DeviceState.HEALTHY,) * 4 + (DeviceState.OUT, DeviceState.SUSPECT))),
        "load": draw(st.sampled_from((0.0, 0.25, 0.9, float("nan")))),
        "settling_milli": draw(st.sampled_from((0, 200))),
        "numa": draw(st.integers(-1, 1)),
        "link": draw(st.integers(-1, 1)),
    }
    if kind is not MIG_10GB:
        columns["mode"] = draw(st.sampled_from((ModeCode.TIME_SLICING,) * 4 + (ModeCode.MPS, ModeCode.PLUGIN)))
    return gpu(kind, **columns)


@st.composite
def hosts(draw: st.DrawFn, largest: int = 5) -> Host:
    state = draw(
        st.sampled_from((NodeState.FRESH,) * 6 + (NodeState.STALE, NodeState.CONFLICTED, NodeState.UNREPORTED))
    )
    cpu = draw(st.sampled_from((8_000, 96_000)))
    return node(*draw(st.lists(gpus(), max_size=largest)), node_state=state, cpu_capacity_milli=cpu)


@st.composite
def node_lists(draw: st.DrawFn, most: int = 5, largest: int = 5) -> dict[str, Host]:
    found = draw(st.lists(hosts(largest), min_size=1, max_size=most))
    return {f"n{number}": host for number, host in enumerate(found)}


def fleets(most: int = 5, largest: int = 5) -> st.SearchStrategy[Fleet]:
    return node_lists(most, largest).map(lambda nodes: draft_of(nodes).freeze())


@st.composite
def container_asks(draw: st.DrawFn, number: int = 0, most_devices: int = 3) -> ContainerAsk:
    memory, compute = draw(
        st.sampled_from(
            ((None, 1000), (2_048, None), (8_192, None), (40_000, None), (None, 250), (None, 600), (4_096, 500))
        )
    )
    kind = draw(st.sampled_from((ContainerKind.APP,) * 3 + (ContainerKind.INIT, ContainerKind.SIDECAR)))
    return ContainerAsk(f"c{number}", draw(st.integers(1, most_devices)), memory, compute, kind)


@st.composite
def requests(draw: st.DrawFn, most_containers: int = 3, most_devices: int = 3) -> PodRequest:
    count = draw(st.integers(1, most_containers))
    sharing = draw(
        st.sampled_from(
            (
                {SharingMode.TIME_SLICING},
                {SharingMode.TIME_SLICING, SharingMode.MPS},
                {SharingMode.MIG},
                {SharingMode.EXCLUSIVE},
                {SharingMode.EXCLUSIVE, SharingMode.MIG},
            )
        )
    )
    return PodRequest(
        containers=tuple(draw(container_asks(number, most_devices)) for number in range(count)),
        conditions=parse_conditions(draw(st.sampled_from(CONDITIONS))),
        sharing=frozenset(sharing),
        topology=draw(st.sampled_from((Topology.ANY, Topology.ANY, Topology.NUMA, Topology.NVLINK))),
        preferences=draw(st.sampled_from(((), (("t4", 2.0), ("ampere", 1.0))))),
        cpu_milli=draw(st.sampled_from((0, 4_000, 16_000))),
    )


def policies() -> st.SearchStrategy[Policy]:
    return st.sampled_from(tuple(POLICIES.values()))


@st.composite
def mixes(draw: st.DrawFn) -> Mix:
    histogram = MixHistogram()
    for request in draw(st.lists(requests(most_containers=1), max_size=6)):
        histogram.note(request)
    return histogram.mix()


@st.composite
def outlooks(draw: st.DrawFn, fleet: Fleet) -> Outlook:
    """Return an outlook for the fleet's kinds, or for the first of them only, as before a new kind appeared."""
    return Outlook.of(draw(mixes()), fleet.kinds[: draw(st.integers(0, len(fleet.kinds)))])
