"""Exact search for devices on one node, for requests of several containers that a greedy pass could not place.

Plain integers, depth first, largest ask first. Devices in the same state are tried once. The search is cut off after
``STEPS`` tries: then the node counts as not fitting, which wastes room but never overbooks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from scoring.phases import Phase, phases
from scoring.request import ContainerAsk

STEPS = 20_000

Need = tuple[Sequence[int], Sequence[int]]
"""MiB and thousandths that one share would book on each device."""


@dataclass(slots=True)
class _Search:
    asks: Sequence[ContainerAsk]
    usable: Sequence[bool]
    free_mib: list[int]
    free_milli: list[int]
    needs: Sequence[Need]
    group: Sequence[int] | None
    steps: int = STEPS
    chosen: dict[int, tuple[int, ...]] = field(default_factory=dict)


def search(
    asks: Sequence[ContainerAsk],
    usable: Sequence[bool],
    free_mib: Sequence[int],
    free_milli: Sequence[int],
    needs: Sequence[Need],
    group: Sequence[int] | None = None,
) -> tuple[tuple[int, ...], ...] | None:
    """Return slots for each ask, in the request's order, or None where there is no way (or none within the bound).

    ``group`` numbers each device's group when all devices of a container must be of one group; -1 is no group.
    """
    state = _Search(asks, usable, list(free_mib), list(free_milli), needs, group)
    plan = phases(asks)
    main = next((phase.placed_now for phase in plan if phase.is_main), ())
    if not _place_main(state, main, [phase for phase in plan if not phase.is_main]):
        return None
    return tuple(state.chosen[at] for at in range(len(asks)))


def _place_main(state: _Search, remaining: Sequence[int], inits: Sequence[Phase]) -> bool:
    if not remaining:
        return all(_place_init(state, phase) for phase in inits)
    at, rest = remaining[0], remaining[1:]
    for slots in _ways(state, at):
        state.steps -= 1
        if state.steps < 0:
            return False
        state.chosen[at] = slots
        _take(state, at, slots, 1)
        found = _place_main(state, rest, inits)
        _take(state, at, slots, -1)
        if found:
            return True
    return False


def _place_init(state: _Search, phase: Phase) -> bool:
    """Place one init container beside the sidecars that run by then, on what the main phase leaves it: everything else.

    The main phase has not begun, so its app containers hold nothing yet.
    """
    running = [at for at in state.chosen if at not in phase.placed_now]
    for at in running:
        _take(state, at, state.chosen[at], -1)
    for at in phase.beside:
        _take(state, at, state.chosen[at], 1)
    at = phase.placed_now[0]
    slots = next(_ways(state, at), None)
    for beside in phase.beside:
        _take(state, beside, state.chosen[beside], -1)
    for other in running:
        _take(state, other, state.chosen[other], 1)
    if slots is not None:
        state.chosen[at] = slots
    return slots is not None


def _ways(state: _Search, at: int) -> Iterator[tuple[int, ...]]:
    """Yield choices of devices for one ask; of choices whose devices are in equal states only the first."""
    need_mib, need_milli = state.needs[at]
    fitting = [
        slot
        for slot in range(len(state.usable))
        if state.usable[slot]
        and 0 < need_mib[slot] <= state.free_mib[slot]
        and need_milli[slot] <= state.free_milli[slot]
    ]
    for together in _groups_of(state, at, fitting):
        alike: dict[tuple[int, ...], list[int]] = {}
        for slot in together:
            alike.setdefault(_state_of(state, slot), []).append(slot)
        yield from _draws(list(alike.values()), state.asks[at].count)


def _groups_of(state: _Search, at: int, fitting: list[int]) -> list[list[int]]:
    """Return the sets of devices from which one ask may draw: all that fit, or one group each."""
    if state.group is None or state.asks[at].count == 1:
        return [fitting]
    numbers = sorted({state.group[slot] for slot in fitting if state.group[slot] >= 0})
    return [[slot for slot in fitting if state.group[slot] == number] for number in numbers]


def _draws(classes: list[list[int]], count: int) -> Iterator[tuple[int, ...]]:
    """Yield the ways to draw ``count`` devices from classes of equal ones, as many as possible from the first."""
    if count == 0:
        yield ()
    elif sum(map(len, classes)) >= count:
        first, rest = classes[0], classes[1:]
        for taken in range(min(count, len(first)), -1, -1):
            for others in _draws(rest, count - taken):
                yield (*first[:taken], *others)


def _state_of(state: _Search, slot: int) -> tuple[int, ...]:
    booked = tuple(amount[slot] for need in state.needs for amount in need)
    group = -1 if state.group is None else state.group[slot]
    return state.free_mib[slot], state.free_milli[slot], group, *booked


def _take(state: _Search, at: int, slots: tuple[int, ...], sign: int) -> None:
    need_mib, need_milli = state.needs[at]
    for slot in slots:
        state.free_mib[slot] -= sign * need_mib[slot]
        state.free_milli[slot] -= sign * need_milli[slot]
