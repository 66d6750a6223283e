import urllib.request

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from node_agent.agent import Sweep
from node_agent.exporter import SweepCollector, start_exporter
from node_agent.publisher import Tally
from node_agent.readings import CallError, Counters, DeviceReading, MigReading, Readings, XidEvent
from node_agent.report import Booking, Device, Health, Mig, Mode, NodeState, Report, Usage

BOOKING = Booking(
    pod_uid="u", namespace="team", name="train", container="c", uuid="GPU-a", memory_mib=1000, compute_milli=250
)


def sweep(device=None, reading=None, *, bookings=(), usage=(), **readings):
    device = Device(uuid="GPU-a", index=0, **(device or {}))
    reading = DeviceReading(uuid="GPU-a", index=0, **(reading or {}))
    report = Report(version=1, node="n", agent_run="r", sequence=1, devices=(device,), usage=usage)
    return Sweep(Readings(devices=(reading,), **readings), report, bookings)


def scrape(*sweeps, tally=None):
    collector = SweepCollector(tally)
    for each in sweeps:
        collector.take(each)
    return render(collector)


def render(collector):
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {(s.name, frozenset(s.labels.items())): s.value for each in families for s in each.samples}


def values(scraped, name):
    return {tuple(sorted(dict(labels).items())): value for (each, labels), value in scraped.items() if each == name}


def one(scraped, name):
    [value] = values(scraped, name).values()
    return value


def test_sizes_are_bytes_and_shares_are_ratios():
    scraped = scrape(
        sweep({"total_mib": 1000, "reserved_mib": 10, "used_mib": 20}, {"utilisation": 0.25, "sm_active": 0.05})
    )
    assert one(scraped, "tangram_gpu_memory_total_bytes") == 1000 * 2**20
    assert one(scraped, "tangram_gpu_memory_reserved_bytes") == 10 * 2**20
    assert one(scraped, "tangram_gpu_memory_used_bytes") == 20 * 2**20
    assert one(scraped, "tangram_gpu_utilization_ratio") == 0.25
    assert one(scraped, "tangram_gpu_sm_active_ratio") == 0.05


def test_unknown_values_have_no_series():
    scraped = scrape(sweep())
    for name in ("memory_total_bytes", "memory_used_bytes", "utilization_ratio", "power_watts", "temperature_celsius"):
        assert values(scraped, f"tangram_gpu_{name}") == {}
    assert values(scraped, "tangram_gpu_energy_joules_total") == {}
    assert values(scraped, "tangram_gpu_ecc_errors_total") == {}


def test_health_is_one_series_a_state():
    states = values(scrape(sweep({"health": Health.OUT})), "tangram_gpu_health")
    assert {dict(labels)["state"]: value for labels, value in states.items()} == {
        state: float(state is Health.OUT) for state in Health
    }


def test_xids_and_call_errors_count_over_sweeps():
    event = (XidEvent(uuid="GPU-a", xid=79),)
    error = (CallError(call="nvmlDeviceGetName", code=4, count=2),)
    scraped = scrape(sweep(events=event, errors=error), sweep(events=event, errors=error))
    assert one(scraped, "tangram_gpu_xid_errors_total") == 2
    assert one(scraped, "tangram_agent_nvml_errors_total") == 4
    assert one(scraped, "tangram_gpu_last_xid_timestamp_seconds") > 1.7e9


def test_throttle_reasons_and_energy():
    scraped = scrape(sweep(reading={"counters": Counters(clocks_event_reasons=0x40, energy_mj=5000)}))
    reasons = {dict(labels)["reason"]: value for labels, value in values(scraped, "tangram_gpu_throttled").items()}
    assert reasons["hardware_thermal"] == 1
    assert sum(reasons.values()) == 1
    assert one(scraped, "tangram_gpu_energy_joules_total") == 5


def test_what_waits_for_a_repair_is_shown_and_what_is_not_known_is_not():
    scraped = scrape(
        sweep(
            reading={
                "counters": Counters(
                    recovery_action=2, remapped_uncorrectable=1, remap_pending=True, remap_failed=False
                )
            }
        )
    )
    assert one(scraped, "tangram_gpu_recovery_action") == 2
    assert one(scraped, "tangram_gpu_uncorrectable_remapped_rows") == 1
    assert one(scraped, "tangram_gpu_row_remap_pending") == 1
    assert one(scraped, "tangram_gpu_row_remap_failed") == 0
    assert values(scraped, "tangram_gpu_retired_pages") == {}
    scraped = scrape(sweep(reading={"counters": Counters(retired_pages=3, retired_pending=True)}))
    assert one(scraped, "tangram_gpu_retired_pages") == 3
    assert one(scraped, "tangram_gpu_page_retirement_pending") == 1


def test_booked_stands_beside_measured_and_overuse_only_where_there_is_some():
    used = (Usage(pod_uid="u", uuid="GPU-a", memory_mib=1500, container="c", sm_ratio=0.3),)
    scraped = scrape(sweep(bookings=(BOOKING,), usage=used))
    assert one(scraped, "tangram_booked_gpu_memory_bytes") == 1000 * 2**20
    assert one(scraped, "tangram_process_gpu_memory_bytes") == 1500 * 2**20
    assert one(scraped, "tangram_gpu_memory_overuse_bytes") == 500 * 2**20
    [labels] = values(scraped, "tangram_process_gpu_memory_bytes")
    assert dict(labels) == {"node": "n", "namespace": "team", "pod": "train", "gpu_uuid": "GPU-a"}
    assert values(scrape(sweep(bookings=(BOOKING,))), "tangram_gpu_memory_overuse_bytes") == {}


def test_series_of_pods_and_devices_that_are_gone_are_gone():
    collector = SweepCollector()
    collector.take(sweep({"total_mib": 5}, bookings=(BOOKING,), events=(XidEvent(uuid="GPU-a", xid=13),)))
    empty = Report(version=1, node="n", agent_run="r", sequence=2)
    collector.take(Sweep(Readings(), empty))
    scraped = render(collector)
    assert not any("GPU-a" in value for _, labels in scraped for _, value in labels)


def test_mig_instance_is_labelled_with_parent_and_profile():
    device = {"total_mib": 9728, "mode": Mode.MIG, "mig": Mig(parent_uuid="GPU-p", profile="1g.10gb")}
    [labels] = values(scrape(sweep(device)), "tangram_gpu_memory_total_bytes")
    assert dict(labels) == {
        "node": "n",
        "gpu_uuid": "GPU-p",
        "gpu_index": "0",
        "mig_uuid": "GPU-a",
        "mig_profile": "1g.10gb",
    }


def test_pushes_are_counted_by_outcome():
    tally = Tally()
    tally.outcomes.update(ok=3, http_401=1)
    pushes = values(scrape(sweep(), tally=tally), "tangram_agent_pushes_total")
    assert {dict(labels)["outcome"]: value for labels, value in pushes.items()} == {"ok": 3, "http_401": 1}


def test_metrics_are_served_on_their_own_port():
    collector = SweepCollector()
    collector.take(sweep({"total_mib": 5}))
    server, thread = start_exporter(collector, "127.0.0.1", 0)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=5) as answer:
            assert b"tangram_gpu_memory_total_bytes{" in answer.read()
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def test_sm_time_beyond_the_booking_shows_on_shared_devices_only():
    other = replace(BOOKING, pod_uid="v", name="serve", compute_milli=500)
    used = (
        Usage(pod_uid="u", uuid="GPU-a", memory_mib=10, sm_ratio=0.75),
        Usage(pod_uid="v", uuid="GPU-a", memory_mib=10, sm_ratio=0.25),
    )
    over = values(scrape(sweep(bookings=(BOOKING, other), usage=used)), "tangram_gpu_sm_overuse_ratio")
    assert {dict(labels)["pod"]: value for labels, value in over.items()} == {"train": 0.5}
    assert values(scrape(sweep(bookings=(BOOKING,), usage=used[:1])), "tangram_gpu_sm_overuse_ratio") == {}


def test_state_of_the_node_is_one_series_a_state():
    states = values(scrape(sweep()), "tangram_agent_node_state")
    assert {dict(labels)["state"]: value for labels, value in states.items()} == {
        state: float(state is NodeState.OK) for state in NodeState
    }


def test_xid_of_an_instance_is_counted_on_the_instance():
    instance = MigReading(uuid="MIG-1", profile="1g.10gb", gi_id=7, ci_id=0)
    reading = DeviceReading(uuid="GPU-p", mig_enabled=True, mig_devices=(instance,))
    device = Device(uuid="MIG-1", index=0, mode=Mode.MIG, mig=Mig(parent_uuid="GPU-p", profile="1g.10gb"))
    report = Report(version=1, node="n", agent_run="r", sequence=1, devices=(Device(uuid="GPU-p", index=0), device))
    events = (XidEvent(uuid="GPU-p", xid=31, gi_id=7, ci_id=0),)
    [labels] = values(
        scrape(Sweep(Readings(devices=(reading,), events=events), report)), "tangram_gpu_xid_errors_total"
    )
    assert (dict(labels)["gpu_uuid"], dict(labels)["mig_uuid"], dict(labels)["xid"]) == ("GPU-p", "MIG-1", "31")


def test_activity_of_an_instance_is_labelled_with_it():
    instance = MigReading(uuid="MIG-1", profile="1g.10gb", sm_active=0.7)
    reading = DeviceReading(uuid="GPU-p", mig_enabled=True, mig_devices=(instance,))
    device = Device(uuid="MIG-1", index=0, mode=Mode.MIG, mig=Mig(parent_uuid="GPU-p", profile="1g.10gb"))
    report = Report(version=1, node="n", agent_run="r", sequence=1, devices=(Device(uuid="GPU-p", index=0), device))
    active = values(scrape(Sweep(Readings(devices=(reading,)), report)), "tangram_gpu_sm_active_ratio")
    assert {dict(labels)["mig_uuid"]: value for labels, value in active.items()} == {"MIG-1": 0.7}
