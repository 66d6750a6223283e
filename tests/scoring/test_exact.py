from __future__ import annotations

import pytest

from scoring.exact import STEPS, Node, search
from scoring.request import ContainerAsk, ContainerKind

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def _asks(*sizes: int | tuple[int, ContainerKind] | tuple[int, ContainerKind, int]) -> tuple[ContainerAsk, ...]:
    whole = [(size,) if isinstance(size, int) else size for size in sizes]
    return tuple(
        ContainerAsk(f"c{at}", one[2] if len(one) > 2 else 1, one[0], None, one[1] if len(one) > 1 else APP)
        for at, one in enumerate(whole)
    )


def _search(
    asks: tuple[ContainerAsk, ...], free: tuple[int, ...], group: tuple[int, ...] | None = None, steps: int = STEPS
):
    count = len(free)
    need = tuple((ask.memory_mib or 0,) * count for ask in asks)
    usable = ((True,) * count,) * len(asks)
    node = Node(free, (1000,) * count, group or (0,) * count, usable, need, ((0,) * count,) * len(asks))
    return search(asks, node, steps)


@pytest.mark.parametrize(
    ("asks", "free", "expected"),
    [
        pytest.param(_asks(7, 6, 5, 4), (10, 12), ((1,), (0,), (1,), (0,)), id="only one way to fill both"),
        pytest.param(_asks(7, 6, 5, 5), (10, 12), None, id="one too many"),
        pytest.param(_asks((4, APP, 2), 4), (4, 4, 4), ((0, 1), (2,)), id="two devices and another"),
        pytest.param(_asks((6, INIT), 6), (6,), ((0,), (0,)), id="init container before the app"),
        pytest.param(_asks((2, SIDECAR), (5, INIT), 4), (6,), None, id="init container beside a sidecar"),
        pytest.param(
            _asks((5, INIT), (2, SIDECAR), 4), (6,), ((0,), (0,), (0,)), id="init container before the sidecar"
        ),
        pytest.param(
            _asks((2, SIDECAR), (5, INIT), 4), (6, 2), ((1,), (0,), (0,)), id="sidecar leaves room for the init"
        ),
        pytest.param(_asks((3, INIT), (4, INIT)), (4,), ((0,), (0,)), id="only init containers"),
    ],
)
def test_search_finds_a_way_where_there_is_one(asks, free, expected):
    assert _search(asks, free) == expected


def test_devices_of_one_container_come_from_one_group():
    asks = _asks((4, APP, 2))
    assert _search(asks, (4, 4, 4), (0, 1, 1)) == ((1, 2),)
    assert _search(asks, (4, 4, 4), (0, 1, -1)) is None
    assert _search(asks, (4, 4), (-1, -1)) is None


def test_a_container_with_one_device_needs_no_group():
    assert _search(_asks(4), (4,), (-1,)) == ((0,),)


def test_equal_containers_are_not_tried_in_every_order():
    # Nine of 3 in eight devices of 3 to 4 each: 8! orders, one of which is enough to see that the ninth has no place.
    free = (3000, 3001, 3002, 3003, 3004, 3005, 3006, 3007)
    assert _search(_asks(*(3000,) * 8), free, steps=40) is not None
    assert _search(_asks(*(3000,) * 9), free, steps=300) is None


def test_the_search_gives_up_after_its_steps():
    assert _search(_asks(1, 1), (1, 1), steps=2) == ((0,), (1,))
    assert _search(_asks(1, 1), (1, 1), steps=1) is None
