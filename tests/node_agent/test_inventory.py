import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.health import HealthTracker, Verdict
from node_agent.inventory import Circumstances, Identity, Inventory
from node_agent.occupancy import occupancy_of
from node_agent.readings import Claims, DeviceReading, MigReading, ProcessReading, Readings, Tenant
from node_agent.report import Booking, Health, Mode, NodeState, Owner, PluginResource


def booking(pod_uid="ours", uuid="GPU-a", memory_mib=8000):
    return Booking(
        pod_uid=pod_uid,
        namespace="d",
        name=pod_uid,
        container="main",
        uuid=uuid,
        memory_mib=memory_mib,
        compute_milli=500,
    )


def tenants(**by_pid):
    owners = {int(pid[1:]): tenant for pid, tenant in by_pid.items()}
    return owners.get


OURS = Tenant(pod_uid="ours", container="main")
OTHER = Tenant(pod_uid="other", container="main")


def report(readings, circumstances=None, find_tenant={}.get, inventory=None):
    inventory = inventory or Inventory(Identity("n", "run"))
    return inventory.report(readings, circumstances or Circumstances(), find_tenant)


class TestOccupancy:
    def test_a_pods_memory_is_its_own_and_strangers_memory_is_foreign(self):
        processes = [ProcessReading(pid=1, memory_mib=3000, sm_ratio=0.2), ProcessReading(pid=2, memory_mib=500)]
        found = occupancy_of("GPU-a", processes, 3500, [booking()], tenants(p1=OURS))
        assert found.foreign_mib == 500
        assert [(each.pod_uid, each.memory_mib, each.sm_ratio) for each in found.usage] == [("ours", 3000, 0.2)]

    def test_a_pod_without_a_booking_on_this_device_is_foreign_here(self):
        process = [ProcessReading(pid=1, memory_mib=3000)]
        assert occupancy_of("GPU-b", process, 3000, [], tenants(p1=OTHER)).foreign_mib == 3000

    def test_a_pod_that_booked_another_device_of_the_node_is_foreign_here_and_told(self):
        process = [ProcessReading(pid=1, memory_mib=3000, sm_ratio=0.5)]
        found = occupancy_of("GPU-b", process, 3000, [], tenants(p1=OURS), {"ours"})
        assert (found.foreign_mib, found.usage) == (3000, ())
        assert [(each.pod_uid, each.uuid, each.memory_mib) for each in found.misplaced] == [("ours", "GPU-b", 3000)]

    def test_several_processes_of_one_container_add_up(self):
        processes = [ProcessReading(pid=each, memory_mib=100, sm_ratio=0.4) for each in (1, 2, 3)]
        [usage] = occupancy_of("GPU-a", processes, 300, [booking()], tenants(p1=OURS, p2=OURS, p3=OURS)).usage
        assert (usage.memory_mib, usage.sm_ratio) == (300, 1.0)

    def test_unexplained_memory_is_ours_up_to_what_is_booked(self):
        # 8,000 booked, 1,000 seen: 7,000 of the 9,000 unexplained may be ours, 2,000 are not.
        process = [ProcessReading(pid=1, memory_mib=1000)]
        assert occupancy_of("GPU-a", process, 10_000, [booking()], tenants(p1=OURS)).foreign_mib == 2000

    def test_hidden_process_memory_is_foreign_where_nothing_is_booked(self):
        # WSL2 and some vGPU list processes without their memory.
        assert occupancy_of("GPU-a", [ProcessReading(pid=9)], 4096, [], tenants()).foreign_mib == 4096

    def test_an_idle_device_has_no_foreign_memory(self):
        assert occupancy_of("GPU-a", [], 3, [], tenants()).foreign_mib == 0

    def test_mps_server_works_for_our_pods(self):
        server = Tenant(is_mps_server=True)
        process = [ProcessReading(pid=1, memory_mib=6000)]
        assert occupancy_of("GPU-a", process, 6000, [booking()], tenants(p1=server)).foreign_mib == 0

    @given(
        st.lists(st.tuples(st.integers(0, 5000), st.sampled_from([OURS, OTHER, None])), max_size=70),
        st.integers(0, 200_000),
        st.integers(0, 50_000),
    )
    def test_foreign_covers_all_memory_that_the_books_do_not(self, listed, used_mib, booked_mib):
        """Booked plus foreign plus noise is never less than what is in use: no memory is given away twice."""
        processes = [ProcessReading(pid=pid, memory_mib=mib) for pid, (mib, _) in enumerate(listed)]
        found = occupancy_of("GPU-a", processes, used_mib, [booking(memory_mib=booked_mib)], lambda pid: listed[pid][1])
        ours_mib = sum(each.memory_mib for each in found.usage)
        assert max(booked_mib, ours_mib) + found.foreign_mib + 64 >= used_mib


class TestDevices:
    def test_one_lost_device_degrades_the_node_and_spares_the_rest(self):
        healthy = [DeviceReading(uuid=f"GPU-{each}", total_mib=1000, used_mib=0) for each in range(7)]
        inventory = Inventory(Identity("n", "run"))
        before = report(Readings(devices=(*healthy, DeviceReading(uuid="GPU-7", total_mib=1000))), inventory=inventory)
        after = report(
            Readings(devices=(*healthy, DeviceReading(uuid="GPU-7", lost=True, problem="GPU is lost"))),
            inventory=inventory,
        )
        assert after.devices[:7] == before.devices[:7]
        assert (after.state, after.devices[7].health, after.devices[7].fault) == (
            NodeState.DEGRADED,
            Health.LOST,
            "GPU is lost",
        )
        assert after.devices[7].total_mib == 1000

    def test_vanished_device_goes_on_being_reported_as_lost(self):
        inventory = Inventory(Identity("n", "run"))
        report(Readings(devices=(DeviceReading(uuid="GPU-a", total_mib=1000),)), inventory=inventory)
        [device] = report(Readings(devices=()), inventory=inventory).devices
        assert (device.uuid, device.health, device.total_mib) == ("GPU-a", Health.LOST, 1000)
        inventory.forget("GPU-a")
        assert report(Readings(devices=()), inventory=inventory).devices == ()

    def test_memory_that_the_driver_does_not_tell_is_zero_schedulable(self):
        [device] = report(Readings(devices=(DeviceReading(uuid="GPU-a", name="NVIDIA GB10"),))).devices
        assert (device.total_mib, device.reserved_mib, device.used_mib) == (0, 0, None)

    def test_split_device_is_marked_and_its_instances_are_devices(self):
        instance = MigReading(uuid="MIG-1", profile="1g.10gb", sm_count=14, total_mib=9728, placement_start=6)
        reading = DeviceReading(uuid="GPU-a", sm_count=108, mig_enabled=True, mig_devices=(instance,), utilisation=0.5)
        parent, child = report(Readings(devices=(reading,))).devices
        assert parent.mig_enabled
        assert parent.utilisation is None
        # 14 of 108 SMs are 129 thousandths, rounded down.
        assert (child.mode, child.sm_milli, child.mig.parent_uuid, child.mig.placement_start) == (
            Mode.MIG,
            129,
            "GPU-a",
            6,
        )

    def test_instances_share_the_fate_of_their_device(self):
        instance = MigReading(uuid="MIG-1", profile="1g.10gb")
        reading = DeviceReading(uuid="GPU-a", mig_enabled=True, mig_devices=(instance,))
        out = Circumstances(verdicts={"GPU-a": Verdict(Health.OUT, "XID 79")})
        assert [each.health for each in report(Readings(devices=(reading,)), out).devices] == [Health.OUT, Health.OUT]

    def test_one_instance_can_be_cordoned_alone(self):
        instances = (MigReading(uuid="MIG-1", profile="1g.10gb"), MigReading(uuid="MIG-2", profile="1g.10gb"))
        readings = Readings(devices=(DeviceReading(uuid="GPU-a", mig_enabled=True, mig_devices=instances),))
        verdicts = HealthTracker().observe(readings, 0, ["MIG-2"])
        states = [each.health for each in report(readings, Circumstances(verdicts=verdicts)).devices]
        assert states == [Health.HEALTHY, Health.HEALTHY, Health.CORDONED]

    def test_fault_of_one_instance_spares_the_others_and_the_gravest_state_counts(self):
        instances = (MigReading(uuid="MIG-1", profile="1g.10gb"), MigReading(uuid="MIG-2", profile="1g.10gb"))
        readings = Readings(devices=(DeviceReading(uuid="GPU-a", mig_enabled=True, mig_devices=instances),))
        verdicts = {"GPU-a": Verdict(Health.SUSPECT), "MIG-2": Verdict(Health.OUT, "XID 94")}
        states = [each.health for each in report(readings, Circumstances(verdicts=verdicts)).devices]
        assert states == [Health.SUSPECT, Health.SUSPECT, Health.OUT]

    def test_load_of_an_instance_is_its_own(self):
        instance = MigReading(uuid="MIG-1", profile="1g.10gb", sm_active=0.7)
        reading = DeviceReading(uuid="GPU-a", mig_enabled=True, mig_devices=(instance,))
        assert [each.utilisation for each in report(Readings(devices=(reading,))).devices] == [None, 0.7]

    def test_gpm_load_wins_over_nvml_utilisation(self):
        reading = DeviceReading(uuid="GPU-a", utilisation=1.0, sm_active=0.04)
        assert report(Readings(devices=(reading,))).devices[0].utilisation == 0.04

    @pytest.mark.parametrize(
        ("claimed", "used", "owner"),
        [
            pytest.param(False, True, Owner.TANGRAM, id="ours"),
            pytest.param(True, False, Owner.PLUGIN, id="the plugin's"),
            pytest.param(True, True, Owner.CONTRADICTION, id="claimed by both"),
        ],
    )
    def test_owner(self, claimed, used, owner):
        reading = DeviceReading(uuid="GPU-a", processes=(ProcessReading(pid=1, memory_mib=10),) if used else ())
        resource = PluginResource(resource="nvidia.com/gpu", replicas=1, used=0, uuids=("GPU-a",))
        claims = Claims(plugin=(resource,), plugin_uuids=frozenset({"GPU-a"})) if claimed else Claims()
        circumstances = Circumstances(bookings=[booking()] if used else [], claims=claims)
        [device] = report(Readings(devices=(reading,)), circumstances, tenants(p1=OURS)).devices
        assert device.owner is owner

    def test_mps_device_tells_whether_it_serves(self):
        readings = Readings(devices=(DeviceReading(uuid="GPU-a"), DeviceReading(uuid="GPU-b")))
        claims = Claims(modes={"GPU-a": Mode.MPS}, not_ready=frozenset({"GPU-a"}))
        first, second = report(readings, Circumstances(claims=claims)).devices
        assert (first.mode, first.mode_ready) == (Mode.MPS, False)
        assert (second.mode, second.mode_ready) == (Mode.TIME_SLICING, True)

    def test_sequence_grows_and_the_node_state_is_passed_on(self):
        inventory = Inventory(Identity("n", "run"))
        readings = Readings(state=NodeState.NO_DRIVER, message="driver is not loaded")
        first, second = (report(readings, inventory=inventory) for _ in range(2))
        assert (first.sequence, second.sequence) == (1, 2)
        assert (second.state, second.message) == (NodeState.NO_DRIVER, "driver is not loaded")
