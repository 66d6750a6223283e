from __future__ import annotations

import math

import pytest

from scoring.request import ContainerAsk, PodRequest
from scoring.workload import Mix, MixHistogram, Shape, shape_of
from tests.support.fleets import asks, share, whole


def _pod(mib: int) -> PodRequest:
    return PodRequest((ContainerAsk("main", memory_mib=mib),))


@pytest.mark.parametrize(
    ("request_", "shape"),
    [
        pytest.param(asks(cpu_milli=500), Shape(cpu_milli=500), id="no GPU"),
        pytest.param(asks(share(100), cpu_milli=5), Shape(1, 100, None, 5), id="one share"),
        pytest.param(asks(share(900), whole(name="b")), Shape(1, None, 1000), id="a whole device is the largest"),
        pytest.param(asks(share(9), share(5, count=2, name="b")), Shape(2, 5), id="more devices"),
        pytest.param(asks(share(9, 100), share(5, 200, name="b")), Shape(1, 5, 200), id="more compute"),
    ],
)
def test_a_pods_largest_ask_is_its_shape(request_, shape):
    assert shape_of(request_) == shape


def test_a_histogram_that_saw_nothing_expects_nothing():
    assert MixHistogram().mix() == Mix()


def test_probabilities_are_the_shares_of_the_pods_seen():
    histogram = MixHistogram(half_life_pods=10**9)
    for mib in (1, 2, 2, 2):
        histogram.note(_pod(mib))
    (first, often), (second, seldom) = histogram.mix().shapes
    assert (first.memory_mib, second.memory_mib) == (2, 1)
    assert math.isclose(often, 0.75, abs_tol=1e-6)
    assert math.isclose(often + seldom, 1)


def test_older_pods_fade_with_the_half_life():
    histogram = MixHistogram(half_life_pods=4)
    histogram.note(_pod(1))
    for _ in range(4):
        histogram.note(_pod(2))
    weights = {shape.memory_mib: weight for shape, weight in histogram.mix().shapes}
    # Each pod counts 2^(1/4) more than the one before: 1 against the sum of 2^(1/4), 2^(2/4), 2^(3/4) and 2.
    newer = sum(2 ** (step / 4) for step in (1, 2, 3, 4))
    assert math.isclose(weights[1], 1 / (1 + newer))


def test_the_rarest_shape_makes_room():
    histogram = MixHistogram(limit=2)
    for mib in (1, 1, 2, 3):
        histogram.note(_pod(mib))
    assert {shape.memory_mib for shape, _ in histogram.mix().shapes} == {1, 3}


def test_weights_stay_finite_however_many_pods_come():
    histogram = MixHistogram(half_life_pods=1)
    for number in range(5000):
        histogram.note(_pod(1 + number % 2))
    weights = {shape.memory_mib: weight for shape, weight in histogram.mix().shapes}
    # With a half-life of one pod the alternating weights are 1/2 + 1/8 + ... = 2/3 and 1/4 + 1/16 + ... = 1/3.
    assert math.isclose(weights[2], 2 / 3, rel_tol=1e-6)


def test_what_has_faded_to_nothing_is_left_out():
    histogram = MixHistogram(half_life_pods=1)
    histogram.note(_pod(1))
    for _ in range(1200):
        histogram.note(_pod(2))
    assert [(shape.memory_mib, weight) for shape, weight in histogram.mix().shapes] == [(2, 1.0)]


def test_typical_shapes_are_the_most_frequent_ones_renormalised():
    mix = Mix(((Shape(1, 1), 0.5), (Shape(1, 2), 0.25), (Shape(1, 3), 0.25)))
    assert mix.covering(0.6).shapes == ((Shape(1, 1), 0.5 / 0.75), (Shape(1, 2), 0.25 / 0.75))
    assert [shape for shape, _ in mix.covering(1.0).shapes] == [shape for shape, _ in mix.shapes]
    assert Mix().covering(0.95) == Mix()
