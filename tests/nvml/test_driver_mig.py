"""MIG on the stub driver: load by GPM, faults by instance, layouts that change (node-side.md 1.5, MIG and GPM)."""

import os

import pytest

from node_agent.health import HealthTracker
from node_agent.report import Device, Health, MigProfile, NodeState, Report
from node_agent.table import render
from tests.nvml.driver import until

TWO_INSTANCES = {"mig": 1, "mig.0": "1g.10gb:9984:16:7:6", "mig.3": "3g.40gb:40448:60:1:0"}


class TestGpm:
    def test_sm_activity_comes_with_the_second_sample(self, driver, supervise):
        driver.device(0, gpm=42, util=100)
        supervisor = supervise(driver)
        assert supervisor.read().devices[0].sm_active is None
        device = supervisor.read().devices[0]
        assert (device.sm_active, device.utilisation) == (0.42, 1.0)

    def test_each_instance_has_its_own_activity_and_the_split_device_none(self, driver, supervise):
        driver.device(0, {**TWO_INSTANCES, "gpm": 99, "gpm.7": 25, "gpm.1": 75})
        supervisor = supervise(driver)
        supervisor.read()
        device = supervisor.read().devices[0]
        assert device.sm_active is None
        assert [each.sm_active for each in device.mig_devices] == [0.25, 0.75]

    def test_instances_before_hopper_have_no_activity(self, driver, supervise):
        driver.device(0, TWO_INSTANCES)
        supervisor = supervise(driver)
        supervisor.read()
        assert [each.sm_active for each in supervisor.read().devices[0].mig_devices] == [None, None]

    @pytest.mark.parametrize("code", [3, 6, 21])
    def test_metric_that_ends_badly_inside_a_good_call_is_unknown(self, driver, supervise, code):
        driver.device(0, gpm=42, gpm_code=code)
        supervisor = supervise(driver)
        supervisor.read()
        assert supervisor.read().devices[0].sm_active is None

    def test_samples_are_given_back_to_the_driver(self, driver, supervise):
        # The stub has 64 samples; eight devices over twenty sweeps would need 160.
        driver.set(count=8)
        for index in range(8):
            driver.device(index, gpm=10)
        supervisor = supervise(driver)
        supervisor.read()
        for _ in range(20):
            assert {each.sm_active for each in supervisor.read().devices} == {0.1}


class TestFaultsOfInstances:
    @pytest.fixture
    def judged(self, driver, supervise):
        """Return a function that announces an XID and tells the health of everything after it."""
        driver.device(0, TWO_INSTANCES)
        supervisor, tracker = supervise(driver), HealthTracker()
        first, second = supervisor.read().devices[0].mig_devices

        def announce(xid, gi=-1, ci=-1):
            driver.announce(0, xid, gi, ci)
            readings = until(supervisor, lambda each: bool(each.events))
            verdicts = tracker.observe(readings, 0.0)
            return tuple(
                verdicts[uuid].health if uuid in verdicts else Health.HEALTHY
                for uuid in (readings.devices[0].uuid, first.uuid, second.uuid)
            )

        return announce

    def test_contained_fault_takes_out_its_instance_alone(self, judged):
        assert judged(94, gi=7, ci=0) == (Health.HEALTHY, Health.OUT, Health.HEALTHY)

    def test_fault_that_needs_a_reset_is_the_whole_devices(self, judged):
        assert judged(95, gi=7, ci=0) == (Health.OUT, Health.HEALTHY, Health.HEALTHY)

    def test_fault_without_an_instance_is_the_whole_devices(self, judged):
        assert judged(94) == (Health.OUT, Health.HEALTHY, Health.HEALTHY)

    def test_fault_in_an_instance_that_nobody_knows_is_the_whole_devices(self, judged):
        assert judged(94, gi=3) == (Health.OUT, Health.HEALTHY, Health.HEALTHY)


class TestLayout:
    def test_layout_that_changes_is_read_at_once(self, driver, supervise):
        driver.device(0, TWO_INSTANCES)
        supervisor = supervise(driver)
        assert len(supervisor.read().devices[0].mig_devices) == 2
        driver.device(0, {"mig.0": None, "mig.5": "1g.10gb:9984:16:9:1"})
        driver.announce_layout_change(0)
        assert supervisor.wait(5.0)
        assert [each.gi_id for each in supervisor.read().devices[0].mig_devices] == [1, 9]

    def test_mig_switched_on_is_seen_at_once(self, driver, supervise):
        supervisor = supervise(driver)
        assert not supervisor.read().devices[0].mig_enabled
        driver.device(0, TWO_INSTANCES)
        driver.announce_layout_change(0)
        assert supervisor.wait(5.0)
        device = supervisor.read().devices[0]
        assert (device.mig_enabled, len(device.mig_devices), device.utilisation) == (True, 2, None)


SHAPES = {"mig": 1, "profile.0": "1g.10gb:7:14:9728:0,1,2,3,4,5,6/1", "profile.9": "1g.20gb:4:26:19968:0,2,4,6/2"}


class TestProfiles:
    is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may ask for placements")

    @is_root
    def test_shapes_and_places_come_from_the_driver_past_ids_that_the_product_lacks(self, driver, sweep):
        driver.device(0, SHAPES)
        small, wide = sweep().devices[0].mig_profiles
        assert small == MigProfile(
            profile="1g.10gb", sm_count=14, total_mib=9728, max_count=7, placements=tuple((at, 1) for at in range(7))
        )
        assert (wide.profile, wide.placements) == ("1g.20gb", ((0, 2), (2, 2), (4, 2), (6, 2)))

    def test_places_that_may_not_be_asked_for_leave_the_shapes(self, driver, sweep):
        driver.device(0, {**SHAPES, "nvmlDeviceGetGpuInstancePossiblePlacements_v2": 4})
        readings = sweep()
        assert readings.state is NodeState.OK
        assert [(each.profile, each.placements) for each in readings.devices[0].mig_profiles] == [
            ("1g.10gb", ()),
            ("1g.20gb", ()),
        ]

    @pytest.mark.parametrize("code", [3, 4, 13])
    def test_shapes_that_are_denied_leave_the_instances(self, driver, sweep, code):
        driver.device(0, {**TWO_INSTANCES, "nvmlDeviceGetGpuInstanceProfileInfoV": code})
        device = sweep().devices[0]
        assert (device.mig_profiles, len(device.mig_devices)) == ((), 2)

    def test_device_that_is_not_split_is_not_asked(self, driver, sweep):
        driver.device(0, {**SHAPES, "mig": 0})
        assert sweep().devices[0].mig_profiles == ()

    def test_table_shows_what_a_split_device_can_have(self):
        shape = MigProfile(profile="2g.20gb", sm_count=28, total_mib=19968, max_count=3, placements=((0, 2), (2, 2)))
        device = Device(uuid="GPU-a", index=3, mig_enabled=True, mig_profiles=(shape,))
        table = render(Report(version=1, node="n", agent_run="r", sequence=1, devices=(device,)))
        assert table.splitlines()[-1] == "3 can have 3 x 2g.20gb (28 SMs, 19968 MiB), at 0:2, 2:2"
