"""Serving, ready and allowed to decide are three things."""

from __future__ import annotations

from extender.readiness import NODES, PODS, Readiness


def test_ready_is_when_both_lists_are_in() -> None:
    readiness = Readiness(frozenset, 60)
    assert readiness.missing(0) == "not ready: waiting for the list of pods and nodes"
    readiness.listed(NODES, 0)
    assert not readiness.is_ready
    assert readiness.missing(0) == "not ready: waiting for the list of pods"
    readiness.listed(PODS, 0)
    assert readiness.is_ready
    assert readiness.missing(0) == ""


def test_the_wait_for_reports_is_bounded_and_starts_when_the_lists_are_in() -> None:
    readiness = Readiness(lambda: frozenset({"n1", "n2"}), 60)
    readiness.listed(NODES, 0)
    readiness.listed(PODS, 100)
    assert "reports from 2 nodes" in readiness.missing(159)
    assert readiness.missing(160) == ""


def test_once_allowed_a_node_that_appears_later_stops_nothing() -> None:
    unreported: set[str] = set()
    readiness = Readiness(lambda: frozenset(unreported), 60)
    readiness.listed(NODES, 0)
    readiness.listed(PODS, 0)
    assert readiness.missing(1) == ""
    unreported.add("late")
    readiness.listed(NODES, 2)
    assert readiness.missing(3) == ""
