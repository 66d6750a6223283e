"""What the live page is told, and when: one update a second for all pages together, none while nobody looks.

A page that keeps up gets the changes since the last update; one that is new or fell behind gets everything. Nothing is
queued for anybody, so a slow reader costs no memory, and the number of pages is bounded. Each update is made in up to
two forms, with pod names and without; who may see names is asked anew for each update, so a token's end is noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from itertools import islice

import msgspec
import numpy as np

from extender.clock import Clock
from extender.decisions import Decision, Decisions, Verb
from extender.holdings import PodIdentity
from extender.pages.details import node_details
from extender.pages.picture import Painter, Picture
from extender.pages.trace import DeviceTraces
from extender.pages.waiting import WaitingPods
from extender.store import ClusterStore
from extender.viewers import HIDDEN, decision_without_names, words_without_names
from scoring.fleet import DeviceState, Fleet, NodeState
from scoring.status import Reason

INTERVAL_S = 1.0
MAX_VIEWERS = 32
_SHOWN_WAITING = 60
_SHOWN_DECISIONS = 40
_SHOWN_PLACED = 5
_DECISIONS_LOOKED_AT = 1000

_ENCODER = msgspec.json.Encoder()
_SENTENCES = {reason.value: reason.sentence for reason in Reason}


class TooManyViewers(Exception):
    """As many pages as allowed are open."""


class LiveView:
    """Turns the store, the waiting pods and the decisions into updates; runs on the event loop."""

    def __init__(self, store: ClusterStore, decisions: Decisions, clock: Clock) -> None:
        self.waiting = WaitingPods()
        self.traces = DeviceTraces(store.snapshot, clock.wall)
        self._store = store
        self._decisions = decisions
        self._clock = clock
        self._painter = Painter()
        self._viewers = 0
        self._turn = 0
        self._picture: Picture | None = None
        self._fleet: Fleet | None = None
        self._changes: Mapping[str, object] | None = None
        self._common: dict[bool, dict[str, object]] = {}
        self._made: dict[tuple[bool, bool], bytes] = {}
        self._rate = (0.0, 0)
        self._turned = asyncio.Condition()
        self._ticker: asyncio.Task[None] | None = None

    def updates(self, sees_names: Callable[[], Awaitable[bool]] | None = None) -> AsyncIterator[bytes]:
        """Return server-sent events without end; raise TooManyViewers where too many pages are open.

        ``sees_names`` tells whether the reader may see pod names; None shows them. One that may not any more sees none
        until it asks again.
        """
        if self._viewers >= MAX_VIEWERS:
            raise TooManyViewers
        return self._updates(sees_names)

    async def _updates(self, sees_names: Callable[[], Awaitable[bool]] | None) -> AsyncIterator[bytes]:
        self._viewers += 1
        seen, names = -1, True
        try:
            self._start()
            while True:
                await self._wait_past(seen)
                names = names and (sees_names is None or await sees_names())
                keeps_up, seen = seen == self._turn - 1, self._turn
                yield self._update(keeps_up=keeps_up, names=names)
        finally:
            self._viewers -= 1

    async def _wait_past(self, turn: int) -> None:
        async with self._turned:
            await self._turned.wait_for(lambda: self._turn > turn and self._picture is not None)

    async def stop(self) -> None:
        """End the updates."""
        if self._ticker is not None:
            self._ticker.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._ticker
            self._ticker = None

    def advance(self) -> None:
        """Look at the state once and make the next update."""
        fleet = self._store.snapshot()
        picture = self._painter.paint(fleet, self._store.ledger, self._store.nodes())
        summary = self._summary(fleet)
        self._common = {names: {**summary, **self._lists(names=names), "names": names} for names in (True, False)}
        before, self._picture, self._fleet, self._made = self._picture, picture, fleet, {}
        is_same = before is not None and before.layout is picture.layout
        self._changes = picture.changes(before) if before is not None and is_same else None
        self._turn += 1

    def node(self, name: str, *, names: bool = True) -> dict[str, object] | None:
        """Return all that is known of one node's devices and of the pods on them; None for an unknown node."""
        record = self._store.node(name)
        if record is None:
            return None
        found = node_details(record, self._store.bookings(name), names=names)
        pasts = {
            uuid: {"trace": self.traces.of(name, uuid), "placed": self._placed(uuid, names=names)}
            for uuid in record.devices
        }
        return {**found, "history": pasts}

    def _placed(self, uuid: str, *, names: bool) -> list[dict[str, object]]:
        """Return the last pods that were bound to a device, the newest first, as far as decisions are remembered."""
        recent = self._decisions.recent(_DECISIONS_LOOKED_AT)
        bound = (each for each in recent if each.verb is Verb.BIND and uuid in each.devices)
        return [
            {"at": each.at, "pod": f"{each.namespace}/{each.name}" if names else HIDDEN, "outcome": each.outcome}
            for each in islice(bound, _SHOWN_PLACED)
        ]

    def _start(self) -> None:
        if self._ticker is None or self._ticker.done():
            self._ticker = asyncio.create_task(self._run(), name="live-view")

    async def _run(self) -> None:
        """Make an update a second while somebody looks."""
        while self._viewers:
            self.advance()
            async with self._turned:
                self._turned.notify_all()
            await self._clock.sleep(INTERVAL_S)

    def _update(self, *, keeps_up: bool, names: bool) -> bytes:
        """Return the changes to a page that keeps up, everything to another; made once for all of a kind."""
        changes = self._changes if keeps_up else None
        kind = changes is not None, names
        if kind not in self._made:
            told = self._everything() if changes is None else changes
            self._made[kind] = _event({**self._common[names], **(told if names else _without_namespaces(told))})
        return self._made[kind]

    def _everything(self) -> Mapping[str, object]:
        assert self._picture is not None
        assert self._fleet is not None
        return self._picture.message(self._fleet)

    def _summary(self, fleet: Fleet) -> dict[str, object]:
        present = fleet.kind >= 0
        milli, mib = int(fleet.capacity_milli[present].sum()), int(fleet.capacity_mib[present].sum())
        loads = fleet.load[present & ~np.isnan(fleet.load)]
        return {
            "at": self._clock.wall(),
            "summary": {
                "nodes": int((fleet.node_state != NodeState.EMPTY).sum()),
                "devices": int(present.sum()),
                "pods": len(self._store.ledger),
                "compute": _share(int(fleet.booked_milli[present].sum()), milli),
                "memory": _share(int(fleet.booked_mib[present].sum()), mib),
                "load": round(float(loads.mean()), 4) if len(loads) else None,
                "out": int((present & (fleet.device_state == DeviceState.OUT)).sum()),
                "stale": int(
                    ((fleet.node_state > NodeState.WITHOUT_DEVICES) & (fleet.node_state < NodeState.FRESH)).sum()
                ),
                "waiting": len(self.waiting),
                "decisions_per_s": self._decisions_per_s(),
            },
        }

    def _decisions_per_s(self) -> float:
        now, sequence = self._clock.now(), self._decisions.sequence
        (then, before), self._rate = self._rate, (now, sequence)
        return round((sequence - before) / (now - then), 1) if then and now > then else 0.0

    def _lists(self, *, names: bool) -> dict[str, object]:
        return {"waiting": self._waiting(names=names), "decisions": self._recent(names=names)}

    def _waiting(self, *, names: bool) -> list[dict[str, object]]:
        now = self._clock.now()
        return [
            {
                "pod": f"{each.pod.namespace}/{each.pod.name}" if names else HIDDEN,
                "for_s": round(now - each.since, 1),
                "asks": each.asks,
                "why": (each.message if names else words_without_names(each.message))
                or self._why(each.pod, names=names),
            }
            for each in self.waiting.oldest(_SHOWN_WAITING)
        ]

    def _why(self, pod: PodIdentity, *, names: bool) -> str:
        """Return what the extender itself said last of a pod of which kube-scheduler has said nothing yet."""
        known = self._decisions.of_pod(pod.namespace, pod.name)
        newest = max(known.values(), key=lambda decision: decision.sequence, default=None)
        if newest is None or newest.pod_uid != pod.uid:
            return ""
        told = ", ".join(f"{count} {sentence}" for count, sentence in _reasons(newest.reasons))
        return told or (newest.message if names else newest.outcome)

    def _recent(self, *, names: bool) -> list[dict[str, object]]:
        told = [each for each in self._decisions.recent(_DECISIONS_LOOKED_AT) if _is_worth_telling(each)]
        shown = told[:_SHOWN_DECISIONS]
        return [_told(each if names else decision_without_names(each)) for each in shown]


def _without_namespaces(told: Mapping[str, object]) -> Mapping[str, object]:
    """Return an update that does not say whose the shares are, not even by namespace."""
    kept = {name: part for name, part in told.items() if name != "namespaces"}
    cells = kept.get("cells")
    if isinstance(cells, dict):
        kept["cells"] = {name: column for name, column in cells.items() if name != "share_space"}
    return kept


def _is_worth_telling(decision: Decision) -> bool:
    """Tell whether a decision says something final: a bind, or a pod that fits nowhere."""
    return decision.verb in (Verb.BIND, Verb.PREEMPT) or (decision.verb is Verb.FILTER and not decision.nodes_out)


def _told(decision: Decision) -> dict[str, object]:
    return {
        "number": decision.sequence,
        "verb": str(decision.verb),
        "at": decision.at,
        "pod": f"{decision.namespace}/{decision.name}".lstrip("/"),
        "outcome": decision.outcome,
        "node": decision.node,
        "devices": len(decision.devices),
        "nodes_in": decision.nodes_in,
        "nodes_out": decision.nodes_out,
        "policy": decision.policy,
        "message": decision.message,
        "reasons": _reasons(decision.reasons),
        "ms": round(decision.duration_ms, 2),
    }


def _reasons(counts: Mapping[str, int]) -> list[tuple[int, str]]:
    """Return (nodes, sentence) pairs, most nodes first."""
    ordered = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    return [(count, _SENTENCES.get(code, code)) for code, count in ordered]


def _share(part: int, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0


def _event(content: Mapping[str, object]) -> bytes:
    return b"data: " + _ENCODER.encode(content) + b"\n\n"
