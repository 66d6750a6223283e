"""The bind transaction under every outcome that the API server can have."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from extender.binder import Binder
from extender.errors import (
    BoundElsewhere,
    KubeUnreachable,
    NoLongerFits,
    NotActive,
    OutcomeUnknown,
    PodReplaced,
)
from extender.evaluations import Evaluations
from extender.holdings import Phase
from extender.objects import Pod
from extender.settings import Settings
from extender.store import ClusterStore
from extender.wire import BindArgs
from scoring.errors import InvalidRequest
from tests.support.builders import A100_MIB, PREFIX, device, node_facts, pod, report, store_with
from tests.support.clock import ManualClock
from tests.support.kube import FakeKube, Fault

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Bench:
    """A store with one node, an API server with some pods, and the binder between them."""

    def __init__(self, *pods: Pod, may_act: bool = True) -> None:
        self.kube = FakeKube(*pods)
        self.clock = ManualClock()
        self.store: ClusterStore = store_with(device())
        self.may_act = may_act
        settings = Settings()
        self.binder = Binder(self.store, self.kube, Evaluations(settings), settings, self.clock, lambda: self.may_act)

    async def bind(self, name: str = "p", node: str = "n1", uid: str | None = None) -> object:
        return await self.binder.bind(BindArgs(name, "default", uid or f"uid-{name}", node))

    def booked_mib(self) -> int:
        return int(self.store.snapshot().booked_mib[0, 0])

    def phase(self, name: str = "p") -> Phase | None:
        holding = self.store.ledger.get(f"uid-{name}")
        return None if holding is None else holding.phase


async def test_a_bind_writes_one_binding_with_the_allocation_and_confirms() -> None:
    bench = Bench(pod("p", gpu_memory=8192))
    await bench.bind()
    [(name, node, annotations)] = bench.kube.bindings
    assert (name, node) == ("p", "n1")
    assert '"uuid":"GPU-0","memory_mib":8192' in annotations[PREFIX + "allocation"]
    assert bench.phase() is Phase.CONFIRMED


async def test_the_same_bind_again_succeeds_and_writes_nothing() -> None:
    bench = Bench(pod("p", gpu_memory=8192))
    await bench.bind()
    await bench.bind()
    assert len(bench.kube.bindings) == 1
    assert bench.booked_mib() == 8192


async def test_two_binds_at_once_write_one_binding() -> None:
    bench = Bench(pod("p", gpu_memory=8192))
    await asyncio.gather(bench.bind(), bench.bind())
    assert bench.kube.posted == 1
    assert bench.booked_mib() == 8192


async def test_a_bind_to_another_node_after_success_is_refused_and_the_books_stay() -> None:
    bench = Bench(pod("p", gpu_memory=8192))
    await bench.bind()
    with pytest.raises(BoundElsewhere):
        await bench.bind(node="n2")
    assert bench.booked_mib() == 8192


async def test_another_uid_is_refused() -> None:
    bench = Bench(pod("p", uid="new", gpu_memory=8192))
    with pytest.raises(PodReplaced, match="found one with UID new"):
        await bench.bind(uid="old")
    assert bench.booked_mib() == 0


@pytest.mark.parametrize("name", ["q", "nobody"])
async def test_a_call_with_another_pods_uid_frees_nothing_of_that_pod(name: str) -> None:
    bench = Bench(pod("p", gpu_memory=8192), pod("q", gpu_memory=8192))
    await bench.bind()
    with pytest.raises(PodReplaced):
        await bench.bind(name, uid="uid-p")
    assert bench.booked_mib() == 8192
    assert bench.phase() is Phase.CONFIRMED


async def test_a_call_with_the_uid_of_a_waiting_pod_does_not_bar_it_for_good() -> None:
    bench = Bench(pod("p", gpu_memory=8192))
    with pytest.raises(PodReplaced):
        await bench.bind("nobody", uid="uid-p")
    await bench.bind()
    assert bench.booked_mib() == 8192


async def test_a_pod_that_is_gone_is_refused() -> None:
    with pytest.raises(PodReplaced):
        await Bench().bind()


async def test_what_was_taken_since_filter_is_refused_with_its_reason() -> None:
    bench = Bench(pod("big", gpu_memory=A100_MIB), pod("p", gpu_memory=8192))
    await bench.bind("big")
    with pytest.raises(NoLongerFits, match="too little free GPU memory"):
        await bench.bind()
    assert bench.phase() is None


async def test_b8_a_conflict_undoes_the_reservation_once_and_the_next_pod_fits() -> None:
    bench = Bench(pod("p", gpu_memory=A100_MIB), pod("q", gpu_memory=A100_MIB))
    bench.kube.faults.append(Fault.CONFLICT)
    with pytest.raises(NoLongerFits):
        await bench.bind("p")
    assert bench.booked_mib() == 0
    await bench.bind("q")
    assert bench.booked_mib() == A100_MIB


async def test_b9_a_lost_answer_after_the_write_is_found_by_the_read() -> None:
    bench = Bench(pod("p", gpu_memory=8192))
    bench.kube.faults.append(Fault.LOST_AFTER)
    await bench.bind()
    assert bench.phase() is Phase.CONFIRMED
    assert bench.booked_mib() == 8192


async def test_b9_a_lost_answer_with_no_reads_keeps_the_reservation_until_the_retry() -> None:
    bench = Bench(pod("p", gpu_memory=8192))
    bench.kube.faults.append(Fault.LOST_AFTER)
    real = bench.kube.get_pod
    reads = 0

    async def only_first(namespace: str, name: str) -> Pod | None:
        nonlocal reads
        reads += 1
        if reads > 1:
            raise KubeUnreachable("no connection")
        return await real(namespace, name)

    bench.kube.get_pod = only_first  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        await bench.bind()
    assert bench.phase() is Phase.ASSUMED
    assert bench.booked_mib() == 8192
    bench.kube.get_pod = real  # type: ignore[method-assign]
    await bench.bind()
    assert bench.phase() is Phase.CONFIRMED
    assert len(bench.kube.bindings) == 1


async def test_a_binding_lost_before_the_write_keeps_its_room_and_the_retry_uses_it() -> None:
    bench = Bench(pod("p", gpu_memory=A100_MIB), pod("q", gpu_memory=A100_MIB))
    bench.kube.faults.append(Fault.LOST_BEFORE)
    with pytest.raises(OutcomeUnknown):
        await bench.bind()
    with pytest.raises(NoLongerFits):
        await bench.bind("q")
    await bench.bind()
    assert bench.phase() is Phase.CONFIRMED


async def test_a_refused_retry_keeps_the_room_of_the_binding_that_may_still_land() -> None:
    bench = Bench(pod("p", gpu_memory=8192))
    bench.kube.faults += [Fault.LOST_BEFORE, Fault.CONFLICT]
    with pytest.raises(OutcomeUnknown):
        await bench.bind()
    with pytest.raises(NoLongerFits):
        await bench.bind()
    assert bench.booked_mib() == 8192


async def test_a_bind_elsewhere_while_an_outcome_is_open_is_refused() -> None:
    bench = Bench(pod("p", gpu_memory=8192))
    bench.store.set_node(node_facts("n2"))
    bench.store.apply_report(report("n2", device("GPU-9")), bench.clock.now())
    bench.kube.faults.append(Fault.LOST_BEFORE)
    with pytest.raises(OutcomeUnknown):
        await bench.bind()
    with pytest.raises(BoundElsewhere, match="being bound to node n1"):
        await bench.bind(node="n2")


async def test_settling_keeps_what_may_still_land_and_frees_it_later() -> None:
    bench = Bench(pod("p", gpu_memory=8192))
    bench.kube.faults.append(Fault.LOST_BEFORE)
    with pytest.raises(OutcomeUnknown):
        await bench.bind()
    assert await bench.binder.settle() == 0
    bench.clock.advance(31)
    assert await bench.binder.settle() == 1
    assert bench.booked_mib() == 0


async def test_settling_confirms_what_has_landed() -> None:
    bench = Bench(pod("p", gpu_memory=8192))
    bench.kube.faults.append(Fault.LOST_AFTER)
    bench.binder._settings = bench.binder._settings.model_copy(update={"bind_reads": 0})
    with pytest.raises(OutcomeUnknown):
        await bench.bind()
    assert await bench.binder.settle() == 1
    assert bench.phase() is Phase.CONFIRMED


async def test_settling_frees_a_pod_that_is_gone() -> None:
    bench = Bench(pod("p", gpu_memory=8192))
    bench.kube.faults.append(Fault.LOST_BEFORE)
    with pytest.raises(OutcomeUnknown):
        await bench.bind()
    bench.kube.remove("p")
    assert await bench.binder.settle() == 1
    assert bench.booked_mib() == 0


async def test_an_unreachable_api_server_at_the_look_reserves_nothing() -> None:
    bench = Bench(pod("p", gpu_memory=8192))
    bench.kube.refuse_reads = 1
    with pytest.raises(KubeUnreachable):
        await bench.bind()
    assert bench.phase() is None


async def test_a_pod_that_cannot_be_understood_is_refused_and_nothing_is_reserved() -> None:
    bench = Bench(pod("p", gpu_memory="12x"))
    with pytest.raises(InvalidRequest, match="12x"):
        await bench.bind()
    assert bench.booked_mib() == 0


async def test_a_replica_without_the_lease_binds_nothing() -> None:
    bench = Bench(pod("p", gpu_memory=8192), may_act=False)
    with pytest.raises(NotActive):
        await bench.bind()
    assert bench.kube.posted == 0


async def test_a_tenure_that_is_about_to_begin_is_waited_for() -> None:
    bench = Bench(pod("p", gpu_memory=8192), may_act=False)
    sleep = bench.clock.sleep

    async def begins_after_a_second(seconds: float) -> None:
        await sleep(seconds)
        bench.may_act = sum(bench.clock.slept) >= 1

    bench.clock.sleep = begins_after_a_second  # type: ignore[method-assign]
    assert (await bench.bind()).node
    assert bench.kube.posted == 1


async def test_a_lease_that_is_lost_before_the_write_undoes_the_reservation() -> None:
    bench = Bench(pod("p", gpu_memory=8192))
    real = bench.kube.get_pod

    async def loses_lease(namespace: str, name: str) -> Pod | None:
        bench.may_act = False
        return await real(namespace, name)

    bench.kube.get_pod = loses_lease  # type: ignore[method-assign]
    with pytest.raises(NotActive):
        await bench.bind()
    assert (bench.kube.posted, bench.booked_mib()) == (0, 0)


async def test_a_call_that_is_cancelled_in_the_write_keeps_its_room_until_it_is_settled() -> None:
    bench = Bench(pod("p", gpu_memory=8192))
    started = asyncio.Event()

    async def hangs(*_: object) -> None:
        started.set()
        await asyncio.Event().wait()

    bench.kube.bind = hangs  # type: ignore[assignment, method-assign]
    task = asyncio.create_task(bench.bind())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    holding = bench.store.ledger.get("uid-p")
    assert holding is not None
    assert holding.outcome_unknown


async def test_a_pod_that_was_bound_here_without_an_allocation_is_an_error_and_conflicts_the_node() -> None:
    bench = Bench(pod("p", node="n1", gpu_memory=8192))
    with pytest.raises(BoundElsewhere, match="bound by somebody else"):
        await bench.bind()
    assert bench.store.ledger.problems("n1")


async def test_a_pod_without_devices_is_bound_and_its_stray_keys_are_emptied() -> None:
    bench = Bench(pod("p", annotations={PREFIX + "devices-main": "GPU-0"}))
    await bench.bind()
    [(_, _, annotations)] = bench.kube.bindings
    assert annotations == {PREFIX + "devices-main": ""}


class ChangingKube(FakeKube):
    """An API server in which a pod changes right after it was read, as often as ``changes`` says."""

    def __init__(self, *pods: Pod, changes: int) -> None:
        super().__init__(*pods)
        self.changes = changes

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        found = await super().get_pod(namespace, name)
        if found is not None and self.changes:
            self.changes -= 1
            self.change(name)
        return found

    def change(self, name: str) -> None:
        """Write into a pod as kube-scheduler does when it finds no node: a new resource version."""
        before = self.pods["default", name]
        marks = {**before.annotations, PREFIX + "devices-late": "GPU-forged"}
        version = str(int(before.metadata.resource_version or 0) + 1)
        metadata = msgspec.structs.replace(before.metadata, resource_version=version, annotations=marks)
        self.pods["default", name] = msgspec.structs.replace(before, metadata=metadata)


def changing(changes: int) -> tuple[Bench, ChangingKube]:
    bench = Bench()
    kube = ChangingKube(pod("p", gpu_memory=8192), changes=changes)
    kube.change("p")
    settings = Settings()
    bench.binder = Binder(bench.store, kube, Evaluations(settings), settings, bench.clock)
    bench.kube = kube
    return bench, kube


async def test_a_pod_that_changed_since_it_was_read_is_bound_as_it_is_now() -> None:
    bench, kube = changing(2)
    await bench.bind()
    [(_, _, annotations)] = kube.bindings
    assert kube.posted == 2  # The read after a refusal finds it unbound; the second change was seen by the next read.
    assert annotations[PREFIX + "devices-late"] == ""
    assert bench.phase() is Phase.CONFIRMED
    assert bench.booked_mib() == 8192


async def test_a_pod_that_changes_all_the_time_is_given_back_to_the_scheduler() -> None:
    bench, kube = changing(100)
    with pytest.raises(NoLongerFits, match="changed 3 times"):
        await bench.bind()
    assert (kube.posted, bench.booked_mib()) == (3, 0)


def _versioned(version: str, name: str = "p") -> Pod:
    made = pod(name, gpu_memory=8192)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, resource_version=version))


class ReadsCounted(FakeKube):
    reads = 0

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        self.reads += 1
        return await super().get_pod(namespace, name)


class TestPodThatFilterWasSent:
    """A bind need not read what kube-scheduler has just sent; what has changed since is found by the API server."""

    def _bench(self, *pods: Pod) -> tuple[Bench, ReadsCounted]:
        bench, kube = Bench(), ReadsCounted(*pods)
        bench.kube = kube
        settings = Settings()
        bench.binder = Binder(bench.store, kube, Evaluations(settings), settings, bench.clock)
        return bench, kube

    async def test_it_is_bound_without_a_read(self) -> None:
        bench, kube = self._bench(_versioned("7"))
        await bench.binder.bind(BindArgs("p", "default", "uid-p", "n1"), _versioned("7"))
        assert (kube.reads, len(kube.bindings)) == (0, 1)
        assert bench.phase() is Phase.CONFIRMED

    async def test_one_that_has_changed_is_read_and_bound_as_it_is_now(self) -> None:
        live = pod("p", gpu_memory=4096)
        live = msgspec.structs.replace(live, metadata=msgspec.structs.replace(live.metadata, resource_version="8"))
        bench, kube = self._bench(live)
        await bench.binder.bind(BindArgs("p", "default", "uid-p", "n1"), _versioned("7"))
        [(_, _, annotations)] = kube.bindings
        assert '"memory_mib":4096' in annotations[PREFIX + "allocation"]
        assert bench.booked_mib() == 4096

    async def test_one_that_was_bound_since_is_found_bound(self) -> None:
        bench, kube = self._bench(_versioned("7"))
        await bench.bind()
        bound_again = await bench.binder.bind(BindArgs("p", "default", "uid-p", "n1"), _versioned("7"))
        assert bound_again.is_repeat
        assert len(kube.bindings) == 1
        assert bench.booked_mib() == 8192

    async def test_one_that_is_gone_leaves_nothing_booked(self) -> None:
        bench, _ = self._bench()
        with pytest.raises(PodReplaced):
            await bench.binder.bind(BindArgs("p", "default", "uid-p", "n1"), _versioned("7"))
        assert bench.booked_mib() == 0

    @pytest.mark.parametrize("sent", [_versioned(""), _versioned("7", "other")], ids=["no version", "another pod"])
    async def test_what_cannot_be_relied_on_is_read(self, sent: Pod) -> None:
        bench, kube = self._bench(_versioned("7"))
        await bench.binder.bind(BindArgs("p", "default", "uid-p", "n1"), sent)
        assert (kube.reads, len(kube.bindings)) == (1, 1)
