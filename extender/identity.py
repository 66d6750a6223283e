"""Who is calling: bearer tokens of service accounts, checked by the API server and remembered for a short while.

Agents prove with a projected, node-bound token for which node they speak; people see pod names with the token of a
viewer account. Both are for our audience only, so a token that was stolen from here opens nothing else.

::

    token ── remembered and fresh ──────────────────────────> the answer of last time
        │ not remembered
    a place among the reviews under way ── none free ──────> BUSY (an attacker's tokens must not flood the API server)
        │
    TokenReview for the audience ── no ─────────────────────> remembered as refused for a few seconds
        │ yes
    remembered until it expires, five minutes at most

Tokens are remembered by their hash only. A deleted pod's token is accepted until it is forgotten here: at most five
minutes in which it can report for its own node, and nothing else.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import msgspec
from prometheus_client import Counter

from extender.bounded import keep
from extender.clock import Clock
from extender.errors import KubeError, NotAllowed
from extender.kubeapi import TokenIdentity
from extender.routes.raw import Headers

AUDIENCE = "tangram"
NODE_CLAIM = "authentication.kubernetes.io/node-name"
MAX_TOKEN_BYTES = 8192

_SCHEME = b"bearer "


class Refusal(StrEnum):
    """Why a caller is not who it should be; fit for a metric's label."""

    NO_TOKEN = "no-token"  # noqa: S105 - a word, no secret
    TOO_LONG = "too-long"
    EXPIRED = "expired"
    WRONG_AUDIENCE = "wrong-audience"
    NOT_VALID = "not-valid"
    WRONG_ACCOUNT = "wrong-account"
    NOT_NODE_BOUND = "not-node-bound"
    OTHER_NODE = "other-node"
    BUSY = "busy"
    UNAVAILABLE = "unavailable"


_SENTENCES = {
    Refusal.NO_TOKEN: "no bearer token was sent; valid is a projected service-account token for this audience",
    Refusal.TOO_LONG: f"the bearer token has more than {MAX_TOKEN_BYTES} bytes",
    Refusal.EXPIRED: "the bearer token has expired",
    Refusal.WRONG_AUDIENCE: "the bearer token is for another audience",
    Refusal.NOT_VALID: "the API server does not accept the bearer token",
    Refusal.WRONG_ACCOUNT: "the bearer token is another account's",
    Refusal.NOT_NODE_BOUND: "the bearer token names no node; valid is one that is projected into a pod",
    Refusal.OTHER_NODE: "the bearer token is for another node than the report",
    Refusal.BUSY: "too many tokens are being checked; try again",
    Refusal.UNAVAILABLE: "the API server cannot be asked about the token; try again",
}
_STATUS = {
    Refusal.WRONG_ACCOUNT: 403,
    Refusal.NOT_NODE_BOUND: 403,
    Refusal.OTHER_NODE: 403,
    Refusal.BUSY: 503,
    Refusal.UNAVAILABLE: 503,
}


class Reviewer(Protocol):
    """Asks the API server about tokens."""

    async def token_review(self, token: str, audiences: Sequence[str]) -> TokenIdentity | None:
        """Ask whom a token speaks for; None if it is not valid for any of ``audiences``. Raises KubeError."""


@dataclass(frozen=True, slots=True)
class IdentityLimits:
    """How long answers are remembered and how much is done at a time.

    ``accepted_s``, ``refused_s``   seconds for which a yes and a no are remembered
    ``remembered``                  tokens, the one unused for longest is forgotten
    ``reviews``, ``waiting``        TokenReviews under way, and callers that wait for a place among them
    ``timeout_s``                   seconds for one TokenReview
    """

    accepted_s: float = 300.0
    refused_s: float = 10.0
    remembered: int = 20_000
    reviews: int = 8
    waiting: int = 1024
    timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class _Remembered:
    until: float
    identity: TokenIdentity | Refusal


class _Claims(msgspec.Struct, frozen=True):
    exp: float | None = None
    aud: str | tuple[str, ...] = ()


class Identities:
    """Tells whom bearer tokens speak for. Used from one event loop."""

    def __init__(
        self, reviewer: Reviewer, clock: Clock, limits: IdentityLimits | None = None, audience: str = AUDIENCE
    ) -> None:
        self._reviewer = reviewer
        self._clock = clock
        self._limits = limits or IdentityLimits()
        self._audience = audience
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Task[TokenIdentity | Refusal]] = {}
        self._places = asyncio.Semaphore(self._limits.reviews)

    def __len__(self) -> int:
        """Return how many tokens are remembered."""
        return len(self._remembered)

    async def who(self, headers: Headers) -> TokenIdentity | Refusal:
        """Return whom the request's bearer token speaks for, or why nobody; raises nothing."""
        token = bearer_token(headers)
        if isinstance(token, Refusal):
            return token
        key = _key(headers)
        return self._recall(key) or await self._ask_once(key, token)

    def recalled(self, headers: Headers) -> TokenIdentity | Refusal | None:
        """Return what is remembered of the request's bearer token; None for nothing."""
        return self._recall(_key(headers))

    def _recall(self, key: bytes) -> TokenIdentity | Refusal | None:
        known = self._remembered.get(key)
        if known is None or self._clock.now() >= known.until:
            return None
        self._remembered.move_to_end(key)
        return known.identity

    async def _ask_once(self, key: bytes, token: str) -> TokenIdentity | Refusal:
        """Share one TokenReview among all who ask about the same token; a caller that hangs up ends it for none."""
        task = self._under_way.get(key)
        if task is None:
            if len(self._under_way) >= self._limits.reviews + self._limits.waiting:
                return Refusal.BUSY
            task = asyncio.create_task(self._ask(key, token))
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await asyncio.shield(task)

    async def _ask(self, key: bytes, token: str) -> TokenIdentity | Refusal:
        async with self._places:
            asked_at = self._clock.now()
            try:
                async with asyncio.timeout(self._limits.timeout_s):
                    found = await self._reviewer.token_review(token, (self._audience,))
            except (KubeError, TimeoutError):
                return Refusal.UNAVAILABLE
        claims, wall = _claims(token), self._clock.wall()
        identity = self._refused(claims, wall) if found is None else found
        self._remember(key, identity, asked_at, claims, wall)
        return identity

    def _refused(self, claims: _Claims, wall: float) -> Refusal:
        """Return in which way a token that the API server refused looks wrong; nothing is decided by it."""
        audiences = (claims.aud,) if isinstance(claims.aud, str) else claims.aud
        if audiences and self._audience not in audiences:
            return Refusal.WRONG_AUDIENCE
        return Refusal.EXPIRED if claims.exp is not None and claims.exp <= wall else Refusal.NOT_VALID

    def _remember(
        self, key: bytes, identity: TokenIdentity | Refusal, asked_at: float, claims: _Claims, wall: float
    ) -> None:
        is_accepted = isinstance(identity, TokenIdentity)
        kept_s = self._limits.accepted_s if is_accepted else self._limits.refused_s
        if is_accepted and claims.exp is not None:
            kept_s = min(kept_s, claims.exp - wall)
        keep(self._remembered, key, _Remembered(asked_at + kept_s, identity), self._limits.remembered)


class AgentGuard:
    """Lets an agent report for its own node only; what is refused is counted by reason in ``refusals``."""

    def __init__(self, identities: Identities, account: str) -> None:
        """``account`` is the agents' user name, such as ``system:serviceaccount:tangram-agents:tangram-agent``."""
        self._identities = identities
        self._account = account
        self.refusals = refusal_counter("tangram_extender_agent_refusals", "Agent reports refused, by reason")

    def is_known(self, headers: Headers, node: str) -> bool:
        """Return whether the caller may report for ``node``, as far as that is remembered."""
        identity = self._identities.recalled(headers)
        return isinstance(identity, TokenIdentity) and self._judge(identity, node) is None

    async def check(self, headers: Headers, node: str) -> None:
        """Return if the caller may report for ``node``; raise NotAllowed if not."""
        identity = await self._identities.who(headers)
        refusal = identity if isinstance(identity, Refusal) else self._judge(identity, node)
        if refusal is not None:
            self.refusals.labels(refusal.value).inc()
            raise NotAllowed(_STATUS.get(refusal, 401), f"node {node[:253]}: {_SENTENCES[refusal]}")

    def _judge(self, identity: TokenIdentity, node: str) -> Refusal | None:
        if identity.username != self._account:
            return Refusal.WRONG_ACCOUNT
        nodes = identity.extra.get(NODE_CLAIM, ())
        if len(nodes) != 1 or not nodes[0]:
            return Refusal.NOT_NODE_BOUND
        return None if nodes[0] == node else Refusal.OTHER_NODE


class ViewerGate:
    """Tells who may see pod names: the accounts that the operator named, anybody else sees devices and reasons."""

    def __init__(self, identities: Identities, accounts: frozenset[str]) -> None:
        """``accounts`` are user names, such as ``system:serviceaccount:tangram-system:tangram-viewer``."""
        self._identities = identities
        self._accounts = accounts
        self.refusals = refusal_counter("tangram_extender_viewer_refusals", "Viewers refused pod names, by reason")

    async def may_see_names(self, headers: Headers) -> bool:
        """Return whether the request comes from a viewer; one without a token is nobody's refusal."""
        identity = await self._identities.who(headers)
        if isinstance(identity, TokenIdentity) and identity.username in self._accounts:
            return True
        refusal = identity if isinstance(identity, Refusal) else Refusal.WRONG_ACCOUNT
        if refusal is not Refusal.NO_TOKEN:
            self.refusals.labels(refusal.value).inc()
        return False


def _key(headers: Headers) -> bytes:
    """Return what a token is remembered by, which is not the token."""
    return hashlib.sha256(headers.get(b"authorization", b"")).digest()


def service_account_user(namespace: str, name: str) -> str:
    """Return the user name under which the API server knows a service account."""
    return f"system:serviceaccount:{namespace}:{name}"


def bearer_token(headers: Mapping[bytes, bytes]) -> str | Refusal:
    """Return the bearer token of a request; names of headers are in lower case."""
    value = headers.get(b"authorization", b"")
    if value[: len(_SCHEME)].lower() != _SCHEME:
        return Refusal.NO_TOKEN
    token = value[len(_SCHEME) :].strip()
    if len(token) > MAX_TOKEN_BYTES:
        return Refusal.TOO_LONG
    if not token:
        return Refusal.NO_TOKEN
    return token.decode("ascii") if token.isascii() else Refusal.NOT_VALID


def refusal_counter(name: str, text: str) -> Counter:
    """Return a counter by reason that is in no registry yet; every reason is there from the start."""
    counter = Counter(name, text, ["reason"], registry=None)
    for refusal in Refusal:
        counter.labels(refusal.value)
    return counter


def _claims(token: str) -> _Claims:
    """Read a token's own idea of its end and audience, unverified: it shortens what we remember, and names refusals."""
    parts = token.split(".")
    if len(parts) != 3:  # Header, claims and signature (RFC 7519 section 3).
        return _Claims()
    try:
        claims = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(claims, type=_Claims)
    except (ValueError, msgspec.DecodeError, RecursionError):
        return _Claims()
