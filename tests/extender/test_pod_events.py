from __future__ import annotations

from msgspec.structs import replace

from extender.decisions import Decision, Verb
from extender.kubeapi import EventType
from extender.pod_events import APART_S, PLACED, PodEvents

REFUSED = Decision(Verb.FILTER, 0.0, "uid-a", "ml", "a", "refused", 1, 0.1, nodes_in=3, reasons={"NoDevices": 3})
BOUND = Decision(Verb.BIND, 0.0, "uid-a", "ml", "a", "bound", 1, 0.1, node="n1", devices=("GPU-0",))
OTHER = replace(REFUSED, reasons={"NoFreshReport": 3})


def _due(events: PodEvents) -> list[str]:
    return [due.uid for due in events.take_due(10)]


def test_first_refusal_is_told():
    events = PodEvents()
    events.note(REFUSED, 0.0)
    assert _due(events) == ["uid-a"]


def test_the_same_reasons_are_told_once_whatever_their_counts():
    events = PodEvents()
    for number in range(1, 100):
        events.note(replace(REFUSED, reasons={"NoDevices": number}), number * APART_S)
    assert _due(events) == ["uid-a"]


def test_other_reasons_are_told_at_most_once_a_minute():
    events = PodEvents()
    events.note(REFUSED, 0.0)
    events.take_due(1)
    events.note(OTHER, APART_S - 1)
    assert _due(events) == []
    events.note(OTHER, APART_S)
    assert _due(events) == ["uid-a"]


def test_end_of_a_wait_that_was_told_is_told():
    events = PodEvents()
    events.note(REFUSED, 0.0)
    events.take_due(1)
    events.note(BOUND, 1.0)
    (due,) = events.take_due(10)
    note = due.placed_note()
    assert (note.reason, note.type, note.message) == (PLACED, EventType.NORMAL, "Placed on node n1 with GPU-0")


def test_wait_that_was_over_before_it_was_told_is_not_told():
    events = PodEvents()
    events.note(REFUSED, 0.0)
    events.note(BOUND, 0.5)
    assert _due(events) == []


def test_pod_that_never_waited_gets_no_event():
    events = PodEvents()
    events.note(BOUND, 0.0)
    assert _due(events) == []


def test_filter_that_some_node_passed_is_no_wait():
    events = PodEvents()
    events.note(replace(REFUSED, nodes_out=1), 0.0)
    assert _due(events) == []


def test_pod_that_is_gone_is_forgotten():
    events = PodEvents()
    events.note(REFUSED, 0.0)
    events.forget("uid-a")
    assert _due(events) == []
    assert not events._told


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr("extender.pod_events._REMEMBERED", 10)
    events = PodEvents()
    for number in range(100):
        events.note(replace(REFUSED, pod_uid=f"uid-{number}"), 0.0)
        events.take_due(1)
    assert len(events._told) == 10


def test_queue_is_bounded(monkeypatch):
    monkeypatch.setattr("extender.pod_events._QUEUED", 5)
    events = PodEvents()
    for number in range(100):
        events.note(replace(REFUSED, pod_uid=f"uid-{number}"), 0.0)
    assert len(events.take_due(1000)) == 5
