from __future__ import annotations

import asyncio

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families as parsed

from extender.fleet_metrics import FleetText
from extender.metric_families import EXTENDER_FAMILIES, FLEET, PODS_IN_TROUBLE, REFUSALS, Kind
from extender.metrics import FRESH_S, REQUEST_BUCKETS_S, Metrics
from extender.scheduler_config import HTTP_TIMEOUT_S
from extender.state_metrics import NOT_TRIED, OTHER, leading_reason, waiting_by_reason
from node_agent.report import Health, Mig
from scoring.status import Reason
from tests.support.builders import A100_MIB, bound, device, devices, node_facts, pod, report, store_with
from tests.support.harness import harness

pytestmark = pytest.mark.anyio

MIB = 2**20
A100 = "A100-SXM4-80GB"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def rendered(store) -> dict[tuple[str, tuple[str, ...]], float]:
    """Return every sample by name and label values, in order of the labels' names."""
    text = FleetText(store).part()().decode()
    samples = [sample for family in parsed(text) for sample in family.samples]
    return {(each.name, tuple(each.labels[key] for key in sorted(each.labels))): each.value for each in samples}


def value(store, name: str, *labels: str) -> float | None:
    return rendered(store).get((f"tangram_extender_{name}", labels))


class TestFleet:
    def test_devices_are_counted_by_node_product_and_state(self):
        store = store_with(device("GPU-0"), device("GPU-1", health=Health.OUT), device("GPU-2", health=Health.SUSPECT))
        for state in ("healthy", "out", "suspect"):
            assert value(store, "gpu_devices", "n1", A100, state) == 1

    def test_a_state_without_devices_has_no_series(self):
        assert value(store_with(device()), "gpu_devices", "n1", A100, "out") is None

    def test_memory_and_compute_are_totals_of_the_node(self):
        store = store_with(*devices(2))
        store.set_pod(bound("a", "GPU-0", memory_mib=8192, compute_milli=250))
        store.set_pod(bound("b", "GPU-1", memory_mib=1024, compute_milli=500))
        assert value(store, "gpu_memory_total_bytes", "n1", A100) == 2 * A100_MIB * MIB
        assert value(store, "gpu_memory_allocated_bytes", "n1", A100) == 9216 * MIB
        assert value(store, "gpu_compute_total_devices", "n1", A100) == 2
        assert value(store, "gpu_compute_allocated_devices", "n1", A100) == 0.75
        assert value(store, "gpu_shared_pods", A100) == 2

    def test_products_of_one_node_stand_apart(self):
        store = store_with(device("GPU-0"), device("GPU-1", name="Tesla T4", total_mib=15_360))
        assert value(store, "gpu_memory_total_bytes", "n1", "T4") == 15_360 * MIB
        assert value(store, "gpu_memory_total_bytes", "n1", A100) == A100_MIB * MIB

    def test_memory_is_stranded_where_no_compute_is_left_beside_it(self):
        store = store_with(*devices(2))
        assert value(store, "gpu_memory_stranded_bytes", "n1", A100) is None
        store.set_pod(bound("a", "GPU-0", memory_mib=8192, compute_milli=1000))
        assert value(store, "gpu_memory_stranded_bytes", "n1", A100) == (A100_MIB - 8192) * MIB

    def test_memory_that_foreign_processes_hold_is_not_stranded(self):
        store = store_with(device(foreign_mib=1024))
        store.set_pod(bound("a", memory_mib=8192, compute_milli=1000))
        assert value(store, "gpu_memory_foreign_bytes", "n1", A100) == 1024 * MIB
        assert value(store, "gpu_memory_stranded_bytes", "n1", A100) == (A100_MIB - 8192 - 1024) * MIB

    def test_fragmentation_is_the_part_of_free_compute_beside_pods(self):
        store = store_with(*devices(2))
        assert value(store, "fragmentation_ratio", "n1", A100) == 0
        store.set_pod(bound("a", "GPU-0", compute_milli=750))
        # 250 of the 1,250 thousandths that are free lie on the device with a pod.
        assert value(store, "fragmentation_ratio", "n1", A100) == pytest.approx(0.2)

    def test_fragmentation_is_absent_where_nothing_is_free(self):
        store = store_with(device())
        store.set_pod(bound("a", compute_milli=1000))
        assert value(store, "fragmentation_ratio", "n1", A100) is None

    def test_shares_of_a_device_that_fails_are_shown(self):
        store = store_with(device())
        store.set_pod(bound("a"))
        assert value(store, "gpu_shares_on_out_devices", "n1", A100) is None
        store.apply_report(report("n1", device(health=Health.OUT)), 1001.0)
        assert value(store, "gpu_shares_on_out_devices", "n1", A100) == 1

    def test_mig_instances_count_with_their_part_of_the_compute(self):
        mig = Mig(parent_uuid="GPU-0", profile="1g.10gb")
        store = store_with(device("MIG-0", mig=mig, total_mib=9728, mode="mig", sm_milli=142))
        assert value(store, "gpu_compute_total_devices", "n1", A100) == pytest.approx(0.142)

    def test_names_are_escaped(self):
        store = store_with(device(), node='odd "name"\\')
        assert value(store, "gpu_compute_total_devices", 'odd "name"\\', A100) == 1

    def test_no_label_names_a_device_or_a_pod(self):
        store = store_with(*devices(8))
        store.set_pod(bound("a-pod"))
        text = FleetText(store).part()().decode()
        assert "GPU-" not in text
        assert "a-pod" not in text
        assert {label for family in FLEET for label in family.labels} == {"node", "product", "state"}

    def test_an_empty_fleet_renders_no_sample(self):
        assert rendered(store_with()) == {}

    def test_a_node_that_left_leaves_no_series(self):
        store = store_with(device())
        text = FleetText(store)
        assert b'node="n1"' in text.part()()
        store.remove_node("n1")
        assert b'node="n1"' not in text.part()()

    def test_what_is_remembered_of_the_layout_gives_the_same_lines_as_a_fresh_start(self):
        store = store_with(*devices(3))
        text = FleetText(store)
        draw = np.random.default_rng(5)
        for step in range(20):
            if step % 5 == 4:
                store.set_node(node_facts(f"m{step}"))
                store.apply_report(report(f"m{step}", device(f"GPU-m{step}")), 1000.0 + step)
            store.set_pod(bound(f"p{step}", f"GPU-{draw.integers(3)}", memory_mib=64 * step, compute_milli=10))
            assert text.part()() == FleetText(store).part()()

    def test_five_thousand_nodes_stay_below_the_series_of_one_scrape(self):
        store = store_with()
        for number in range(50):
            store.set_node(node_facts(f"n{number}"))
            store.apply_report(report(f"n{number}", *(device(f"GPU-{number}-{at}") for at in range(8))), 1000.0)
        assert len(rendered(store)) <= 8 * 50 + 1


class TestWaiting:
    @pytest.mark.parametrize(
        ("message", "code"),
        [
            pytest.param("", NOT_TRIED, id="not tried"),
            pytest.param("3 Insufficient cpu.", OTHER, id="none of ours"),
            pytest.param(
                "12 too few GPUs that nobody uses, 3 node has no GPU.", Reason.NO_FREE_DEVICE.value, id="most nodes"
            ),
            pytest.param("30 Insufficient cpu, 2 node has no GPU.", Reason.NO_DEVICES.value, id="ours first"),
            pytest.param(
                "2 node has no GPU. preemption: 0/2 nodes are available: 2 No preemption victims found.",
                Reason.NO_DEVICES.value,
                id="preemption behind",
            ),
        ],
    )
    def test_the_leading_reason_is_read_off_the_schedulers_words(self, message, code):
        assert leading_reason(message) == code

    @pytest.mark.parametrize("reason", list(Reason))
    def test_every_reason_is_recognised(self, reason):
        assert leading_reason(f"1 node is cordoned, 7 {reason.sentence}.") == reason.value

    def test_pods_are_counted_by_reason(self):
        messages = ["", "", f"2 {Reason.NO_DEVICES.sentence}."]
        assert waiting_by_reason(messages) == {NOT_TRIED: 2, Reason.NO_DEVICES.value: 1}

    def test_labels_stay_a_closed_set_whatever_the_messages_say(self):
        codes = set(waiting_by_reason(f"{number} strange words {number}." for number in range(100)))
        assert codes == {OTHER}


class TestPage:
    async def test_the_page_is_what_prometheus_reads_and_every_family_is_defined(self):
        bench = harness({"n1": devices(2)})
        gpu = pod("a", gpu_memory=8192)
        assert await bench.run(gpu, ["n1"]) == "n1"
        assert await bench.run(pod("b", gpu=4), ["n1"]) == ""
        text = (await bench.http.get("/metrics")).text
        found = {family.name: family for family in parsed(text)}
        known = {family.name.removesuffix("_total") for family in EXTENDER_FAMILIES}
        always = known - {family.name.removesuffix("_total") for family in REFUSALS}
        assert {name for name in found if not name.endswith("_created")} == always
        for family in EXTENDER_FAMILIES:
            for sample in found[family.name.removesuffix("_total")].samples if family not in REFUSALS else ():
                assert set(sample.labels) - {"le"} == set(family.labels), family.name

    async def test_hours_of_a_namespace_grow_with_what_its_pods_book(self):
        bench = harness({"n1": devices(2)})
        await bench.run(pod("a", gpu=1), ["n1"])
        for _ in range(2):
            await bench.app.services.insight.usage.round()
            bench.clock.advance(36.0)
        text = (await bench.http.get("/metrics")).text
        assert 'tangram_extender_gpu_hours_booked_total{namespace="default"} 0.01' in text

    async def test_refusals_decisions_and_binds_are_counted(self):
        bench = harness({"n1": devices(2)})
        await bench.run(pod("a", gpu_memory=8192), ["n1"])
        await bench.run(pod("b", gpu=4), ["n1"])
        text = (await bench.http.get("/metrics")).text
        assert 'tangram_extender_filter_rejections_total{reason="TooFewDevices"} 1.0' in text
        assert 'tangram_extender_decisions_total{outcome="bound",policy="' in text
        assert 'tangram_extender_binds_total{outcome="bound"} 1.0' in text
        assert 'tangram_extender_request_duration_seconds_count{verb="filter"} 2.0' in text

    async def test_a_bind_that_lost_its_place_counts_as_a_conflict(self):
        bench = harness({"n1": devices(1)})
        late = pod("late", gpu=1)
        bench.kube.add(late)
        await bench.filter(late, ["n1"])
        await bench.run(pod("quick", gpu=1), ["n1"])
        assert await bench.bind(late, "n1")
        text = (await bench.http.get("/metrics")).text
        assert 'tangram_extender_bind_conflicts_total{outcome="NoLongerFits"} 1.0' in text

    async def test_ages_of_reports_grow_until_the_next_one(self):
        bench = harness({"n1": devices(1)})
        bench.clock.advance(7.0)
        text = (await bench.http.get("/metrics")).text
        assert 'tangram_extender_snapshot_age_seconds{source="reports"} 7.0' in text

    async def test_many_scrapers_cost_one_rendering(self):
        metrics, calls = Metrics(), []

        def part():
            calls.append(1)
            return lambda: b"part 1\n"

        metrics.add_part(part)
        pages = await asyncio.gather(*(metrics.page(100.0) for _ in range(5)))
        assert len(calls) == 1
        assert len(set(pages)) == 1
        assert (await metrics.page(100.0 + FRESH_S)).endswith(b"part 1\n")
        assert len(calls) == 2

    async def test_a_part_that_raises_spoils_one_page_only(self):
        metrics, broken = Metrics(), [True]

        def render() -> bytes:
            if broken:
                raise ZeroDivisionError
            return b"x"

        metrics.add_part(lambda: render)
        with pytest.raises(ZeroDivisionError):
            await metrics.page(1.0)
        broken.clear()
        assert (await metrics.page(1.0)).endswith(b"x")

    def test_buckets_are_below_the_schedulers_timeout(self):
        assert max(REQUEST_BUCKETS_S) < HTTP_TIMEOUT_S


def test_names_follow_the_naming_rules():
    for family in set(EXTENDER_FAMILIES) - {PODS_IN_TROUBLE}:
        assert family.name.startswith("tangram_extender_")
        assert family.name.endswith("_total") == (family.kind is Kind.COUNTER)
        assert not {"pod", "pod_uid", "pid", "gpu_uuid"} & set(family.labels)
    assert len({family.name for family in EXTENDER_FAMILIES}) == len(EXTENDER_FAMILIES)
