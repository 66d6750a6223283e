from __future__ import annotations

from scoring.phases import Phase, phases
from scoring.request import ContainerAsk, ContainerKind

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def _asks(*kinds: ContainerKind) -> list[ContainerAsk]:
    return [ContainerAsk(f"c{at}", memory_mib=100 - at, kind=kind) for at, kind in enumerate(kinds)]


def test_main_phase_comes_first_then_each_init_container():
    assert phases(_asks(INIT, INIT, APP)) == (Phase((2,), is_main=True), Phase((0,)), Phase((1,)))


def test_sidecars_run_beside_what_follows_them():
    assert phases(_asks(INIT, SIDECAR, INIT, SIDECAR, APP)) == (
        Phase((1, 3, 4), is_main=True),
        Phase((0,)),
        Phase((2,), beside=(1,)),
    )


def test_a_pod_of_init_containers_has_no_main_phase():
    assert phases(_asks(INIT)) == (Phase((0,)),)


def test_the_largest_ask_is_placed_first():
    asks = [
        ContainerAsk("small", memory_mib=1),
        ContainerAsk("whole", compute_milli=1000),
        ContainerAsk("two", 2, memory_mib=1),
        ContainerAsk("large", memory_mib=9),
        ContainerAsk("wide", memory_mib=1, compute_milli=900),
    ]
    assert phases(asks)[0].placed_now == (1, 2, 3, 4, 0)
