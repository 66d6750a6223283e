"""The memory of decisions: bounded, newest first, one of each kind for a pod."""

from __future__ import annotations

from extender.decisions import Decision, Decisions, Verb


def decision(name: str, verb: Verb = Verb.FILTER, uid: str = "1", outcome: str = "fits") -> Decision:
    return Decision(verb, 0.0, uid, "default", name, outcome, 1, 0.5)


def test_the_ring_is_bounded_and_newest_first() -> None:
    decisions = Decisions(kept=3)
    for number in range(5):
        decisions.note(decision(f"p{number}"))
    assert [entry.name for entry in decisions.recent(10)] == ["p4", "p3", "p2"]
    assert decisions.of_pod("default", "p0") == {}


def test_only_what_came_after_is_returned() -> None:
    decisions = Decisions(kept=9)
    for number in range(5):
        decisions.note(decision(f"p{number}"))
    assert [entry.sequence for entry in decisions.recent(10, after=3)] == [5, 4]


def test_the_newest_of_each_kind_is_found_by_pod() -> None:
    decisions = Decisions(kept=9)
    decisions.note(decision("p", outcome="refused"))
    decisions.note(decision("p", outcome="fits"))
    decisions.note(decision("p", Verb.BIND, outcome="bound"))
    found = decisions.of_pod("default", "p")
    assert {verb: entry.outcome for verb, entry in found.items()} == {Verb.FILTER: "fits", Verb.BIND: "bound"}


def test_a_pod_made_again_under_its_name_starts_anew() -> None:
    decisions = Decisions(kept=9)
    decisions.note(decision("p", Verb.BIND, uid="1"))
    decisions.note(decision("p", Verb.FILTER, uid="2"))
    assert set(decisions.of_pod("default", "p")) == {Verb.FILTER}
