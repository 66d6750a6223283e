"""Leases: one holder at a time, whatever freezes, fails or is lost, and a pause between two of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from extender.errors import KubeRefused, KubeUnreachable, OutcomeUnknown
from extender.kubeapi import Lease
from extender.lease import Election, LeaseTerms, PairedLease
from extender.tenure import Tenure

WAIT_S = 4.0
TERMS = LeaseTerms("tangram-system", "tangram", duration_s=10, retry_s=1.0)


class SteppedClock:
    """Time that a test moves; whoever sleeps wakes when it has come far enough."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return 1_700_000_000.0 + self._now

    async def sleep(self, seconds: float) -> None:
        awake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now + seconds, awake))
        await awake

    async def advance(self, seconds: float) -> None:
        """Move on, let those wake whose time has come, and let every task go as far as it can."""
        await settle()
        self._now += seconds
        for at, awake in list(self._sleepers):
            if at <= self._now:
                self._sleepers.remove((at, awake))
                if not awake.done():
                    awake.set_result(None)
        await settle()


async def settle() -> None:
    for _ in range(12):
        await asyncio.sleep(0)


class Leases:
    """A lease as the API server keeps it: writes need the current version. The next call raises from ``fails``."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.fails: list[Exception] = []
        self._version = 0

    async def get_lease(self, namespace: str, name: str) -> Lease | None:
        self._fail()
        return self.lease

    async def create_lease(self, lease: Lease) -> Lease:
        self._fail()
        if self.lease is not None:
            raise KubeRefused(409, "exists")
        return self._put(lease)

    async def update_lease(self, lease: Lease) -> Lease:
        if self.lease is None or lease.resource_version != self.lease.resource_version:
            raise KubeRefused(409, "changed meanwhile")
        written = self._put(lease)
        self._fail()  # The answer is lost after the write.
        return written

    def by_scheduler(self, holder: str, renewal: int, duration_s: int = 10) -> None:
        """Write as kube-scheduler does."""
        self._put(Lease("tangram-system", "tangram", holder, duration_s, "", f"renewal {renewal}", 0))

    def _fail(self) -> None:
        if self.fails:
            raise self.fails.pop()

    def _put(self, lease: Lease) -> Lease:
        self._version += 1
        self.lease = replace(lease, resource_version=str(self._version))
        return self.lease


class Books:
    """Counts consistent lists; each can be made to fail."""

    def __init__(self) -> None:
        self.lists = 0
        self.fails: list[Exception] = []

    async def catch_up(self) -> None:
        if self.fails:
            raise self.fails.pop()
        self.lists += 1


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 10))


def paired(leases: Leases, clock: SteppedClock, books: Books) -> PairedLease:
    return PairedLease(leases, TERMS, clock, Tenure(clock, WAIT_S, books.catch_up), "pod-a")


def election(leases: Leases, clock: SteppedClock, name: str = "pod-a", books: Books | None = None) -> Election:
    return Election(leases, TERMS, clock, Tenure(clock, WAIT_S, (books or Books()).catch_up), name)


class TestPaired:
    """Our pod acts while its kube-scheduler renews, and not a moment longer than nobody else can hold the lease."""

    def test_acts_after_the_bind_deadline_and_a_consistent_list(self) -> None:
        async def test() -> None:
            leases, clock, books = Leases(), SteppedClock(), Books()
            ours = paired(leases, clock, books)
            leases.by_scheduler("pod-a_1", 1)
            await ours.round()
            await clock.advance(1)
            leases.by_scheduler("pod-a_1", 2)
            await ours.round()
            await clock.advance(WAIT_S - 0.1)
            assert not ours.may_act()
            assert books.lists == 0
            await clock.advance(0.2)
            assert ours.may_act()
            assert books.lists == 1

        run(test)

    def test_lease_found_at_start_proves_nothing_until_it_is_renewed(self) -> None:
        async def test() -> None:
            leases, clock = Leases(), SteppedClock()
            ours = paired(leases, clock, Books())
            leases.by_scheduler("pod-a_1", 1)
            for _ in range(20):
                await ours.round()
                await clock.advance(1)
            assert not ours.may_act()

        run(test)

    def test_counts_from_when_the_read_before_the_renewal_was_sent(self) -> None:
        async def test() -> None:
            leases, clock = Leases(), SteppedClock()
            ours = paired(leases, clock, Books())
            leases.by_scheduler("pod-a_1", 1)
            await ours.round()  # Sent at 0: the renewal came after that.
            leases.by_scheduler("pod-a_1", 2)
            await clock.advance(5)
            await ours.round()
            await clock.advance(4)
            assert ours.may_act()
            await clock.advance(0.95)  # 10 s less the drift after the first read, though 5 s after the second.
            assert not ours.may_act()

        run(test)

    def test_frozen_process_knows_at_once_that_its_time_is_over(self) -> None:
        async def test() -> None:
            leases, clock = Leases(), SteppedClock()
            ours = await acting(leases, clock)
            await clock.advance(30)
            assert not ours.may_act()

        run(test)

    def test_another_pods_scheduler_ends_the_tenure(self) -> None:
        async def test() -> None:
            leases, clock = Leases(), SteppedClock()
            ours = await acting(leases, clock)
            leases.by_scheduler("pod-ab_1", 9)
            await ours.round()
            assert not ours.may_act()

        run(test)

    def test_lease_that_came_back_means_waiting_and_listing_again(self) -> None:
        async def test() -> None:
            leases, clock, books = Leases(), SteppedClock(), Books()
            ours = await acting(leases, clock, books)
            leases.by_scheduler("pod-b_1", 8)
            await ours.round()
            leases.by_scheduler("pod-a_2", 9)
            await clock.advance(1)
            await ours.round()
            assert not ours.may_act()
            await clock.advance(WAIT_S)
            assert ours.may_act()
            assert books.lists == 2

        run(test)

    def test_unreachable_api_server_lets_the_tenure_run_out(self) -> None:
        async def test() -> None:
            leases, clock = Leases(), SteppedClock()
            ours = await acting(leases, clock)
            task = asyncio.create_task(ours.run())
            for _ in range(12):
                leases.fails = [KubeUnreachable("gone")]
                await clock.advance(1)
            assert not ours.may_act()
            task.cancel()

        run(test)

    def test_list_that_fails_is_tried_again(self) -> None:
        async def test() -> None:
            leases, clock, books = Leases(), SteppedClock(), Books()
            books.fails = [RuntimeError("a bug"), KubeUnreachable("gone")]
            ours = paired(leases, clock, books)
            leases.by_scheduler("pod-a_1", 1)
            await ours.round()
            leases.by_scheduler("pod-a_1", 2)
            await ours.round()
            await clock.advance(WAIT_S)
            assert not ours.may_act()
            await clock.advance(0.5)
            await clock.advance(0.5)
            assert ours.may_act()

        run(test)


async def acting(leases: Leases, clock: SteppedClock, books: Books | None = None) -> PairedLease:
    ours = paired(leases, clock, books or Books())
    for renewal in range(7):
        leases.by_scheduler("pod-a_1", renewal)
        await ours.round()
        await clock.advance(1)
    assert ours.may_act()
    return ours


class TestElection:
    """One candidate holds; the next waits for the lease to run out, or takes it at once where it was given up."""

    def test_first_candidate_makes_the_lease_and_acts_after_the_wait(self) -> None:
        async def test() -> None:
            leases, clock = Leases(), SteppedClock()
            first = election(leases, clock)
            await first.round()
            assert not first.may_act()
            await clock.advance(WAIT_S)
            assert first.may_act()
            assert leases.lease is not None
            assert leases.lease.holder == first.candidate
            assert leases.lease.renew_time.endswith("Z")

        run(test)

    def test_second_candidate_waits_for_the_whole_duration(self) -> None:
        async def test() -> None:
            leases, clock = Leases(), SteppedClock()
            first, second = election(leases, clock), election(leases, clock, "pod-b")
            await first.round()
            await second.round()
            await clock.advance(10.0)
            await second.round()
            assert leases.lease is not None
            assert leases.lease.holder == first.candidate
            await clock.advance(0.2)
            await second.round()
            assert leases.lease.holder == second.candidate
            assert leases.lease.transitions == 1
            assert not first.may_act()

        run(test)

    def test_released_lease_is_taken_at_once(self) -> None:
        async def test() -> None:
            leases, clock = Leases(), SteppedClock()
            first, second = election(leases, clock), election(leases, clock, "pod-b")
            await first.round()
            await clock.advance(WAIT_S)
            await first.release()
            assert not first.may_act()
            await second.round()
            assert leases.lease is not None
            assert leases.lease.holder == second.candidate
            await clock.advance(WAIT_S)
            assert second.may_act()

        run(test)

    def test_release_that_fails_raises_nothing_and_acts_no_more(self) -> None:
        async def test() -> None:
            leases, clock = Leases(), SteppedClock()
            first = election(leases, clock)
            await first.round()
            await clock.advance(WAIT_S)
            leases.fails = [OutcomeUnknown("no answer")]
            await first.release()
            assert not first.may_act()
            await first.release()

        run(test)

    def test_renewal_whose_answer_was_lost_keeps_the_tenure(self) -> None:
        async def test() -> None:
            leases, clock, books = Leases(), SteppedClock(), Books()
            first = election(leases, clock, books=books)
            task = asyncio.create_task(first.run())
            await clock.advance(1)
            for _ in range(6):
                await clock.advance(1)
            leases.fails = [OutcomeUnknown("no answer")]
            for _ in range(12):
                await clock.advance(1)
                assert first.may_act()
            assert books.lists == 1
            assert leases.lease is not None
            assert leases.lease.transitions == 0
            task.cancel()

        run(test)

    def test_two_candidates_at_once_make_one_holder(self) -> None:
        async def test() -> None:
            leases, clock = Leases(), SteppedClock()
            candidates = [election(leases, clock, f"pod-{number}") for number in range(5)]
            await asyncio.gather(*(candidate.round() for candidate in candidates))
            await clock.advance(WAIT_S)
            assert sum(candidate.may_act() for candidate in candidates) == 1

        run(test)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("round"), st.integers(0, 2)),
        st.tuples(st.just("lose"), st.integers(0, 2)),
        st.tuples(st.just("release"), st.integers(0, 2)),
        st.tuples(st.just("advance"), st.sampled_from([0.5, 1.0, 2.0, 4.0, 10.0, 10.3])),
    ),
    max_size=60,
)


class TestLaws:
    """Whatever happens, nobody acts within the bind deadline of another one's tenure."""

    @given(STEPS)
    @settings(max_examples=60, deadline=None)
    def test_no_two_act_within_the_bind_deadline(self, steps: list[tuple[str, float]]) -> None:
        async def test() -> None:
            leases, clock = Leases(), SteppedClock()
            candidates = [election(leases, clock, f"pod-{number}") for number in range(3)]
            last: tuple[int, float] | None = None
            for what, number in steps:
                await step(what, number, leases, clock, candidates)
                acts = [index for index, candidate in enumerate(candidates) if candidate.may_act()]
                assert len(acts) <= 1
                if acts and last is not None and last[0] != acts[0]:
                    assert clock.now() - last[1] >= WAIT_S
                last = (acts[0], clock.now()) if acts else last

        run(test)


async def step(what: str, number: float, leases: Leases, clock: SteppedClock, candidates: list[Election]) -> None:
    if what == "advance":
        await clock.advance(number)
        return
    candidate = candidates[int(number)]
    if what == "release":
        await candidate.release()
        return
    if what == "lose":
        leases.fails = [OutcomeUnknown("no answer")]
    with contextlib.suppress(OutcomeUnknown):
        await candidate.round()
    leases.fails = []
    await settle()
