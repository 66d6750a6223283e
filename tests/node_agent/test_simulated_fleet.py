import asyncio

import pytest

from node_agent.health import HealthTimes
from node_agent.pace import PaceTimes
from node_agent.report import Booking, Health
from node_agent.simulated_builders import mixed_fleet, node_description
from node_agent.simulated_description import LostFault, XidFault
from node_agent.simulated_fleet import FleetTimes, SimulatedFleet
from tests.node_agent.receiver import Receiver

FAST = FleetTimes(
    sweep_s=0.05,
    pace=PaceTimes(gap_s=0.02, first_s=0.05, backoff_first_s=0.05, backoff_limit_s=0.1),
    health=HealthTimes(suspect_s=0.1, rest_s=0.1, probation_s=0.2),
)


async def until(condition, timeout_s=5.0):
    for _ in range(int(timeout_s / 0.01)):
        if condition():
            return True
        await asyncio.sleep(0.01)
    return condition()


@pytest.fixture
def receiver():
    with Receiver() as listening:
        yield listening


def latest(receiver, node):
    return next(each for each in reversed(receiver.reports) if each.node == node)


def run(receiver, scenario, descriptions=None, **options):
    async def whole():
        fleet = SimulatedFleet(
            descriptions or [node_description("a", "H100", 2), node_description("b", "T4", 1)],
            receiver.url,
            times=FAST,
            **options,
        )
        await fleet.start()
        try:
            assert await until(lambda: {each.node for each in receiver.reports} >= set(fleet.node_names()))
            await scenario(fleet)
        finally:
            await fleet.stop()

    asyncio.run(whole())


def test_every_node_reports_over_few_connections(receiver):
    async def scenario(fleet):
        assert len(fleet.node_names()) == 60

    run(receiver, scenario, list(mixed_fleet(60)), connections=4)
    assert receiver.connections == 4


def test_each_node_shows_its_own_token(receiver):
    async def scenario(_):
        for headers, report in zip(receiver.headers, receiver.reports, strict=False):
            assert headers["Authorization"] == f"Bearer token-{report.node}"

    run(receiver, scenario, token=lambda node: f"token-{node}")


def test_load_and_foreign_memory_change_at_once(receiver):
    async def scenario(fleet):
        uuid = fleet.uuids("a")[1]
        fleet.set_utilisation("a", uuid, 0.9)
        fleet.set_foreign("a", uuid, 4096)
        assert await until(lambda: latest(receiver, "a").devices[1].foreign_mib == 4096)
        assert latest(receiver, "a").devices[1].utilisation == 0.9
        fleet.set_utilisation("a", uuid, None)
        assert await until(lambda: latest(receiver, "a").devices[1].utilisation == 0.0)

    run(receiver, scenario)


def test_planted_fault_takes_a_device_out_and_its_end_brings_it_back(receiver):
    async def scenario(fleet):
        fleet.plant_fault("a", XidFault(device=0, xid=79, until_s=0.3))
        for health in (Health.OUT, Health.PROBATION, Health.HEALTHY):
            assert await until(lambda health=health: latest(receiver, "a").devices[0].health is health)
        fleet.plant_fault("b", LostFault(device=0, until_s=0.3))
        for health in (Health.LOST, Health.PROBATION, Health.HEALTHY):
            assert await until(lambda health=health: latest(receiver, "b").devices[0].health is health)

    run(receiver, scenario)


def test_silenced_node_says_nothing_until_restored(receiver):
    receiver.heartbeat_s = 1.0

    async def scenario(fleet):
        fleet.silence("a")
        await asyncio.sleep(0.05)
        count = sum(each.node == "a" for each in receiver.reports)
        fleet.set_utilisation("a", fleet.uuids("a")[0], 0.9)
        assert not await until(lambda: sum(each.node == "a" for each in receiver.reports) > count, 1.5)
        fleet.restore("a")
        assert await until(lambda: sum(each.node == "a" for each in receiver.reports) > count, 0.5)
        assert latest(receiver, "a").devices[0].utilisation == 0.9

    run(receiver, scenario)


def test_booked_pods_show_up_as_use_and_load(receiver):
    async def scenario(fleet):
        uuid = fleet.uuids("a")[0]
        receiver.bookings = (
            Booking(pod_uid="u", namespace="d", name="p", container="c", uuid=uuid, memory_mib=1000, compute_milli=500),
        )
        receiver.generation = 2
        fleet.set_foreign("a", uuid, 1)
        assert await until(lambda: bool(latest(receiver, "a").usage))
        [usage] = latest(receiver, "a").usage
        assert (usage.pod_uid, usage.memory_mib, usage.sm_ratio) == ("u", 900, 0.35)

    run(receiver, scenario)


def test_extender_that_fails_is_retried_and_caught_up_with(receiver):
    async def scenario(fleet):
        receiver.status = 503
        fleet.set_utilisation("a", fleet.uuids("a")[0], 0.9)
        assert await until(lambda: fleet.outcomes["ValueError"] >= 2)
        receiver.status = 200
        before = fleet.outcomes["ok"]
        assert await until(lambda: fleet.outcomes["ok"] > before)
        assert latest(receiver, "a").devices[0].utilisation == 0.9

    run(receiver, scenario)


def test_cordon_is_shown_without_waiting_for_the_heartbeat(receiver):
    async def scenario(fleet):
        uuid = fleet.uuids("a")[1]
        receiver.cordoned = (uuid,)
        fleet.set_foreign("a", uuid, 1)
        assert await until(lambda: latest(receiver, "a").devices[1].health is Health.CORDONED)

    run(receiver, scenario)
