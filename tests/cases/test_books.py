"""Cases B1 to B11: the books (shared cases, from public bug reports)."""

from __future__ import annotations

import asyncio
import random

import msgspec
import pytest

from extender.changes import KnownObjects, ObjectKey
from extender.holdings import Phase, Reservation
from extender.objects import Pod
from extender.observing import observe_pod
from extender.wire import BindArgs
from scoring.status import Reason, Verdict
from tests.support.builders import (
    PREFIX,
    bound,
    device,
    devices,
    placing,
    pod,
    share_request,
    store_with,
    whole_request,
)
from tests.support.harness import Harness, harness
from tests.support.kube import Fault

pytestmark = pytest.mark.anyio

NOW = 1000.0


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def allocated(bench: Harness) -> dict[str, list[str]]:
    """Return pod -> devices as the annotations on the pods have it."""
    found = {}
    for live in bench.kube.pods.values():
        seen = observe_pod(live, PREFIX)
        if seen.allocation is not None:
            found[live.metadata.name] = [share.uuid for share in seen.allocation.shares()]
    return found


def booked_mib(bench: Harness) -> int:
    return int(bench.store.snapshot().booked_mib.sum())


async def test_b1_no_rounding_in_anyones_favour() -> None:
    bench = harness({"n": [device(total_mib=46_068)]})
    placed = [await bench.run(pod(f"p{number}", gpu_memory=2000), ["n"]) for number in range(24)]
    # 46,068 / 2,000 = 23.034; each books 1000 * 2000 // 46068 = 43 thousandths.
    assert placed == ["n"] * 23 + [""]


async def test_b2_one_free_device_and_three_halves_at_once() -> None:
    for repetition in range(200):
        bench = harness({"n": devices(8, total_mib=24_576)})
        for full in range(7):
            bench.store.set_pod(bound(f"full-{full}", f"GPU-{full}", 24_576, 1000, node="n"))
        pods = [pod(f"p{number}", gpu_memory=12_288) for number in range(3)]
        for asked in pods:
            bench.kube.add(asked)
        random.Random(repetition).shuffle(pods)
        binds = (bench.app.services.binder.bind(args_of(asked)) for asked in pods)
        errors = await asyncio.gather(*binds, return_exceptions=True)
        assert sum(isinstance(error, Exception) for error in errors) == 1
        assert sum(len(uuids) for uuids in allocated(bench).values()) == 2


def args_of(asked: Pod, node: str = "n") -> BindArgs:
    return BindArgs(asked.metadata.name, asked.metadata.namespace, asked.metadata.uid, node)


async def test_b3_sixteen_halves_on_eight_devices_at_once() -> None:
    bench = harness({"n": devices(8)})
    pods = [pod(f"p{number}", annotations={PREFIX + "gpu-fraction": "0.5"}) for number in range(16)]
    for asked in pods:
        bench.kube.add(asked)
    await asyncio.gather(*(bench.app.services.binder.bind(args_of(asked)) for asked in pods))
    fleet = bench.store.snapshot()
    assert fleet.sharers[:, 0].tolist() == [2] * 8
    assert fleet.booked_milli[:, 0].tolist() == [1000] * 8


async def test_b4_whole_devices_are_all_different() -> None:
    bench = harness({"n": devices(8)})
    for name, count in (("a", 2), ("b", 2), ("c", 4)):
        assert await bench.run(pod(name, gpu=count), ["n"]) == "n"
    given = [uuid for uuids in allocated(bench).values() for uuid in uuids]
    assert len(given) == len(set(given)) == 8


async def test_b5_a_deletion_that_only_a_relist_shows_frees_by_uid() -> None:
    bench = harness({"n": devices(8)})
    first = pod("big", uid="uid-1", gpu=8)
    assert await bench.run(first, ["n"]) == "n"
    known, handler = KnownObjects(), bench.app.pod_handler()
    known.see(ObjectKey.of(first.metadata), "1")
    # The watch was down: the list shows the new pod under the old name, and the old UID as gone.
    again = pod("big", uid="uid-2", gpu=8)
    known.begin_list()
    replaced, _ = known.see(ObjectKey.of(again.metadata), "2")
    assert replaced is not None
    handler.on_delete(replaced)
    handler.on_set(again)
    assert await bench.run(again, ["n"]) == "n"
    assert [key.uid for key in known.finish_list()] == []


async def test_b6_a_late_delete_of_the_old_uid_frees_only_that_uid() -> None:
    bench = harness({"n": [device()]})
    old, new = pod("a", uid="1", gpu_memory=8192), pod("a", uid="2", gpu_memory=8192)
    await bench.run(old, ["n"])
    await bench.run(new, ["n"])
    assert booked_mib(bench) == 2 * 8192
    bench.app.pod_handler().on_delete(ObjectKey.of(old.metadata))
    assert booked_mib(bench) == 8192
    assert bench.store.ledger.get("2") is not None


def test_b7_a_terminating_pod_counts_after_a_restart_until_it_is_gone() -> None:
    store = store_with(device())
    store.set_pod(bound("a", is_terminating=True))
    assert store.snapshot().booked_mib[0, 0] == 8192
    store.release("uid-a")
    assert store.snapshot().booked_mib[0, 0] == 0


async def test_b8_a_conflict_undoes_the_reservation_and_the_next_pod_fits() -> None:
    bench = harness({"n": [device()]})
    bench.kube.faults.append(Fault.CONFLICT)
    refused, following = pod("a", gpu=1), pod("b", gpu=1)
    bench.kube.add(refused)
    assert "refused" in await bench.bind(refused, "n")
    assert booked_mib(bench) == 0
    assert await bench.run(following, ["n"]) == "n"


async def test_b9_a_binding_whose_answer_was_lost_is_booked_once_and_its_retry_succeeds() -> None:
    bench = harness({"n": [device()]})
    asked = pod("a", gpu_memory=8192)
    bench.kube.add(asked)
    bench.kube.faults.append(Fault.LOST_AFTER)
    assert await bench.bind(asked, "n") == ""
    assert await bench.bind(asked, "n") == ""
    assert booked_mib(bench) == 8192
    assert len(bench.kube.bindings) == 1


async def test_b10_a_pod_that_ran_to_its_end_frees_its_share_at_once() -> None:
    bench = harness({"n": [device()]})
    job = pod("job", gpu=1)
    await bench.run(job, ["n"])
    live = bench.kube.pods["default", "job"]
    over = msgspec.structs.replace(live, status=msgspec.structs.replace(live.status, phase="Succeeded"))
    bench.app.pod_handler().on_set(over)
    assert booked_mib(bench) == 0
    assert await bench.run(pod("next", gpu=1), ["n"]) == "n"


async def test_b11_two_whole_device_pods_get_different_devices() -> None:
    bench = harness({"n": devices(2, name="Tesla V100-SXM2-16GB", total_mib=16_384)})
    for name in ("a", "b"):
        assert await bench.run(pod(name, gpu_compute=100, gpu_memory=16_000), ["n"]) == "n"
    assert sorted(uuids[0] for uuids in allocated(bench).values()) == ["GPU-0", "GPU-1"]


def test_a_refusal_names_the_dimension_that_ran_out() -> None:
    store = store_with(device())
    assert isinstance(store.assume(placing(whole_request(), "a"), NOW), Reservation)
    refused = store.assume(placing(share_request(), "b"), NOW)
    assert isinstance(refused, Verdict)
    assert refused.reason is Reason.INSUFFICIENT_MEMORY


async def test_books_equal_annotations_after_many_binds() -> None:
    bench = harness({"n": devices(4)})
    for number in range(30):
        await bench.run(pod(f"p{number}", gpu_memory=9000 + number), ["n"])
    expected = sum(
        booking.memory_mib for live in bench.kube.pods.values() for booking in observe_pod(live, PREFIX).booked
    )
    assert booked_mib(bench) == expected > 0
    assert all(bench.store.ledger.get(f"uid-{name}").phase is Phase.CONFIRMED for name in allocated(bench))  # type: ignore[union-attr]


async def test_fifty_binds_at_once_for_a_device_with_room_for_three() -> None:
    for _ in range(20):
        bench = harness({"n": [device(total_mib=30_000)]})
        pods = [pod(f"p{number}", gpu_memory=9000) for number in range(50)]
        for asked in pods:
            bench.kube.add(asked)
        errors = await asyncio.gather(*(bench.bind(asked, "n") for asked in pods))
        assert sum(not error for error in errors) == 3
        assert len(allocated(bench)) == len(bench.kube.bindings) == 3
        assert booked_mib(bench) == 27_000
