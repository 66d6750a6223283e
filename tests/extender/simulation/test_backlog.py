import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.simulation.backlog import LONGEST_PARKED_S, Backlog


def test_pods_are_tried_in_order_of_priority_then_age():
    backlog = Backlog()
    backlog.add("old", 0.0)
    backlog.add("young", 1.0)
    backlog.add("urgent", 2.0, priority=10)
    assert [backlog.pop(3.0) for _ in range(4)] == ["urgent", "old", "young", None]


def test_a_pod_stands_in_line_once():
    backlog = Backlog()
    backlog.add("a", 0.0)
    backlog.add("a", 1.0)
    assert [backlog.pop(2.0), backlog.pop(2.0)] == ["a", None]


@pytest.mark.parametrize(("tries", "wait_s"), [(1, 1.0), (2, 2.0), (3, 4.0), (4, 8.0), (5, 10.0), (9, 10.0)])
def test_back_off_doubles_from_one_second_to_ten(tries, wait_s):
    backlog = Backlog()
    backlog.add("a", 0.0)
    now = 0.0
    for _ in range(tries - 1):
        assert backlog.pop(now) == "a"
        backlog.retry("a", now)
        now += 20.0
    assert backlog.pop(now) == "a"
    backlog.retry("a", now)
    assert backlog.pop(now + wait_s - 0.01) is None
    assert backlog.pop(now + wait_s) == "a"


def test_a_parked_pod_waits_until_something_changes():
    backlog = Backlog()
    backlog.add("a", 0.0)
    backlog.pop(0.0)
    backlog.park("a", 0.0)
    assert backlog.pop(30.0) is None
    backlog.wake(30.0)
    assert backlog.pop(30.0) == "a"


def test_a_pod_woken_early_sits_its_back_off_out():
    backlog = Backlog()
    backlog.add("a", 0.0)
    backlog.pop(0.0)
    backlog.park("a", 0.0)
    backlog.wake(0.5)
    assert backlog.pop(0.9) is None
    assert backlog.next_s() == pytest.approx(1.0)
    assert backlog.pop(1.0) == "a"


def test_a_parked_pod_is_tried_again_by_itself_in_the_end():
    backlog = Backlog()
    backlog.add("a", 0.0)
    backlog.pop(0.0)
    backlog.park("a", 0.0)
    assert backlog.next_s() == LONGEST_PARKED_S
    assert backlog.pop(LONGEST_PARKED_S) == "a"


def test_a_discarded_pod_never_comes_back():
    backlog = Backlog()
    for step in (lambda: None, lambda: backlog.park("a", 0.0), lambda: backlog.retry("a", 0.0)):
        backlog.add("a", 0.0)
        backlog.pop(0.0)
        step()
        backlog.discard("a")
        backlog.wake(1.0)
        assert backlog.pop(100.0) is None
        assert backlog.next_s() == math.inf


class TestLaws:
    """Whatever happens, a pod is handed out only while it is known, and never to two tries at once."""

    @given(st.lists(st.tuples(st.sampled_from(["add", "pop", "park", "retry", "wake", "discard"]), st.integers(0, 3))))
    def test_a_pod_is_in_one_place_only(self, steps):
        backlog, known, trying = Backlog(), set(), set()
        for now, (step, number) in enumerate(steps):
            uid = f"pod-{number}"
            match step:
                case "add":
                    backlog.add(uid, now)
                    known.add(uid)
                case "discard":
                    backlog.discard(uid)
                    known.discard(uid)
                    trying.discard(uid)
                case "pop":
                    popped = backlog.pop(now)
                    if popped is not None:
                        assert popped in known
                        assert popped not in trying
                        trying.add(popped)
                case "park" | "retry" if uid in trying:
                    getattr(backlog, step)(uid, now)
                    trying.discard(uid)
                case "wake":
                    backlog.wake(now)
            assert len(backlog) == len(known)
