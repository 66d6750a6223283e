from __future__ import annotations

import pytest

from scoring.request import ContainerAsk, PluginAsk, PodRequest, SharingMode


@pytest.mark.parametrize("amounts", [{"count": 0, "memory_mib": 1}, {}], ids=["no device", "no amount"])
def test_an_ask_has_a_device_and_an_amount(amounts):
    with pytest.raises(ValueError, match="container main: an ask has at least one device and at least one amount"):
        ContainerAsk("main", **amounts)


@pytest.mark.parametrize(
    ("memory_mib", "compute_milli", "is_whole"),
    [(None, 1000, True), (None, 999, False), (1, 1000, False), (1, None, False)],
)
def test_all_compute_with_memory_following_is_a_whole_device(memory_mib, compute_milli, is_whole):
    assert ContainerAsk("main", 1, memory_mib, compute_milli).is_whole is is_whole


def test_equal_requests_are_one_key():
    one, other = (PodRequest((ContainerAsk("main", memory_mib=1),)) for _ in range(2))
    assert {one: 1}[other] == 1


def test_a_pod_asks_gpu_through_us_or_through_the_plugin():
    assert not PodRequest().asks_gpu
    assert PodRequest((ContainerAsk("main", memory_mib=1),)).asks_gpu
    assert PodRequest(plugin=(PluginAsk("nvidia.com/gpu", 1),)).asks_gpu


def test_exclusive_is_what_accepts_nothing_else():
    assert PodRequest(sharing=frozenset({SharingMode.EXCLUSIVE})).is_exclusive
    assert not PodRequest(sharing=frozenset({SharingMode.EXCLUSIVE, SharingMode.MIG})).is_exclusive
