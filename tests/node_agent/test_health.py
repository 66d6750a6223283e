import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.health import HealthTimes, HealthTracker
from node_agent.health_memory import HealthMemory
from node_agent.health_rules import XID_RULES, Action
from node_agent.readings import Counters, DeviceReading, MigReading, Readings, XidEvent
from node_agent.report import Health

TIMES = HealthTimes(suspect_s=300, rest_s=60, probation_s=120, probation_limit_s=480)


def sweep(*xids, lost=False, uuid="GPU-a", present=True, **counters):
    device = DeviceReading(uuid=uuid, lost=lost, problem="GPU is lost" if lost else "", counters=Counters(**counters))
    events = tuple(XidEvent(uuid=uuid, xid=xid) for xid in xids)
    return Readings(devices=(device,) if present else (), events=events)


@pytest.fixture
def tracker():
    return HealthTracker(TIMES)


def state(tracker, readings, now_s, cordoned=()):
    return tracker.observe(readings, now_s, cordoned)["GPU-a"].health


@pytest.mark.parametrize("xid", [13, 31, 43, 45])
def test_application_faults_are_counted_and_the_device_stays(tracker, xid):
    assert state(tracker, sweep(xid, xid), 0) is Health.HEALTHY
    assert tracker.xid_counts() == {"GPU-a": {xid: 2}}


@pytest.mark.parametrize("xid", [48, 62, 64, 79, 95, 119, 120])
def test_fatal_xid_takes_the_device_out_until_it_was_reset(tracker, xid):
    verdict = tracker.observe(sweep(xid, energy_mj=900), 0)["GPU-a"]
    assert verdict.health is Health.OUT
    assert verdict.fault.startswith(f"XID {xid}: ")
    assert state(tracker, sweep(energy_mj=950), 100_000) is Health.OUT
    assert state(tracker, sweep(energy_mj=3), 100_010) is Health.PROBATION
    assert state(tracker, sweep(energy_mj=9), 100_131) is Health.HEALTHY


def test_contained_ecc_error_rests_then_proves_itself(tracker):
    assert state(tracker, sweep(94), 0) is Health.OUT
    assert state(tracker, sweep(), 59) is Health.OUT
    assert state(tracker, sweep(), 60) is Health.PROBATION
    assert state(tracker, sweep(), 179) is Health.PROBATION
    assert state(tracker, sweep(), 180) is Health.HEALTHY


def test_relapse_in_probation_doubles_the_next_one_up_to_the_limit(tracker):
    now_s, lasted = 0.0, []
    for _ in range(4):
        state(tracker, sweep(94), now_s)
        now_s += 60
        assert state(tracker, sweep(), now_s) is Health.PROBATION
        began_s = now_s
        while state(tracker, sweep(), now_s) is Health.PROBATION and now_s < began_s + 1000:
            now_s += 10
            if len(lasted) < 3 and now_s - began_s >= 110 * 2 ** len(lasted):
                break
        lasted.append(now_s - began_s)
    assert lasted == [110, 220, 440, 480]


def test_lost_device_returns_through_probation(tracker):
    assert state(tracker, sweep(lost=True), 0) is Health.LOST
    assert state(tracker, sweep(lost=True), 1000) is Health.LOST
    assert state(tracker, sweep(), 1001) is Health.PROBATION


def test_device_that_vanishes_from_the_list_is_lost_not_forgotten(tracker):
    state(tracker, sweep(), 0)
    assert state(tracker, sweep(present=False), 2) is Health.LOST
    tracker.forget("GPU-a")
    assert tracker.observe(sweep(present=False), 4) == {}


def test_xid_of_a_lost_device_names_the_cause(tracker):
    assert state(tracker, sweep(79, lost=True), 0) is Health.LOST
    assert "XID 79" in tracker.verdicts()["GPU-a"].fault


def test_recovery_action_holds_the_device_out_until_it_is_withdrawn(tracker):
    assert state(tracker, sweep(recovery_action=1), 0) is Health.OUT
    assert state(tracker, sweep(recovery_action=1), 9999) is Health.OUT
    assert state(tracker, sweep(recovery_action=0), 10_000) is Health.PROBATION


@pytest.mark.parametrize("flag", ["remap_pending", "retired_pending"])
def test_pending_repair_waits_for_its_reset(tracker, flag):
    assert state(tracker, sweep(**{flag: True}), 0) is Health.OUT
    assert state(tracker, sweep(**{flag: False}), 5) is Health.PROBATION


def test_failed_remap_is_for_good(tracker):
    assert state(tracker, sweep(remap_failed=True, energy_mj=100), 0) is Health.OUT
    assert state(tracker, sweep(remap_failed=True, energy_mj=1), 9999) is Health.OUT


def test_throttled_hardware_is_suspect_and_a_reset_is_not_read_into_its_end(tracker):
    assert state(tracker, sweep(clocks_event_reasons=0x40), 0) is Health.SUSPECT
    assert state(tracker, sweep(79, clocks_event_reasons=0x40), 1) is Health.OUT
    assert state(tracker, sweep(clocks_event_reasons=0), 2) is Health.OUT


@pytest.mark.parametrize("reasons", [0x1, 0x4, 0x20])
def test_normal_clock_reasons_do_not_matter(tracker, reasons):
    assert state(tracker, sweep(clocks_event_reasons=reasons), 0) is Health.HEALTHY


def test_suspect_is_left_after_quiet(tracker):
    assert state(tracker, sweep(63), 0) is Health.SUSPECT
    assert state(tracker, sweep(), 299) is Health.SUSPECT
    assert state(tracker, sweep(), 300) is Health.HEALTHY


def test_new_uncorrected_errors_are_suspect_old_ones_are_not(tracker):
    assert state(tracker, sweep(ecc_uncorrected_volatile=4), 0) is Health.HEALTHY
    assert state(tracker, sweep(ecc_uncorrected_volatile=5), 2) is Health.SUSPECT


def test_unknown_xid_is_watched(tracker):
    assert state(tracker, sweep(999), 0) is Health.SUSPECT


def test_cordon_wins_and_ending_it_gives_a_broken_device_its_chance(tracker):
    assert state(tracker, sweep(), 0, ["GPU-a"]) is Health.CORDONED
    assert state(tracker, sweep(79), 1, ["GPU-a"]) is Health.CORDONED
    assert state(tracker, sweep(), 2) is Health.PROBATION


def test_cordon_of_a_healthy_device_leaves_no_trace(tracker):
    state(tracker, sweep(), 0, ["GPU-a"])
    assert state(tracker, sweep(), 1) is Health.HEALTHY


def test_fault_on_one_device_leaves_the_others_alone(tracker):
    devices = tuple(DeviceReading(uuid=f"GPU-{each}") for each in range(8))
    verdicts = tracker.observe(Readings(devices=devices, events=(XidEvent(uuid="GPU-3", xid=79),)), 0)
    assert [verdicts[f"GPU-{each}"].health for each in range(8) if each != 3] == [Health.HEALTHY] * 7
    assert verdicts["GPU-3"].health is Health.OUT


def test_every_row_has_words_and_a_source():
    assert all(rule.words and rule.source for rule in XID_RULES.values())


class TestSafety:
    """After a fatal XID the device is never offered again without evidence of a reset, whatever else happens."""

    @given(
        st.lists(
            st.tuples(st.sampled_from(sorted(XID_RULES)), st.booleans(), st.floats(0.1, 5000)), min_size=1, max_size=30
        )
    )
    def test_fatal_stays_out(self, steps):
        tracker, now_s, energy = HealthTracker(TIMES), 0.0, 1000
        condemned = False
        for xid, happens, wait_s in steps:
            now_s += wait_s
            energy += 1
            condemned = condemned or (happens and XID_RULES[xid].action is Action.RESET)
            health = state(tracker, sweep(*([xid] if happens else []), energy_mj=energy), now_s)
            assert not condemned or health is Health.OUT


class TestLiveness:
    """Any device that can be read, stays quiet long enough and was reset is healthy in the end."""

    @given(st.lists(st.sampled_from(sorted(XID_RULES)), max_size=20))
    def test_quiet_and_reset_heals(self, xids):
        tracker, now_s = HealthTracker(TIMES), 0.0
        for xid in xids:
            now_s += 10
            state(tracker, sweep(xid, energy_mj=500), now_s)
        assert state(tracker, sweep(energy_mj=1), now_s + 1000) in {Health.PROBATION, Health.HEALTHY, Health.SUSPECT}
        assert state(tracker, sweep(energy_mj=2), now_s + 5000) is Health.HEALTHY


class TestMemory:
    """An agent that restarts goes on where it ended; a machine that restarts begins anew."""

    @staticmethod
    def memory(tmp_path, boot="one"):
        place = tmp_path / "sys/kernel/random"
        place.mkdir(parents=True, exist_ok=True)
        (place / "boot_id").write_text(boot + "\n")
        return HealthMemory(tmp_path / "health.json", tmp_path)

    def restarted(self, tmp_path, boot="one"):
        tracker = HealthTracker(TIMES)
        tracker.recall(self.memory(tmp_path, boot).load(), 0)
        return tracker

    def test_device_that_was_out_stays_out_over_a_restart_and_is_freed_by_a_reset(self, tracker, tmp_path):
        tracker.observe(sweep(energy_mj=900), 0)
        tracker.observe(sweep(79, energy_mj=901), 1)
        self.memory(tmp_path).save(tracker.remember())
        again = self.restarted(tmp_path)
        assert again.observe(sweep(energy_mj=950), 5)["GPU-a"].fault.startswith("XID 79")
        assert state(again, sweep(energy_mj=950), 5000) is Health.OUT
        assert state(again, sweep(energy_mj=2), 5010) is Health.PROBATION

    def test_reset_while_nobody_looked_is_seen(self, tracker, tmp_path):
        tracker.observe(sweep(energy_mj=900), 0)
        tracker.observe(sweep(79, energy_mj=900), 1)
        self.memory(tmp_path).save(tracker.remember())
        assert state(self.restarted(tmp_path), sweep(energy_mj=5), 2) is Health.PROBATION

    def test_reboot_voids_the_memory(self, tracker, tmp_path):
        tracker.observe(sweep(79), 0)
        self.memory(tmp_path).save(tracker.remember())
        assert state(self.restarted(tmp_path, boot="two"), sweep(), 2) is Health.HEALTHY

    def test_healthy_and_suspect_devices_are_not_kept(self, tracker, tmp_path):
        tracker.observe(sweep(63), 0)
        self.memory(tmp_path).save(tracker.remember())
        assert self.memory(tmp_path).load() == {}

    @pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"boot_id":"one","devices":{"a":1}}'])
    def test_file_that_cannot_be_read_is_not_used(self, tmp_path, content):
        memory = self.memory(tmp_path)
        (tmp_path / "health.json").write_bytes(content)
        assert memory.load() == {}

    def test_file_that_cannot_be_written_is_told_once(self, tracker, tmp_path, caplog):
        self.memory(tmp_path)
        memory = HealthMemory(tmp_path / "absent" / "health.json", tmp_path)
        tracker.observe(sweep(79), 0)
        for _ in range(3):
            memory.save(tracker.remember())
        assert caplog.text.count("not written") == 1


class TestInstances:
    INSTANCES = (
        MigReading(uuid="MIG-1", profile="1g.10gb", gi_id=7, ci_id=0),
        MigReading(uuid="MIG-2", profile="1g.10gb", gi_id=8, ci_id=0),
    )

    def observe(self, tracker, now_s, *events, instances=INSTANCES):
        device = DeviceReading(uuid="GPU-a", mig_enabled=True, mig_devices=instances)
        found = tracker.observe(Readings(devices=(device,), events=events), now_s)
        return {uuid: verdict.health for uuid, verdict in found.items() if verdict.health is not Health.HEALTHY}

    def test_contained_fault_rests_and_proves_its_instance_alone(self, tracker):
        assert self.observe(tracker, 0, XidEvent(uuid="GPU-a", xid=94, gi_id=7)) == {"MIG-1": Health.OUT}
        assert self.observe(tracker, 60) == {"MIG-1": Health.PROBATION}
        assert self.observe(tracker, 180) == {}

    def test_instance_that_was_taken_apart_is_forgotten(self, tracker):
        self.observe(tracker, 0, XidEvent(uuid="GPU-a", xid=94, gi_id=7))
        assert self.observe(tracker, 1, instances=self.INSTANCES[1:]) == {}
        assert self.observe(tracker, 2) == {}

    def test_fabric_that_is_not_complete_takes_the_device_out_until_it_is(self, tracker):
        assert state(tracker, sweep(fabric_state=2), 0) is Health.OUT
        assert state(tracker, sweep(fabric_state=2), 100) is Health.OUT
        assert state(tracker, sweep(fabric_state=3), 101) is Health.OUT
        assert state(tracker, sweep(fabric_state=3), 160) is Health.PROBATION
        assert state(tracker, sweep(fabric_state=3), 280) is Health.HEALTHY
