"""The store under any order of its verbs, with every verb called once or twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from extender.errors import BoundElsewhere, PodReplaced
from extender.holdings import DeviceBooking, Holding, ObservedPod, Phase, Reservation, Token
from extender.settings import Settings
from extender.store import ClusterStore
from node_agent.report import Health
from scoring.fleet import Fleet
from tests.support.builders import bound, device, identity, node_facts, placing, report, share_request

NODES = ("n1", "n2")
UUIDS = ("GPU-0", "GPU-1")
CAPACITY_MIB = 16_000

pods = st.sampled_from([f"p{number}" for number in range(8)])
nodes = st.sampled_from(NODES)
amounts = st.integers(1, CAPACITY_MIB)
twice = st.booleans()


class StoreMachine(RuleBasedStateMachine):
    """Safety: books equal the holdings, no assume overbooks, generation only grows, a snapshot never changes.

    Liveness: when every pod has gone, nothing is booked any more.
    """

    @initialize()
    def start(self) -> None:
        self.now = 1000.0
        self.store = ClusterStore(Settings())
        self.generation = 0
        self.tokens: dict[str, list[Token]] = {}
        self.gone: set[str] = set()
        self.kept: tuple[Fleet, bytes] | None = None
        for node in NODES:
            self.store.set_node(node_facts(node))
            self._report(node, UUIDS)

    def _report(self, node: str, uuids: tuple[str, ...], health: Health = Health.HEALTHY) -> None:
        held = tuple(device(f"{node}-{uuid}", total_mib=CAPACITY_MIB, health=health) for uuid in uuids)
        self.store.apply_report(report(node, *held), self.now)

    @rule(name=pods, node=nodes, memory_mib=amounts, again=twice)
    def assume(self, name: str, node: str, memory_mib: int, again: bool) -> None:
        before = self._overbooked()
        for _ in range(1 + again):
            try:
                reserved = self.store.assume(placing(share_request(memory_mib), name, node), self.now)
            except (BoundElsewhere, PodReplaced):
                break
            if isinstance(reserved, Reservation):
                self.tokens.setdefault(name, []).append(reserved.token)
        assert self._overbooked() == before

    @rule(name=pods, again=twice, which=st.integers(0, 5))
    def confirm(self, name: str, again: bool, which: int) -> None:
        for token in self._token(name, which) * (1 + again):
            self.store.confirm(token)

    @rule(name=pods, again=twice, which=st.integers(0, 5))
    def forget(self, name: str, again: bool, which: int) -> None:
        held = self.store.ledger.get(f"uid-{name}")
        for token in self._token(name, which) * (1 + again):
            self.store.forget(token)
            if held is not None and held.token != token:
                assert self.store.ledger.get(f"uid-{name}") == held

    @rule(name=pods, again=twice, which=st.integers(0, 5))
    def doubt(self, name: str, again: bool, which: int) -> None:
        for token in self._token(name, which) * (1 + again):
            self.store.doubt(token)

    @rule(name=pods, node=nodes, slot=st.sampled_from([*UUIDS, "GPU-unknown"]), memory_mib=amounts, again=twice)
    def watch_shows_bound(self, name: str, node: str, slot: str, memory_mib: int, again: bool) -> None:
        seen = bound(name, f"{node}-{slot}", memory_mib, 10, node)
        for _ in range(1 + again):
            self.store.set_pod(seen)
        held = self.store.ledger.get(seen.pod.uid)
        assert (held is None) == (seen.pod.uid in self.gone)

    @rule(name=pods, node=nodes)
    def watch_shows_bound_without_allocation(self, name: str, node: str) -> None:
        self.store.set_pod(ObservedPod(identity(name), node=node, request=share_request(), problem="nobody knows"))

    @rule(name=pods, nominated=st.sampled_from(["", *NODES]))
    def watch_shows_pending(self, name: str, nominated: str) -> None:
        before = self.store.ledger.get(f"uid-{name}")
        self.store.set_pod(ObservedPod(identity(name), nominated=nominated, request=share_request(100)))
        assert self.store.ledger.get(f"uid-{name}") == before

    @rule(name=pods, again=twice, is_over=st.booleans())
    def release(self, name: str, again: bool, is_over: bool) -> None:
        for _ in range(1 + again):
            if is_over:
                self.store.set_pod(replace(bound(name), is_over=True))
            else:
                self.store.release(f"uid-{name}")
        self.gone.add(f"uid-{name}")
        assert self.store.ledger.get(f"uid-{name}") is None

    @rule(node=nodes, count=st.integers(0, 2), health=st.sampled_from(list(Health)))
    def report(self, node: str, count: int, health: Health) -> None:
        if self.store.node(node) is not None:
            self._report(node, UUIDS[:count], health)

    @rule(seconds=st.floats(0, 60), again=twice)
    def time_passes(self, seconds: float, again: bool) -> None:
        self.now += seconds
        self.store.expire(self.now)
        if again:
            assert self.store.expire(self.now) == ()

    @rule(node=nodes, again=twice)
    def remove_node(self, node: str, again: bool) -> None:
        for _ in range(1 + again):
            self.store.remove_node(node)

    @rule(node=nodes, again=twice)
    def set_node(self, node: str, again: bool) -> None:
        for _ in range(1 + again):
            self.store.set_node(node_facts(node))

    @rule()
    def keep_snapshot(self) -> None:
        fleet = self.store.snapshot()
        self.kept = fleet, fleet.booked_mib.tobytes()

    @precondition(lambda self: self.kept is not None)
    @rule()
    def a_kept_snapshot_has_not_changed(self) -> None:
        assert self.kept is not None
        fleet, booked = self.kept
        assert fleet.booked_mib.tobytes() == booked

    @invariant()
    def columns_equal_the_holdings(self) -> None:
        fleet = self.store.snapshot()
        for node, row in fleet.rows.items():
            holdings = tuple(self.store.ledger.on_node(node))
            for slot, uuid in enumerate(fleet.uuids[row]):
                held = [entry for holding in holdings for entry in _on(holding, uuid)]
                assert fleet.booked_mib[slot, row] == sum(entry.memory_mib for entry in held)
                assert fleet.booked_milli[slot, row] == sum(entry.compute_milli for entry in held)
                assert fleet.sharers[slot, row] == len(held)

    @invariant()
    def generation_only_grows(self) -> None:
        assert self.store.generation >= self.generation
        self.generation = self.store.generation

    @invariant()
    def tokens_belong_to_assumptions_only(self) -> None:
        for name in {name for name, tokens in self.tokens.items() if tokens}:
            held = self.store.ledger.get(f"uid-{name}")
            if held is not None:
                assert (held.token is not None) == (held.phase is Phase.ASSUMED)

    @invariant()
    def totals_are_never_below_what_is_booked(self) -> None:
        for record in self.store.nodes():
            totals = self.store.totals(record.name)
            if totals is not None:
                booked = sum(
                    self.store.ledger.device(record.name, uuid).memory_mib for uuid in self._booked(record.name)
                )
                assert totals["gpu-memory"] >= booked

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        for number in range(8):
            self.store.release(f"uid-p{number}")
        fleet = self.store.snapshot()
        assert not fleet.booked_mib.any()
        assert not fleet.sharers.any()
        assert not np.nan_to_num(fleet.cpu_booked_milli).any()
        assert len(self.store.ledger) == 0
        assert self.store.ledger.assumed() == ()

    def _booked(self, node: str) -> tuple[str, ...]:
        return self.store.ledger.devices(node)

    def _token(self, name: str, which: int) -> tuple[Token, ...]:
        tokens = self.tokens.get(name, [])
        return (tokens[which % len(tokens)],) if tokens else ()

    def _overbooked(self) -> set[tuple[str, str]]:
        return set(self.store.overbooked())


def _on(holding: Holding, uuid: str) -> list[DeviceBooking]:
    return [booking for booking in holding.booked if booking.uuid == uuid]


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(
    max_examples=max(80, settings().max_examples),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
