"""Who is calling: every way of not being the agent of a node, and how little is remembered."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import pytest

from extender.errors import KubeUnreachable
from extender.identity import (
    MAX_TOKEN_BYTES,
    NODE_CLAIM,
    AgentGuard,
    Identities,
    IdentityLimits,
    Refusal,
    ViewerGate,
    service_account_user,
)
from extender.kubeapi import TokenIdentity
from extender.routes.reports import NotAllowed
from tests.support.clock import ManualClock

AGENT = service_account_user("tangram-agents", "tangram-agent")
VIEWER = service_account_user("tangram-system", "tangram-viewer")
T = TypeVar("T")


class Reviews:
    """An API server that knows some tokens; it counts questions and can hold its answers back or be away."""

    def __init__(self, **known: TokenIdentity) -> None:
        self.known = known
        self.asked: list[str] = []
        self.is_away = False
        self.most_at_once = 0
        self.open = asyncio.Event()
        self.open.set()
        self._at_once = 0

    async def token_review(self, token: str, audiences: Sequence[str]) -> TokenIdentity | None:
        assert tuple(audiences) == ("tangram",)
        self.asked.append(token)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        await self.open.wait()
        self._at_once -= 1
        if self.is_away:
            raise KubeUnreachable("no connection")
        return self.known.get(token)


def identity(username: str = AGENT, **extra: str) -> TokenIdentity:
    bound = {key: (value,) for key, value in extra.items()}
    return TokenIdentity(username, "uid-1", (), ("tangram",), bound)


def of_node(node: str) -> TokenIdentity:
    return TokenIdentity(AGENT, "uid-1", (), ("tangram",), {NODE_CLAIM: (node,)})


def bearer(token: str) -> dict[bytes, bytes]:
    return {b"authorization": f"Bearer {token}".encode()}


def jwt(**claims: object) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{body}.c2ln"


def run(test: Callable[[], Awaitable[T]]) -> T:
    async def bounded() -> T:
        return await asyncio.wait_for(test(), 10)

    return asyncio.run(bounded())


def refused(reviews: Reviews, headers: dict[bytes, bytes], node: str = "a") -> tuple[int, Refusal]:
    """Report for a node, and return status and counted reason of the refusal."""
    guard = AgentGuard(Identities(reviews, ManualClock()), AGENT)
    with pytest.raises(NotAllowed) as caught:
        run(lambda: guard.check(headers, node))
    counted = [reason for reason in Refusal if guard.refusals.labels(reason.value)._value.get() == 1]
    assert len(counted) == 1
    return caught.value.status, counted[0]


def test_agent_reports_for_its_own_node() -> None:
    guard = AgentGuard(Identities(Reviews(good=of_node("a")), ManualClock()), AGENT)
    run(lambda: guard.check(bearer("good"), "a"))


@pytest.mark.parametrize(
    ("known", "headers", "expected"),
    [
        pytest.param({}, {}, (401, Refusal.NO_TOKEN), id="no header"),
        pytest.param({}, {b"authorization": b"Basic Zm9v"}, (401, Refusal.NO_TOKEN), id="other scheme"),
        pytest.param({}, {b"authorization": b"Bearer "}, (401, Refusal.NO_TOKEN), id="empty token"),
        pytest.param({}, bearer("x" * (MAX_TOKEN_BYTES + 1)), (401, Refusal.TOO_LONG), id="too long"),
        pytest.param({}, {b"authorization": b"Bearer \xff"}, (401, Refusal.NOT_VALID), id="not ASCII"),
        pytest.param({}, bearer("stranger"), (401, Refusal.NOT_VALID), id="unknown"),
        pytest.param({}, bearer(jwt(exp=5, aud=["tangram"])), (401, Refusal.EXPIRED), id="expired"),
        pytest.param({}, bearer(jwt(exp=9e12, aud=["vault"])), (401, Refusal.WRONG_AUDIENCE), id="other audience"),
        pytest.param({}, bearer(jwt(exp=9e12, aud="vault")), (401, Refusal.WRONG_AUDIENCE), id="audience as text"),
        pytest.param({}, bearer("a.!!.c"), (401, Refusal.NOT_VALID), id="claims that are no base64"),
        pytest.param({"good": of_node("b")}, bearer("good"), (403, Refusal.OTHER_NODE), id="other node"),
        pytest.param({"good": identity()}, bearer("good"), (403, Refusal.NOT_NODE_BOUND), id="no node"),
        pytest.param({"good": identity("kate")}, bearer("good"), (403, Refusal.WRONG_ACCOUNT), id="other account"),
    ],
)
def test_whoever_is_not_the_agent_of_the_node_is_refused_and_counted(
    known: dict[str, TokenIdentity], headers: dict[bytes, bytes], expected: tuple[int, Refusal]
) -> None:
    assert refused(Reviews(**known), headers) == expected


def test_unreachable_api_server_is_our_fault_and_not_remembered() -> None:
    async def test() -> None:
        reviews = Reviews(good=of_node("a"))
        reviews.is_away = True
        identities = Identities(reviews, ManualClock())
        assert await identities.who(bearer("good")) is Refusal.UNAVAILABLE
        reviews.is_away = False
        assert await identities.who(bearer("good")) == of_node("a")

    run(test)


def test_api_server_that_does_not_answer_is_given_up() -> None:
    async def test() -> None:
        reviews = Reviews()
        reviews.open.clear()
        identities = Identities(reviews, ManualClock(), IdentityLimits(timeout_s=0.01))
        assert await identities.who(bearer("good")) is Refusal.UNAVAILABLE

    run(test)


def test_accepted_token_is_asked_again_after_five_minutes() -> None:
    async def test() -> None:
        reviews, clock = Reviews(good=of_node("a")), ManualClock()
        identities = Identities(reviews, clock)
        await identities.who(bearer("good"))
        clock.advance(299)
        await identities.who(bearer("good"))
        assert len(reviews.asked) == 1
        clock.advance(1)
        del reviews.known["good"]
        assert await identities.who(bearer("good")) is Refusal.NOT_VALID

    run(test)


def test_token_is_not_remembered_beyond_its_own_end() -> None:
    async def test() -> None:
        clock = ManualClock()
        token = jwt(exp=clock.wall() + 20, aud=["tangram"])
        reviews = Reviews(**{token: of_node("a")})
        identities = Identities(reviews, clock)
        await identities.who(bearer(token))
        clock.advance(20)
        del reviews.known[token]
        assert await identities.who(bearer(token)) is Refusal.EXPIRED

    run(test)


def test_refused_token_is_asked_again_soon() -> None:
    async def test() -> None:
        reviews, clock = Reviews(), ManualClock()
        identities = Identities(reviews, clock)
        await identities.who(bearer("late"))
        await identities.who(bearer("late"))
        assert len(reviews.asked) == 1
        reviews.known["late"] = of_node("a")
        clock.advance(10)
        assert await identities.who(bearer("late")) == of_node("a")

    run(test)


def test_memory_is_bounded_and_keeps_what_is_used() -> None:
    async def test() -> None:
        reviews = Reviews(**{f"t{number}": of_node("a") for number in range(10)})
        identities = Identities(reviews, ManualClock(), IdentityLimits(remembered=3))
        for number in range(10):
            await identities.who(bearer(f"t{number}"))
            await identities.who(bearer("t0"))
        assert len(identities) == 3
        assert reviews.asked.count("t0") == 1

    run(test)


def test_same_token_at_the_same_time_is_one_question() -> None:
    async def test() -> None:
        reviews = Reviews(good=of_node("a"))
        reviews.open.clear()
        identities = Identities(reviews, ManualClock())
        calls = [asyncio.create_task(identities.who(bearer("good"))) for _ in range(50)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        calls[0].cancel()
        reviews.open.set()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(answers[0], asyncio.CancelledError)
        assert answers[1:] == [of_node("a")] * 49
        assert len(reviews.asked) == 1

    run(test)


def test_flood_of_new_tokens_asks_few_at_a_time_and_turns_the_rest_away() -> None:
    async def test() -> None:
        reviews = Reviews()
        reviews.open.clear()
        identities = Identities(reviews, ManualClock(), IdentityLimits(reviews=2, waiting=3))
        calls = [asyncio.create_task(identities.who(bearer(f"t{number}"))) for number in range(9)]
        for _ in range(5):
            await asyncio.sleep(0)
        reviews.open.set()
        answers = await asyncio.gather(*calls)
        assert answers == [Refusal.NOT_VALID] * 5 + [Refusal.BUSY] * 4
        assert reviews.most_at_once == 2

    run(test)


def test_pod_names_are_for_viewers_only() -> None:
    async def test() -> None:
        reviews = Reviews(viewer=identity(VIEWER), agent=of_node("a"))
        gate = ViewerGate(Identities(reviews, ManualClock()), frozenset({VIEWER}))
        assert await gate.may_see_names(bearer("viewer"))
        assert not await gate.may_see_names(bearer("agent"))
        assert not await gate.may_see_names(bearer("stranger"))
        assert not await gate.may_see_names({})
        counts = {reason: gate.refusals.labels(reason.value)._value.get() for reason in Refusal}
        assert {reason: count for reason, count in counts.items() if count} == {
            Refusal.WRONG_ACCOUNT: 1,
            Refusal.NOT_VALID: 1,
        }

    run(test)
