from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from extender.changes import Change, Gone, ObjectKey, Set
from extender.errors import KubeRefused, KubeUnreachable, OutcomeUnknown, UnreadableAnswer
from extender.objects import Pod
from extender.reflection import PODS, Pace
from extender.reflector import Reflector, ReflectorThread
from tests.extender.scripted_source import (
    GONE_EVENT,
    ManualTime,
    ScriptedSource,
    ScriptedWatch,
    bookmark,
    event,
    pages,
    pod,
    poison,
)

EMPTY = pages("10", [])
FULL_WAIT = 1.0


class Run:
    """A reflector run to the end of its script: what it told, asked and waited."""

    def __init__(self, lists: list[Any], watches: list[Any], waits: int, jitter: float = FULL_WAIT) -> None:
        self.time = ManualTime(waits)
        self.source = ScriptedSource(self.time, lists, watches)
        self.told: list[Change[Pod]] = []
        self.reflector = Reflector(
            self.source,
            PODS,
            self.told.extend,
            monotonic=self.time.monotonic,
            draw=lambda low, high: low + (high - low) * jitter,
            pause=self.time.pause,
        )
        self.time.on_exhausted = self.reflector.stop
        self.reflector.run()
        self.stats = self.reflector.stats

    @property
    def story(self) -> list[str]:
        return [_word(change) for change in self.told]


def _word(change: Change[Pod]) -> str:
    match change:
        case Set(item=item):
            return f"set {item.metadata.name}/{item.metadata.uid}@{item.metadata.resource_version}"
        case Gone(key=key):
            return f"gone {key.name}/{key.uid}"
        case _:
            return "synced"


class TestList:
    def test_all_pages_of_a_list_are_told_then_synced(self):
        run = Run([pages("10", [pod("a", "1")], [pod("b", "2")])], [KubeUnreachable("x")], waits=1)
        assert run.story == ["set a/uid-a@1", "set b/uid-b@2", "synced"]

    def test_the_watch_starts_at_the_version_of_the_list(self):
        run = Run([pages("10", [pod("a", "99")])], [KubeUnreachable("x")], waits=1)
        assert run.source.watched[0][0] == "10"

    def test_pages_grow_to_250_objects_by_starting_the_list_over_once(self):
        small = pages("10", [pod(f"a{n}", "1") for n in range(50)], [pod("z", "1")])
        run = Run([small], [KubeUnreachable("x")], waits=1)
        assert run.source.listed == [(50, ""), (250, ""), (250, "1")]
        assert len(run.told) == 52, "nothing is told twice although the first page was read twice"

    def test_pages_of_large_objects_stay_small(self):
        large = [pod(f"a{n}", "1", annotations={"x": "y" * 200_000}) for n in range(50)]
        run = Run([pages("10", large, [pod("z", "1")])], [KubeUnreachable("x")], waits=1)
        assert [limit for limit, _ in run.source.listed] == [50, 5, 5]

    def test_a_list_that_fails_is_tried_again_with_growing_waits(self):
        run = Run([KubeRefused(500, "no")], [], waits=6)
        assert (run.stats.lists, run.stats.errors, run.stats.watches) == (6, 6, 0)
        assert run.time.waits == [1, 2, 4, 8, 16, 30]

    def test_a_continue_token_that_expired_starts_the_list_over(self):
        class Expiring(ScriptedSource):
            def list_page(self, path: str, limit: int, continue_token: str) -> bytes:
                body = super().list_page(path, limit, continue_token)
                if continue_token and len(self.listed) < 4:
                    raise KubeRefused(410, "continue token expired")
                return body

        time = ManualTime(2)
        source = Expiring(time, [pages("10", [pod("a", "1")], [pod("b", "2")])], [KubeUnreachable("x")])
        told: list[Change[Pod]] = []
        reflector = Reflector(source, PODS, told.extend, monotonic=time.monotonic, pause=time.pause)
        time.on_exhausted = reflector.stop
        reflector.run()
        assert reflector.stats.gone == 1
        assert [_word(change) for change in told] == ["set a/uid-a@1", "set b/uid-b@2", "synced"]

    def test_a_body_that_is_no_list_is_an_error_with_backoff(self):
        run = Run([[b"<html>"]], [], waits=3)
        assert (run.stats.lists, run.stats.errors) == (3, 3)
        assert not run.stats.synced

    def test_one_bad_object_in_a_list_is_skipped_and_the_others_are_told(self):
        run = Run([pages("10", [pod("a", "1"), poison("bad", "2"), pod("b", "3")])], [KubeUnreachable("x")], waits=1)
        assert run.story == ["set a/uid-a@1", "set b/uid-b@3", "synced"]
        assert (run.stats.lists, run.stats.skips) == (1, 1)

    @pytest.mark.parametrize(
        "bad",
        [
            pytest.param({}, id="no metadata"),
            pytest.param({"metadata": {"name": "a"}}, id="no uid"),
            pytest.param({"metadata": 3}, id="metadata is a number"),
            pytest.param([], id="a list"),
        ],
    )
    def test_an_object_without_identity_is_skipped(self, bad: object):
        run = Run([pages("10", [bad, pod("b", "3")])], [KubeUnreachable("x")], waits=1)
        assert run.story == ["set b/uid-b@3", "synced"]
        assert run.stats.skips == 1


class TestRelist:
    def relist(self, before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> list[str]:
        run = Run([pages("10", before), pages("20", after)], [[[GONE_EVENT]], KubeUnreachable("x")], waits=2)
        return run.story[run.story.index("synced") + 1 :]

    def test_nothing_is_told_for_unchanged_objects(self):
        assert self.relist([pod("a", "1"), pod("b", "2")], [pod("a", "1"), pod("b", "2")]) == ["synced"]

    def test_a_changed_object_is_told(self):
        assert self.relist([pod("a", "1")], [pod("a", "7")]) == ["set a/uid-a@7", "synced"]

    def test_a_vanished_object_is_told_as_gone(self):
        assert self.relist([pod("a", "1"), pod("b", "2")], [pod("b", "2")]) == ["gone a/uid-a", "synced"]

    def test_a_re_created_pod_frees_the_old_uid_first(self):
        assert self.relist([pod("a", "1", "u1")], [pod("a", "7", "u2")]) == ["gone a/u1", "set a/u2@7", "synced"]

    def test_an_object_that_became_unreadable_is_not_gone(self):
        assert self.relist([pod("a", "1")], [poison("a", "7")]) == ["synced"]

    def test_a_re_created_pod_that_is_unreadable_still_frees_the_old_uid(self):
        assert self.relist([pod("a", "1", "u1")], [poison("a", "7", "u2")]) == ["gone a/u1", "synced"]


class TestWatch:
    def told_by(self, *lines: bytes) -> list[str]:
        return Run([pages("10", [pod("a", "1")])], [[list(lines)]], waits=1).story[2:]

    def test_events_are_told_in_order(self):
        story = self.told_by(
            event("ADDED", pod("b", "11")), event("MODIFIED", pod("b", "12")), event("DELETED", pod("b", "13"))
        )
        assert story == ["set b/uid-b@11", "set b/uid-b@12", "gone b/uid-b"]

    def test_an_event_for_a_state_already_told_is_not_repeated(self):
        assert self.told_by(event("ADDED", pod("a", "1"))) == []

    def test_a_late_delete_of_an_old_uid_leaves_the_new_pod_alone(self):
        story = self.told_by(event("ADDED", pod("a", "11", "u2")), event("DELETED", pod("a", "12", "uid-a")))
        assert story == ["gone a/uid-a", "set a/u2@11"]

    def test_a_delete_of_an_unreadable_object_frees_it_by_name_and_uid(self):
        assert self.told_by(event("DELETED", poison("a", "12"))) == ["gone a/uid-a"]

    def test_bookmarks_move_the_version_where_the_next_watch_starts(self):
        run = Run([EMPTY], [[[bookmark("40")]], KubeUnreachable("x")], waits=2)
        assert [version for version, _, _ in run.source.watched] == ["10", "40"]
        assert (run.stats.bookmarks, run.stats.events) == (1, 0)

    def test_a_watch_lives_a_random_time_between_four_and_eight_minutes(self):
        assert Run([EMPTY], [[]], waits=1, jitter=0.001).source.watched[0][1] == 240
        assert Run([EMPTY], [[]], waits=1, jitter=1.0).source.watched[0][1] == 480

    def test_silence_is_given_longer_than_the_minute_between_bookmarks(self):
        assert Run([EMPTY], [[]], waits=1).source.watched[0][2] > 60

    def test_a_watch_is_closed_however_it_ends(self):
        time = ManualTime(1)
        opened = []

        class Recording(ScriptedSource):
            def open_watch(self, path: str, resource_version: str, timeout_s: int, silence_s: float) -> ScriptedWatch:
                opened.append(super().open_watch(path, resource_version, timeout_s, silence_s))
                return opened[-1]

        source = Recording(time, [EMPTY], [[OutcomeUnknown("cut")]])
        reflector = Reflector(source, PODS, [].extend, monotonic=time.monotonic, pause=time.pause)
        time.on_exhausted = reflector.stop
        reflector.run()
        assert [watch.closed for watch in opened] == [True]


class TestFailureRows:
    """Each failure that wedges the official informer costs a few requests here, counted over one virtual minute."""

    def requests_in_a_minute(self, lists: list[Any], watches: list[Any]) -> tuple[int, int]:
        run = Run(lists, watches, waits=8)  # Waits 1 2 4 8 16 30 30 30: the first six end within 61 s.
        assert run.time.waits == [1, 2, 4, 8, 16, 30, 30, 30]
        return run.stats.lists, run.stats.watches

    def test_a_watch_that_answers_500_backs_off_and_keeps_its_version(self):
        assert self.requests_in_a_minute([EMPTY], [KubeRefused(500, "no")]) == (1, 8)

    def test_a_watch_that_answers_410_each_time_lists_again_with_backoff(self):
        assert self.requests_in_a_minute([EMPTY], [KubeRefused(410, "too old")]) == (8, 8)

    def test_a_gone_event_each_time_lists_again_with_backoff(self):
        assert self.requests_in_a_minute([EMPTY], [[[GONE_EVENT]]]) == (8, 8)

    def test_a_watch_that_closes_at_once_backs_off_without_a_list(self):
        assert self.requests_in_a_minute([EMPTY], [[]]) == (1, 8)

    def test_a_watch_that_breaks_at_once_backs_off_without_a_list(self):
        assert self.requests_in_a_minute([EMPTY], [[OutcomeUnknown("reset")]]) == (1, 8)

    def test_a_poison_event_is_passed_and_never_replayed(self):
        poisoned = [
            [event("ADDED", pod("a", "11")), event("ADDED", poison("bad", "12")), event("ADDED", pod("b", "13"))]
        ]
        run = Run([EMPTY], [poisoned, []], waits=3)
        assert run.story == ["synced", "set a/uid-a@11", "set b/uid-b@13"]
        assert run.stats.skips == 1
        assert [version for version, _, _ in run.source.watched] == ["10", "13", "13"]

    def test_a_poison_event_that_comes_last_still_moves_the_version(self):
        run = Run([EMPTY], [[[event("MODIFIED", poison("bad", "12"))]], []], waits=2)
        assert [version for version, _, _ in run.source.watched] == ["10", "12"]

    def test_a_line_that_is_no_json_is_passed(self):
        run = Run([EMPTY], [[[b"{not json", event("ADDED", pod("b", "13"))]], []], waits=2)
        assert run.story == ["synced", "set b/uid-b@13"]
        assert (run.stats.skips, run.stats.errors) == (1, 0)

    def test_an_event_above_the_limit_is_stepped_over_by_a_list(self):
        run = Run([EMPTY], [[UnreadableAnswer("8 MiB")], []], waits=2)
        assert (run.stats.lists, run.stats.watches) == (2, 2)

    def test_a_half_open_connection_is_left_after_the_silence_and_resumed(self):
        run = Run([EMPTY], [[90.0, OutcomeUnknown("silent")]], waits=3)
        assert (run.stats.lists, run.stats.watches, run.stats.errors) == (1, 3, 3)
        assert run.time.waits == [1, 1, 1], "each watch lived long enough not to count as a failure"

    def test_backoff_starts_anew_only_after_a_watch_that_lived(self):
        run = Run([EMPTY], [[], [], [], [31.0], [], []], waits=5)
        assert run.time.waits == [1, 2, 4, 1, 2]

    def test_events_alone_do_not_make_a_watch_healthy(self):
        run = Run([EMPTY], [[[bookmark("11")]]], waits=4)
        assert run.time.waits == [1, 2, 4, 8]

    def test_what_came_before_the_error_in_one_packet_is_told(self):
        run = Run([EMPTY], [[[event("ADDED", pod("a", "11")), GONE_EVENT]], KubeUnreachable("x")], waits=1)
        assert run.story == ["synced", "set a/uid-a@11"]

    def test_waits_are_drawn_from_nothing_to_the_bound(self):
        assert Run([EMPTY], [[]], waits=3, jitter=0.5).time.waits == [0.5, 1, 2]


class TestStats:
    def test_age_is_infinite_before_the_first_contact(self):
        run = Run([KubeUnreachable("x")], [], waits=1)
        assert run.stats.age_s(5.0) == float("inf")

    def test_age_counts_from_the_last_line(self):
        run = Run([EMPTY], [[10.0, [bookmark("11")], 20.0], KubeUnreachable("x")], waits=1)
        assert run.stats.age_s(run.time.now) == 20.0 + run.time.waits[0]


class Recorder:
    """A handler that notes what it is told and by which thread."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.threads: set[int] = set()
        self.synced = asyncio.Event()

    def on_set(self, item: Pod) -> None:
        self.threads.add(threading.get_ident())
        if item.metadata.name == "odd":
            raise KeyError(item.metadata.name)
        self.story.append(f"set {item.metadata.name}")

    def on_delete(self, key: ObjectKey) -> None:
        self.story.append(f"gone {key.name}")

    def on_synced(self) -> None:
        self.synced.set()


@pytest.mark.anyio
class TestThread:
    @pytest.fixture
    def anyio_backend(self):
        return "asyncio"

    async def test_changes_arrive_on_the_event_loop_in_order_and_the_thread_ends(self):
        names = [f"p{n:04}" for n in range(2_000)]  # More than may be under way at once.
        source = ScriptedSource(ManualTime(9), [pages("1", [pod(n, "1") for n in names])], [KubeUnreachable("x")])
        recorder = Recorder()
        thread = ReflectorThread(source, PODS, recorder, Pace(backoff_first_s=30.0))
        thread.start()
        await asyncio.wait_for(recorder.synced.wait(), 10)
        assert recorder.story == [f"set {name}" for name in names]
        assert recorder.threads == {threading.get_ident()}
        assert await thread.stop()

    async def test_a_change_that_the_handler_cannot_take_costs_only_itself(self):
        source = ScriptedSource(
            ManualTime(9), [pages("1", [pod("a", "1"), pod("odd", "2"), pod("b", "3")])], [KubeUnreachable("x")]
        )
        recorder = Recorder()
        thread = ReflectorThread(source, PODS, recorder, Pace(backoff_first_s=30.0))
        thread.start()
        await asyncio.wait_for(recorder.synced.wait(), 10)
        assert recorder.story == ["set a", "set b"]
        assert thread.handler_failures == 1
        assert await thread.stop()
