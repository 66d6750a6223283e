"""What only some products, systems and drivers have, on the stub: fabric, shared memory, old parts, WSL, NUMA."""

import pytest

from node_agent.report import NodeState


class TestFabric:
    @pytest.mark.parametrize("size", [0x28, 0x24])
    def test_devices_of_one_domain_have_one_clique_with_either_struct(self, driver, sweep, size):
        driver.set(count=3)
        for index, fabric in enumerate(("3:17", "3:17", "3:18")):
            driver.device(index, fabric=fabric, fabric_size=size)
        first, second, third = (each.fabric_clique for each in sweep().devices)
        assert first == second == "11111111-1111-1111-1111-111111111111.17"
        assert third.endswith(".18")

    def test_domain_of_a_single_node_has_no_clique(self, driver, sweep):
        driver.device(0, fabric="3:0")
        device = sweep().devices[0]
        assert (device.fabric_clique, device.counters.fabric_state) == ("", 3)

    def test_fabric_that_is_not_complete_is_told(self, driver, sweep):
        driver.device(0, fabric="2:17")
        device = sweep().devices[0]
        assert (device.fabric_clique, device.counters.fabric_state) == ("", 2)

    def test_driver_that_knows_neither_struct_leaves_the_rest(self, driver, sweep):
        driver.device(0, fabric="3:17", fabric_size=0x30)
        readings = sweep()
        assert (readings.state, readings.devices[0].counters.fabric_state) == (NodeState.OK, None)


class TestNuma:
    def test_common_ancestor_groups_devices_where_sysfs_tells_nothing(self, driver, supervise, tmp_path):
        driver.set(count=5)
        for index, socket in enumerate((0, 1, 0, 1, 7)):
            driver.device(index, socket=socket)
        devices = supervise(driver, TANGRAM_AGENT_SYSFS_ROOT=str(tmp_path)).read().devices
        assert [each.numa_node for each in devices] == [0, 1, 0, 1, None]

    def test_groups_are_numbered_apart_from_nodes_that_sysfs_names(self, driver, supervise, tmp_path):
        driver.set(count=3)
        place = tmp_path / "bus/pci/devices/0000:10:00.0"
        place.mkdir(parents=True)
        # GH200 numbers its GPU behind eight nodes without CPUs (node-side.md 6, row 27).
        (place / "numa_node").write_text("8\n")
        for index in (1, 2):
            driver.device(index, socket=0)
        devices = supervise(driver, TANGRAM_AGENT_SYSFS_ROOT=str(tmp_path)).read().devices
        assert [each.numa_node for each in devices] == [8, 9, 9]

    def test_nothing_known_is_nothing_told(self, driver, supervise, tmp_path):
        driver.set(count=2)
        devices = supervise(driver, TANGRAM_AGENT_SYSFS_ROOT=str(tmp_path)).read().devices
        assert [each.numa_node for each in devices] == [None, None]


class TestSharedMemory:
    def test_gb10_does_not_blame_the_hosts_memory_on_the_gpu(self, driver, sweep):
        driver.device(0, name="NVIDIA GB10", cc_major=12, cc_minor=1, total_mib=122572, reserved_mib=0)
        driver.device(0, used_mib=90000, compute="10:2048,11:1024")
        assert sweep().devices[0].used_mib == 3072

    def test_gb10_without_memory_is_reported_without(self, driver, sweep):
        driver.device(0, name="NVIDIA GB10", cc_major=12, cc_minor=1)
        driver.set(nvmlDeviceGetMemoryInfo_v2=3, nvmlDeviceGetMemoryInfo=3)
        readings = sweep()
        device = readings.devices[0]
        assert (readings.state, device.total_mib, device.used_mib) == (NodeState.OK, None, None)


class TestWsl:
    UNSUPPORTED = (
        "ComputeRunningProcesses_v3",
        "GraphicsRunningProcesses_v3",
        "MPSComputeRunningProcesses_v3",
        "ProcessUtilization",
        "ProcessesUtilizationInfo",
        "MigMode",
        "TopologyCommonAncestor",
        "SupportedEventTypes",
        "TotalEccErrors",
        "EnforcedPowerLimit",
        "NvLinkState",
    )

    def test_calls_that_wsl_lacks_leave_size_and_load(self, driver, sweep):
        driver.set({f"nvmlDeviceGet{call}": 3 for call in self.UNSUPPORTED})
        driver.device(0, used_mib=500, util=20)
        readings = sweep()
        device = readings.devices[0]
        assert (readings.state, readings.errors) == (NodeState.OK, ())
        assert (device.total_mib, device.used_mib, device.utilisation) == (81559, 500, 0.2)
        assert (device.processes, device.mig_enabled, device.link_group) == ((), False, None)


class TestHealthCounters:
    def test_every_counter_is_read(self, driver, sweep):
        driver.device(
            0,
            remapped_correctable=3,
            remapped_uncorrectable=1,
            remap_pending=1,
            remap_failed=0,
            retired=2,
            retired_pending=0,
            ecc=5,
            energy_mj=77,
        )
        driver.device(0, action=4, reasons=0x44)
        counters = sweep().devices[0].counters
        assert (counters.remapped_correctable, counters.remapped_uncorrectable) == (3, 1)
        assert (counters.remap_pending, counters.remap_failed) == (True, False)
        assert (counters.retired_pages, counters.retired_pending) == (4, False)  # Two of each cause.
        assert (counters.ecc_uncorrected_volatile, counters.ecc_corrected_volatile) == (5, 0)
        assert (counters.recovery_action, counters.clocks_event_reasons, counters.energy_mj) == (4, 0x44, 77)


class TestProcesses:
    @pytest.mark.parametrize("share", [2147483632, 101])
    def test_impossible_sm_time_of_a_process_is_unknown(self, driver, sweep, share):
        driver.device(0, compute="10:100,11:100", samples=f"10:{share},11:40")
        first, second = sweep().devices[0].processes
        assert (first.sm_ratio, second.sm_ratio) == (None, 0.4)

    @pytest.mark.parametrize("missing", ["nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessesUtilizationInfo"])
    def test_either_call_for_sm_time_suffices(self, driver, sweep, missing):
        driver.set({missing: 3})
        driver.device(0, compute="10:100", samples="10:40")
        assert sweep().devices[0].processes[0].sm_ratio == 0.4


class TestTwins:
    def test_three_devices_with_one_uuid_are_three_devices(self, driver, sweep):
        driver.set(count=3)
        for index in range(3):
            driver.device(index, uuid="GPU-same")
        assert len({each.uuid for each in sweep().devices}) == 3


class TestHotUnplug:
    def test_unplugged_device_takes_its_uuid_along_whatever_the_indices_do(self, driver, supervise):
        driver.set(count=3)
        for index in range(3):
            driver.device(index, uuid=f"GPU-{index}", used_mib=100 * index)
        supervisor = supervise(driver)
        supervisor.read()
        driver.set(count=2)
        driver.device(0, uuid="GPU-1", used_mib=100)
        driver.device(1, uuid="GPU-2", used_mib=200)
        assert [(each.uuid, each.used_mib) for each in supervisor.read().devices] == [("GPU-1", 100), ("GPU-2", 200)]
