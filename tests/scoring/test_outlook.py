from __future__ import annotations

import numpy as np
import pytest

from scoring.conditions import parse_conditions
from scoring.outlook import MOST_LEVELS, Outlook
from scoring.pipeline import evaluate
from scoring.request import SharingMode
from scoring.workload import Mix, Shape
from tests.support.fleets import A100, BINPACK, MIG_10GB, T4, asks, fleet, gpu, share

MIG = frozenset({SharingMode.MIG})
EXCLUSIVE = frozenset({SharingMode.EXCLUSIVE})


def _table(*shapes: Shape, kind=T4) -> np.ndarray:
    """Return what of each rest is unusable on a node with CPU in plenty."""
    outlook = Outlook.of(Mix(tuple((shape, 1 / len(shapes)) for shape in shapes)), (kind,))
    assert outlook.unusable is not None
    return outlook.unusable[1, -1]


@pytest.mark.parametrize(
    ("shape", "kind", "need"),
    [
        pytest.param(Shape(1, 8_192), T4, 500, id="memory"),  # 1000 * 8192 / 16384
        pytest.param(Shape(1, 8_193), T4, 501, id="memory, rounded up"),
        pytest.param(Shape(1, 8_192, 700), T4, 700, id="the larger dimension"),
        pytest.param(Shape(1, None, 1000), T4, 1000, id="whole"),
        pytest.param(Shape(1, 100, None, sharing=EXCLUSIVE), T4, 1000, id="exclusive"),
        pytest.param(Shape(1, 20_000), T4, None, id="too large"),
        pytest.param(Shape(0), T4, None, id="no GPU"),
        pytest.param(
            Shape(1, 1, conditions=parse_conditions({"tangram.dev/gpu-product": "L4"})), T4, None, id="another kind"
        ),
        pytest.param(Shape(1, 100, sharing=MIG), T4, None, id="instance asked, device there"),
        pytest.param(Shape(1, 100), MIG_10GB, None, id="share asked, instance there"),
        pytest.param(Shape(1, 100, sharing=MIG), MIG_10GB, 1000, id="instance is taken whole"),
        pytest.param(Shape(1, 10_000, sharing=MIG), MIG_10GB, None, id="instance too small"),
        pytest.param(Shape(1, None, 143, sharing=MIG), MIG_10GB, None, id="instance with too little compute"),
        pytest.param(Shape(1, None, 1000, sharing=MIG), MIG_10GB, 1000, id="any instance"),
    ],
)
def test_a_rest_below_the_need_is_unusable(shape, kind, need):
    rests = np.arange(1001)
    wanted = rests if need is None else np.where(rests < need, rests, 0)
    assert _table(shape, kind=kind) == pytest.approx(wanted, abs=1e-3)


def test_shapes_weigh_with_their_probability():
    # A rest of 400 is of no use to one of the two shapes: 400 / 2.
    assert _table(Shape(1, None, 300), Shape(1, None, 500))[400] == pytest.approx(200)


def test_a_node_short_of_cpu_is_of_no_use():
    outlook = Outlook.of(
        Mix(((Shape(1, None, 100, cpu_milli=4_000), 0.5), (Shape(1, None, 100, cpu_milli=1_000), 0.5))), (T4,)
    )
    assert outlook.cpu_level(np.array([0, 999, 1_000, 3_999, 4_000, 10**6])).tolist() == [0, 0, 1, 1, 2, 2]
    assert outlook.unusable is not None
    assert outlook.unusable[1, :, 600].tolist() == pytest.approx([600, 300, 0])


def test_several_devices_are_counted_apart():
    outlook = Outlook.of(Mix(((Shape(2, None, 1000), 0.25), (Shape(1, None, 1000), 0.75))), (T4, MIG_10GB))
    assert list(outlook.several) == [2]
    assert outlook.several[2][:, 1].tolist() == [0, 0.25, 0]


@pytest.mark.parametrize(
    ("mix", "kinds"), [(Mix(), (T4,)), (Mix(((Shape(1, 1), 1.0),)), ())], ids=["no pod", "no device"]
)
def test_nothing_known_is_an_empty_outlook(mix, kinds):
    assert not Outlook.of(mix, kinds).knows_demand
    assert Outlook.of(mix, kinds).known_kinds(np.array([-1, 0, 3], np.int16)).tolist() == [0, 0, 0]


def test_an_outlook_older_than_a_kind_of_device_is_neutral_about_it():
    outlook = Outlook.of(Mix(((Shape(1, 8_192), 1.0),)), (T4,))
    assert outlook.knows_demand
    assert outlook.known_kinds(np.array([-1, 0, 1], np.int16)).tolist() == [0, 1, 0]
    of = fleet(a=[gpu(T4)], b=[gpu(A100)])
    assert (evaluate(asks(share(4_096)), of, BINPACK, outlook).score > 0).all()


def test_cpu_asks_of_every_size_are_told_apart_within_a_bound():
    shapes = tuple((Shape(1, 1024, cpu_milli=100 * number), 1 / 500) for number in range(1, 501))
    outlook = Outlook.of(Mix(shapes), (T4, A100))
    assert outlook.unusable is not None
    assert outlook.unusable.shape == (3, MOST_LEVELS + 1, 1001)
    # With CPU in plenty every pod fits, so that a whole rest is of use; with none, none of it is.
    assert outlook.unusable[1, -1, 1000] == pytest.approx(0, abs=0.1)
    assert outlook.unusable[1, 0, 1000] == 1000
    assert outlook.cpu_level(np.array([50_000])) == MOST_LEVELS
