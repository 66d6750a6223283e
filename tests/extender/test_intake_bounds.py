"""What a report may say in length and in kinds: one agent cannot fill the memory, nor the fleet's list of kinds."""

from __future__ import annotations

import msgspec
import pytest

from extender.bookkeeping import _KINDS_LIMIT, _KINDS_REMEMBERED
from extender.errors import InvalidReport
from extender.intake import MAX_TEXT, MAX_WORDS, read_report
from extender.settings import Settings
from extender.store import ClusterStore
from node_agent.report import Report
from tests.support.builders import device, node_facts, report, store_with


def _read(held: Report) -> Report:
    return read_report(msgspec.json.encode(held))


@pytest.mark.parametrize("field", ["name", "pci_bus_id", "fabric_clique"])
def test_texts_of_a_device_are_bounded(field: str) -> None:
    assert _read(report("n1", device(**{field: "x" * MAX_TEXT})))
    with pytest.raises(InvalidReport, match=rf"devices\[0\].{field}: found 257 characters"):
        _read(report("n1", device(**{field: "x" * (MAX_TEXT + 1)})))


def test_a_fault_may_be_told_at_length() -> None:
    assert _read(report("n1", device(fault="x" * MAX_WORDS)))
    with pytest.raises(InvalidReport, match="fault: found 4097 characters"):
        _read(report("n1", device(fault="x" * (MAX_WORDS + 1))))


@pytest.mark.parametrize("field", ["driver", "cuda", "agent_version", "message"])
def test_texts_of_a_report_are_bounded(field: str) -> None:
    with pytest.raises(InvalidReport, match=rf"\$.{field}: found 500000 characters"):
        _read(report("n1", device(), **{field: "x" * 500_000}))


def test_kinds_that_no_device_has_any_more_make_room_for_new_ones() -> None:
    store = store_with(device())
    for number in range(3 * _KINDS_LIMIT):
        store.apply_report(report("n1", device(), driver=f"1.{number}"), 1001.0)
    assert len(store.snapshot().kinds) <= _KINDS_REMEMBERED + 1
    assert store.snapshot().kinds[store.snapshot().kind[0, 0]].driver is not None


def test_a_device_keeps_its_kind_while_others_come_and_go() -> None:
    store = ClusterStore(Settings())
    for name in ("old", "new"):
        store.set_node(node_facts(name))
    store.apply_report(report("old", device(name="Tesla T4", total_mib=15_360)), 1000.0)
    for number in range(2 * _KINDS_REMEMBERED):
        store.apply_report(report("new", device("GPU-1", total_mib=40_000 + number)), 1001.0)
    fleet = store.snapshot()
    assert fleet.kinds[fleet.kind[0, fleet.rows["old"]]].product == "T4"
    assert fleet.kinds[fleet.kind[0, fleet.rows["new"]]].total_mib == 40_000 + 2 * _KINDS_REMEMBERED - 1


def test_more_kinds_than_a_fleet_can_have_are_refused_and_the_node_keeps_its_last_report() -> None:
    store = ClusterStore(Settings())
    refused = 0
    for node in range(_KINDS_LIMIT // 128 + 1):
        name = f"n{node}"
        store.set_node(node_facts(name))
        held = [device(f"GPU-{node}-{number}", total_mib=1 + 128 * node + number) for number in range(128)]
        try:
            store.apply_report(report(name, *held), 1000.0)
        except InvalidReport:
            refused += 1
    assert refused == 1
    store.apply_report(report("n0", device("GPU-0-0", total_mib=1)), 1001.0)
    assert len(store.snapshot().uuids[store.snapshot().rows["n0"]]) == 1
