"""Exact search for devices on one node, for requests of several containers that a greedy pass could not place.

Plain integers, depth first, largest ask first. Devices in the same state are tried once, and of asks that are equal the
later one takes no earlier device. The search is cut off after ``STEPS`` tries: then the node counts as not fitting,
which wastes room but never overbooks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from scoring.phases import Phase, phases
from scoring.request import ContainerAsk, ContainerKind

STEPS = 2_000

Numbers = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """One node in plain numbers, slot by slot; the last three hold one entry an ask.

    ``group``   the device's group; all devices of one container come from one group, -1 is no group
    ``usable``  where the ask may be placed at all, given room
    """

    free_mib: Numbers
    free_milli: Numbers
    group: Numbers
    usable: tuple[tuple[bool, ...], ...]
    need_mib: tuple[Numbers, ...]
    need_milli: tuple[Numbers, ...]


@dataclass(slots=True)
class _Search:
    asks: Sequence[ContainerAsk]
    node: Node
    inits: Sequence[Phase]
    free_mib: list[int]
    free_milli: list[int]
    steps: int
    classes: list[int]
    chosen: dict[int, Numbers] = field(default_factory=dict)


def search(asks: Sequence[ContainerAsk], node: Node, steps: int = STEPS) -> tuple[Numbers, ...] | None:
    """Return slots for each ask, in the request's order, or None where there is no way (or none within ``steps``)."""
    plan = phases(asks)
    main = next((phase.placed_now for phase in plan if phase.is_main), ())
    inits = [phase for phase in plan if not phase.is_main]
    state = _Search(asks, node, inits, list(node.free_mib), list(node.free_milli), steps, _classes(node))
    if not _place_main(state, main, None):
        return None
    return tuple(state.chosen[at] for at in range(len(asks)))


def _place_main(state: _Search, remaining: Numbers, before: int | None) -> bool:
    """Place the remaining asks of the main phase, then the init containers; ``before`` is the ask placed last."""
    if not remaining:
        return all(_place_init(state, phase) for phase in state.inits)
    at, rest = remaining[0], remaining[1:]
    for slots in _ways(state, at, _first_slot(state, at, before)):
        state.steps -= 1
        if state.steps < 0:
            return False
        state.chosen[at] = slots
        _take(state, at, 1)
        found = _place_main(state, rest, at)
        _take(state, at, -1)
        if found:
            return True
    return False


def _first_slot(state: _Search, at: int, before: int | None) -> int:
    """Return the slot to begin with: asks for one device that are equal may swap, so only one order is tried."""
    if before is None or state.asks[at].count > 1 or not _are_equal(state.asks[at], state.asks[before]):
        return 0
    return state.chosen[before][0]


def _are_equal(one: ContainerAsk, other: ContainerAsk) -> bool:
    if _is_sidecar(one) or _is_sidecar(other):
        return False
    return (one.count, one.memory_mib, one.compute_milli) == (other.count, other.memory_mib, other.compute_milli)


def _is_sidecar(ask: ContainerAsk) -> bool:
    return ask.kind is ContainerKind.SIDECAR


def _place_init(state: _Search, phase: Phase) -> bool:
    """Place one init container beside the sidecars that run by then; app containers hold nothing yet."""
    running = (state.free_mib, state.free_milli)
    state.free_mib, state.free_milli = list(state.node.free_mib), list(state.node.free_milli)
    for beside in phase.beside:
        _take(state, beside, 1)
    at = phase.placed_now[0]
    slots = next(_ways(state, at, 0), None)
    state.free_mib, state.free_milli = running
    if slots is None:
        return False
    state.chosen[at] = slots
    return True


def _ways(state: _Search, at: int, first: int) -> Iterator[Numbers]:
    """Yield choices of devices for one ask; of choices whose devices are in equal states only the first."""
    need_mib, need_milli, usable = state.node.need_mib[at], state.node.need_milli[at], state.node.usable[at]
    fitting = [
        slot
        for slot in range(first, len(usable))
        if usable[slot] and need_mib[slot] <= state.free_mib[slot] and need_milli[slot] <= state.free_milli[slot]
    ]
    for together in _groups_of(state, at, fitting):
        alike: dict[Numbers, list[int]] = {}
        for slot in together:
            alike.setdefault(_state_of(state, slot), []).append(slot)
        yield from _draws(list(alike.values()), state.asks[at].count)


def _groups_of(state: _Search, at: int, fitting: list[int]) -> list[list[int]]:
    """Return the sets of devices from which one ask may draw: all that fit, or one group each."""
    if state.asks[at].count == 1:
        return [fitting]
    group = state.node.group
    numbers = sorted({group[slot] for slot in fitting if group[slot] >= 0})
    return [[slot for slot in fitting if group[slot] == number] for number in numbers]


def _draws(classes: list[list[int]], count: int) -> Iterator[Numbers]:
    """Yield the ways to draw ``count`` devices from classes of equal ones, as many as possible from the first."""
    if count == 0:
        yield ()
    elif sum(map(len, classes)) >= count:
        first, rest = classes[0], classes[1:]
        for taken in range(min(count, len(first)), -1, -1):
            for others in _draws(rest, count - taken):
                yield (*first[:taken], *others)


def _state_of(state: _Search, slot: int) -> Numbers:
    """Return all in which devices can differ. Init containers find what was free at first, less the sidecars."""
    now = (state.free_mib[slot], state.free_milli[slot], state.classes[slot])
    if not state.inits:
        return now
    sidecars = (at for at, slots in state.chosen.items() if slot in slots and _is_sidecar(state.asks[at]))
    return *now, state.node.free_mib[slot], state.node.free_milli[slot], *sidecars


def _classes(node: Node) -> list[int]:
    """Return equal numbers for devices that differ in nothing but what is free."""
    columns = zip(node.group, *node.usable, *node.need_mib, *node.need_milli, strict=True)
    numbers: dict[Numbers, int] = {}
    return [numbers.setdefault(column, len(numbers)) for column in columns]


def _take(state: _Search, at: int, sign: int) -> None:
    need_mib, need_milli = state.node.need_mib[at], state.node.need_milli[at]
    for slot in state.chosen[at]:
        state.free_mib[slot] -= sign * need_mib[slot]
        state.free_milli[slot] -= sign * need_milli[slot]
