"""The real binding in a real child process against the stub driver: node-side.md 1.3 and 6, row by row."""

import time

import pynvml
import pytest

from node_agent.report import NodeState
from tests.nvml.driver import IMPATIENT, until


class TestGoodDriver:
    def test_eight_devices_are_read_in_full(self, driver, sweep):
        driver.set(count=8)
        driver.device(3, total_mib=143771, reserved_mib=614, used_mib=2048, util=37, memutil=5, limit_mw=700000)
        readings = sweep()
        assert (readings.state, len(readings.devices), readings.driver, readings.cuda) == (
            NodeState.OK,
            8,
            "580.95.05",
            "13.0",
        )
        device = readings.devices[3]
        assert (device.total_mib, device.reserved_mib, device.used_mib) == (143771, 614, 2048)
        assert (device.utilisation, device.memory_utilisation, device.power_limit_watts) == (0.37, 0.05, 700.0)
        assert (device.compute_capability, device.sm_count, device.index) == ((9, 0), 132, 3)

    def test_values_that_a_product_lacks_are_absent_not_zero(self, driver, sweep):
        driver.set(nvmlDeviceGetTemperature=3, nvmlDeviceGetPowerUsage=3, nvmlDeviceGetUtilizationRates=3)
        device = sweep().devices[0]
        assert (device.temperature_celsius, device.power_watts, device.utilisation) == (None, None, None)
        assert device.counters.retired_pending is None

    def test_processes_of_all_lists_are_merged_by_pid(self, driver, sweep):
        driver.device(0, compute="10:100,11:200", graphics="11:300,12:50", mps="10:100", samples="10:40")
        processes = {each.pid: each for each in sweep().devices[0].processes}
        assert {pid: each.memory_mib for pid, each in processes.items()} == {10: 100, 11: 300, 12: 50}
        assert processes[10].sm_ratio == 0.4

    def test_seventy_processes_with_duplicates(self, driver, sweep):
        driver.device(
            0,
            compute=",".join(f"{1000 + each}:1" for each in range(50)),
            graphics=",".join(f"{1000 + each}:1" for each in range(30, 70)),
        )
        assert [each.pid for each in sweep().devices[0].processes] == list(range(1000, 1070))

    def test_memory_that_the_driver_hides_stays_unknown(self, driver, sweep):
        driver.device(0, compute="10:-")
        assert sweep().devices[0].processes[0].memory_mib is None

    def test_impossible_pids_of_a_shifted_struct_are_dropped(self, driver, sweep):
        driver.device(0, compute="0:5,4294967295:5,77:5")
        assert [each.pid for each in sweep().devices[0].processes] == [77]

    def test_switch_and_direct_links_make_groups(self, driver, sweep):
        driver.set(count=5)
        driver.device(0, links="1")
        driver.device(1, links="0")
        driver.device(2, links="switch")
        driver.device(3, links="switch,switch")
        assert [each.link_group for each in sweep().devices] == [0, 0, 1, 1, None]

    def test_numa_node_comes_from_sysfs(self, driver, supervise, tmp_path):
        driver.set(count=2)
        for address, node in (("0000:10:00.0", "1"), ("0000:11:00.0", "-1")):
            place = tmp_path / "bus/pci/devices" / address
            place.mkdir(parents=True)
            (place / "numa_node").write_text(node + "\n")
        devices = supervise(driver, TANGRAM_AGENT_SYSFS_ROOT=str(tmp_path)).read().devices
        assert [each.numa_node for each in devices] == [1, None]


class TestMig:
    def test_instances_after_a_hole_are_found(self, driver, sweep):
        driver.device(0, {"mig": 1, "mig.0": "1g.10gb:9984:16:7:6", "mig.3": "3g.40gb:40448:60:1:0"})
        device = sweep().devices[0]
        first, second = device.mig_devices
        assert (first.profile, first.placement_start, first.sm_count, first.total_mib) == ("1g.10gb", 6, 16, 9984)
        assert (second.profile, second.placement_start, second.placement_size, second.gi_id) == ("3g.40gb", 0, 4, 1)
        assert device.utilisation is None

    def test_mig_without_instances_is_legal(self, driver, sweep):
        driver.device(0, mig=1)
        readings = sweep()
        assert (readings.state, readings.devices[0].mig_enabled) == (NodeState.OK, True)
        assert readings.devices[0].mig_devices == ()

    def test_instances_that_may_not_be_listed_leave_the_device_standing(self, driver, sweep):
        driver.device(0, {"mig": 1, "nvmlDeviceGetMigDeviceHandleByIndex": 4})
        device = sweep().devices[0]
        assert (device.mig_enabled, device.mig_devices, device.lost) == (True, (), False)


class TestOddValues:
    def test_name_that_is_not_utf8_is_shown_as_far_as_it_goes(self, driver, sweep):
        driver.device(0, name=b"NVIDIA \xff\xfe T4".decode("utf-8", "surrogateescape"))
        assert sweep().devices[0].name == "NVIDIA \ufffd\ufffd T4"

    @pytest.mark.parametrize("value", [4294967295, 250, 2147483632])
    def test_utilisation_beyond_everything_is_unknown(self, driver, sweep, value):
        driver.device(0, util=value)
        assert sweep().devices[0].utilisation is None

    def test_total_of_zero_does_not_hurt(self, driver, sweep):
        driver.device(0, total_mib=0, reserved_mib=0)
        assert (sweep().devices[0].total_mib, sweep().state) == (0, NodeState.OK)

    def test_memory_not_supported_leaves_the_rest(self, driver, sweep):
        driver.device(0, nvmlDeviceGetMemoryInfo_v2=3, nvmlDeviceGetMemoryInfo=3)
        device = sweep().devices[0]
        assert (device.total_mib, device.lost, device.name) == (None, False, "NVIDIA H100 80GB HBM3")

    def test_used_over_total_is_cut_to_total(self, driver, sweep):
        driver.device(0, total_mib=1000, used_mib=5000)
        assert sweep().devices[0].used_mib == 1000

    def test_two_devices_with_one_uuid_are_told_apart_and_the_node_is_degraded(self, driver, sweep):
        driver.set(count=2)
        driver.device(0, uuid="GPU-same")
        driver.device(1, uuid="GPU-same")
        readings = sweep()
        assert [each.uuid for each in readings.devices] == ["GPU-same", "GPU-same@00000000:11:00.0"]
        assert readings.state is NodeState.DEGRADED

    def test_unknown_architecture_is_passed_on(self, driver, sweep):
        driver.device(0, arch=42, cc_major=17)
        assert (sweep().devices[0].architecture, sweep().devices[0].compute_capability) == (42, (17, 0))

    @pytest.mark.parametrize("code", [2, 3, 4, 6, 7, 10, 13, 19, 20, 21, 23, 25, 26, 27, 999])
    def test_no_code_of_a_side_question_spoils_the_sweep(self, driver, sweep, code):
        for call in ("Temperature", "PowerUsage", "TotalEccErrors", "RemappedRows", "ComputeRunningProcesses_v3"):
            driver.set({f"nvmlDeviceGet{call}": code})
        readings = sweep()
        assert (readings.state, readings.devices[0].total_mib) == (NodeState.OK, 81559)
        assert readings.devices[0].temperature_celsius is None

    def test_bad_endings_are_counted_by_call_and_code_normal_ones_are_not(self, driver, sweep):
        driver.set(nvmlDeviceGetTemperature=4, nvmlDeviceGetPowerUsage=3)
        errors = {(each.call, each.code): each.count for each in sweep().errors}
        assert errors == {("nvmlDeviceGetTemperature", 4): 1}


class TestOldDriver:
    def test_missing_symbols_leave_what_the_old_driver_knows(self, old_driver, supervise):
        old_driver.device(0, used_mib=1000, samples="10:40")
        readings = supervise(old_driver).read()
        device = readings.devices[0]
        # Version 1 counts the 479 MiB that the driver keeps as used and does not tell them apart.
        assert (readings.state, device.total_mib, device.used_mib, device.reserved_mib) == (
            NodeState.OK,
            81559,
            1479,
            None,
        )
        assert device.processes == ()
        assert device.counters.clocks_event_reasons == 1


class TestLoss:
    @pytest.mark.parametrize("code", [15, 16])
    def test_device_lost_in_mid_sweep_leaves_seven_as_they_were(self, driver, supervise, code):
        driver.set(count=8)
        supervisor = supervise(driver)
        before = supervisor.read()
        driver.device(3, nvmlDeviceGetMemoryInfo_v2=code)
        after = supervisor.read()
        assert (after.state, after.devices[3].lost, after.devices[3].uuid) == (
            NodeState.DEGRADED,
            True,
            before.devices[3].uuid,
        )
        assert [each.uuid for each in after.devices if not each.lost] == [
            each.uuid for each in before.devices if each.index != 3
        ]

    def test_lost_device_that_returns_is_read_again(self, driver, supervise):
        driver.set(count=2)
        supervisor = supervise(driver)
        supervisor.read()
        driver.device(1, all=15)
        assert supervisor.read().devices[1].lost
        assert supervisor.read().devices[1].lost
        driver.device(1, all=None)
        until(supervisor, lambda readings: readings.state is NodeState.OK and len(readings.devices) == 2)

    @pytest.mark.parametrize("code", [8, 11, 15])
    def test_device_that_was_never_opened_is_named_by_index(self, driver, supervise, code):
        driver.set(count=2)
        driver.device(1, all=code)
        readings = supervise(driver).read()
        assert (readings.state, len(readings.devices)) == (NodeState.DEGRADED, 1)
        assert readings.message.startswith("device 1 cannot be opened: ")

    def test_count_that_shrinks_drops_the_device_from_the_sweep(self, driver, supervise):
        driver.set(count=4)
        supervisor = supervise(driver)
        supervisor.read()
        driver.set(count=3)
        assert len(supervisor.read().devices) == 3

    def test_one_device_without_permission_leaves_the_others(self, driver, supervise):
        driver.set(count=2)
        driver.device(0, all=4)
        readings = supervise(driver).read()
        assert ([each.index for each in readings.devices], readings.state) == ([1], NodeState.DEGRADED)

    def test_no_device_can_be_opened_is_our_own_loss_of_access(self, driver, supervise):
        driver.set(count=2)
        for index in (0, 1):
            driver.device(index, all=999)
        assert supervise(driver).read().state is NodeState.NO_ACCESS


class TestNodeStates:
    @pytest.mark.parametrize(
        ("code", "state"),
        [
            pytest.param(9, NodeState.NO_DRIVER, id="driver not loaded"),
            pytest.param(18, NodeState.DRIVER_MISMATCH, id="library and kernel module differ"),
            pytest.param(4, NodeState.NO_ACCESS, id="no permission"),
            pytest.param(17, NodeState.NO_ACCESS, id="kernel refused"),
            pytest.param(999, NodeState.NO_ACCESS, id="unknown"),
            pytest.param(6, NodeState.NO_GPU, id="not found"),
            pytest.param(28, NodeState.NO_GPU, id="GPU not found"),
        ],
    )
    def test_failed_init_is_a_state_and_heals_without_a_restart_of_ours(self, driver, supervise, code, state):
        driver.set(nvmlInitWithFlags=code)
        supervisor = supervise(driver)
        readings = supervisor.read()
        assert (readings.state, bool(readings.message), readings.devices) == (state, True, ())
        driver.set(nvmlInitWithFlags=None)
        assert len(until(supervisor, lambda each: each.state is NodeState.OK).devices) == 1

    def test_no_library(self, driver, supervise, tmp_path):
        readings = supervise(driver, LD_LIBRARY_PATH=str(tmp_path)).read()
        assert (readings.state, readings.message) == (NodeState.NO_DRIVER, "libnvidia-ml.so.1 not found")

    def test_no_gpu_then_one_appears(self, driver, supervise):
        driver.set(count=0)
        supervisor = supervise(driver)
        assert supervisor.read().state is NodeState.NO_GPU
        driver.set(count=1)
        assert len(until(supervisor, lambda each: each.state is NodeState.OK).devices) == 1

    def test_abandoned_binding_package_is_refused_with_the_reason(self, driver, supervise, tmp_path):
        package = tmp_path / "shadow" / "pynvml"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("from node_agent_real_pynvml import *\n")
        (package.parent / "node_agent_real_pynvml.py").symlink_to(pynvml.__file__)
        path = f"{package.parent}:{driver.environ()['PYTHONPATH']}"
        readings = supervise(driver, PYTHONPATH=path).read()
        assert readings.state is NodeState.NO_DRIVER
        assert "uninstall pynvml" in readings.message


class TestSickProcess:
    def test_hang_hands_out_the_last_sweep_then_says_stale_then_recovers(self, driver, supervise):
        supervisor = supervise(driver, IMPATIENT)
        good = until(supervisor, lambda each: each.state is NodeState.OK)
        driver.set(nvmlDeviceGetUtilizationRates="hang 60")
        began_s = time.monotonic()
        late = supervisor.read()
        assert time.monotonic() - began_s < 0.5
        assert (late.devices, late.state) == (good.devices, NodeState.OK)
        assert late.age_s > 0
        stale = until(supervisor, lambda each: each.state is NodeState.STALE)
        assert stale.devices == good.devices
        assert "does not answer" in stale.message
        driver.set(nvmlDeviceGetUtilizationRates=None)
        assert until(supervisor, lambda each: each.state is NodeState.OK).age_s == 0

    def test_init_that_hangs_does_not_hang_us(self, driver, supervise):
        driver.set(nvmlInitWithFlags="hang 60")
        supervisor = supervise(driver, IMPATIENT)
        assert supervisor.read().state is NodeState.STALE
        until(supervisor, lambda each: "does not answer" in each.message)
        driver.set(nvmlInitWithFlags=None)
        until(supervisor, lambda each: each.state is NodeState.OK)

    def test_segfault_keeps_the_last_sweep_and_restarts(self, driver, supervise):
        supervisor = supervise(driver)
        good = supervisor.read()
        driver.device(0, nvmlDeviceGetMemoryInfo_v2="segv")
        crashed = supervisor.read()
        assert (crashed.state, crashed.devices) == (NodeState.STALE, good.devices)
        assert "signal 11" in crashed.message
        driver.device(0, nvmlDeviceGetMemoryInfo_v2=None)
        until(supervisor, lambda each: each.state is NodeState.OK)
        assert supervisor.restarts >= 1

    def test_close_ends_the_process_politely(self, driver, supervise):
        supervisor = supervise(driver)
        supervisor.read()
        process = supervisor._process
        supervisor.close()
        assert process.returncode == 0


class TestEvents:
    def test_xid_is_announced_at_once_and_delivered_once(self, driver, supervise):
        driver.set(count=4)
        supervisor = supervise(driver)
        uuids = [each.uuid for each in supervisor.read().devices]
        driver.announce(3, 79)
        began_s = time.monotonic()
        assert supervisor.wait(5.0)
        assert time.monotonic() - began_s < 1.0
        assert [(each.uuid, each.xid) for each in supervisor.read().events] == [(uuids[3], 79)]
        assert supervisor.read().events == ()

    def test_health_is_asked_anew_after_an_event(self, driver, supervise):
        supervisor = supervise(driver)
        assert supervisor.read().devices[0].counters.recovery_action is None
        driver.device(0, action=1)
        assert supervisor.read().devices[0].counters.recovery_action is None
        driver.announce(0, 154)
        assert supervisor.wait(5.0)
        assert supervisor.read().devices[0].counters.recovery_action == 1

    def test_events_that_cannot_be_watched_leave_the_sweeps(self, driver, supervise):
        driver.set(nvmlEventSetCreate=3)
        assert supervise(driver).read().state is NodeState.OK
