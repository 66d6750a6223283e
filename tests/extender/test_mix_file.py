from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.evaluations import MIX_FILE_PODS, Evaluations
from extender.holdings import ObservedPod
from extender.mix_file import InvalidMix, decode_mix, encode_mix, read_mix
from extender.settings import Settings
from scoring.conditions import parse_conditions
from scoring.request import SharingMode
from scoring.workload import Mix, MixHistogram, Shape
from tests.support.builders import identity, share_request
from tests.support.fleet_strategies import CONDITIONS

_SHAPES = st.one_of(
    st.builds(Shape, cpu_milli=st.integers(0, 128_000)),
    st.builds(
        Shape,
        count=st.integers(1, 8),
        memory_mib=st.integers(1, 80_000),
        compute_milli=st.none() | st.integers(1, 1000),
        cpu_milli=st.integers(0, 128_000),
        conditions=st.sampled_from(CONDITIONS).map(parse_conditions),
        sharing=st.frozensets(st.sampled_from(SharingMode), min_size=1),
    ),
)


@settings(max_examples=60, deadline=None)
@given(weights=st.dictionaries(_SHAPES, st.integers(1, 100), max_size=6))
def test_a_mix_comes_back_from_its_file(weights):
    total = sum(weights.values())
    mix = Mix(tuple((shape, weight / total) for shape, weight in weights.items()))
    found = dict(decode_mix(encode_mix(mix)).shapes)
    assert found.keys() == weights.keys()
    assert all(found[shape] == pytest.approx(weight / total) for shape, weight in weights.items())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"nothing", "malformed"),
        (b"{}", "version"),
        (b'{"version": 2, "shapes": []}', "version: found 2, valid is 1"),
        (b'{"version": 1, "shapes": [{"weight": 0}]}', "shapes[0].weight"),
        (b'{"version": 1, "shapes": [{"weight": 1, "gpus": 2}]}', "gpus"),
        (b'{"version": 1, "shapes": [{"weight": 1, "devices": 1}]}', "shapes[0]: found neither memoryMib"),
        (
            b'{"version": 1, "shapes": [{"weight": 1, "conditions": {"gpu-architecture": "old"}}]}',
            "shapes[0].conditions: gpu-architecture: found 'old'",
        ),
        (b'{"version": 1, "shapes": [{"weight": 1, "conditions": {"gpu-size": "1"}}]}', "found 'gpu-size', valid are"),
    ],
)
def test_what_is_wrong_is_named(text, said):
    with pytest.raises(InvalidMix, match=None) as told:
        decode_mix(text)
    assert said in str(told.value)


def test_a_file_that_is_not_there_stops_the_start_by_its_name(tmp_path):
    with pytest.raises(InvalidMix, match=r"missing\.json"):
        read_mix(tmp_path / "missing.json")
    with pytest.raises(ValueError, match="mix_file"):
        Settings(mix_file=str(tmp_path / "missing.json"))


def test_an_extender_starts_with_the_mix_of_its_file(tmp_path, fleet_of_one):
    file = tmp_path / "mix.json"
    file.write_bytes(encode_mix(Mix(((Shape(1, 4_096), 1.0),))))
    evaluations = Evaluations(Settings(mix_file=str(file)))
    assert evaluations.due(fleet_of_one) == Mix(((Shape(1, 4_096), 1.0),))


def test_live_pods_outweigh_the_file_in_time(tmp_path):
    histogram = MixHistogram()
    histogram.expect(Mix(((Shape(1, 4_096), 1.0),)), MIX_FILE_PODS)
    for _ in range(3 * MIX_FILE_PODS):
        histogram.note(share_request(8_192))
    assert dict(histogram.mix().shapes)[Shape(1, 8_192)] > 0.75


def test_pods_that_run_at_the_start_are_learned_once():
    evaluations = Evaluations(Settings())
    running = ObservedPod(identity("a"), node="n1", request=share_request(4_096))
    for _ in range(3):
        evaluations.remember(running)
    evaluations.remember(ObservedPod(identity("b"), node="n1", request=share_request(8_192)))
    evaluations.remember(ObservedPod(identity("waits"), request=share_request(2_048)))
    evaluations.remember(ObservedPod(identity("over"), node="n1", request=share_request(2_048), is_over=True))
    assert {shape.memory_mib: weight for shape, weight in evaluations.mix.shapes} == pytest.approx(
        {4_096: 0.5, 8_192: 0.5}, rel=1e-3
    )


@pytest.fixture
def fleet_of_one():
    from tests.support.fleets import fleet, gpu

    return fleet(a=[gpu()])
