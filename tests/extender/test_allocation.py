from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.allocation import (
    Injector,
    binding_annotations,
    bound_labels,
    decode_allocation,
    device_key,
    encode_allocation,
    mps_keys,
)
from extender.errors import ExtenderError, InvalidAllocation
from scoring.errors import InvalidRequest
from scoring.request import Allocation, Share, SharingMode
from tests.support.pods import PREFIX, container, pod, shows

ONE = Allocation((("main", (Share("GPU-1", 8192, 100, SharingMode.TIME_SLICING),)),), "binpack")

shares = st.builds(
    Share, st.text(min_size=1, max_size=40), st.integers(0, 2**24), st.integers(0, 1000), st.sampled_from(SharingMode)
)
allocations = st.builds(
    lambda containers, policy: Allocation(tuple(containers.items()), policy),
    st.dictionaries(st.text(max_size=63), st.lists(shares, max_size=8).map(tuple), max_size=5),
    st.text(max_size=20),
)


def given_to(**devices: str) -> Allocation:
    return Allocation(
        tuple(
            (name, tuple(Share(uuid, 1, 1, SharingMode.TIME_SLICING) for uuid in uuids.split(",")))
            for name, uuids in devices.items()
        ),
        "binpack",
    )


def test_the_text_is_the_one_that_the_design_shows():
    assert encode_allocation(ONE) == (
        '{"v":1,"policy":"binpack","containers":{"main":[{"uuid":"GPU-1","memory_mib":8192,"compute_milli":100,'
        '"mode":"time-slicing"}]}}'
    )


class TestRoundTrip:
    """What is written is read back exactly."""

    @given(allocations)
    def test_every_allocation_survives(self, allocation: Allocation):
        assert decode_allocation(encode_allocation(allocation)) == allocation

    @given(st.text(max_size=60) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
    def test_garbage_is_a_typed_error_and_nothing_else(self, text: str):
        with pytest.raises(InvalidAllocation):
            decode_allocation(text)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param(('"v":1', '"v":2'), "$.v", id="a version to come"),
        pytest.param(('"mode":"time-slicing"', '"mode":"psi"'), "$.containers[...][0].mode", id="unknown mode"),
        pytest.param(("8192", "-1"), "$.containers[...][0].memory_mib", id="negative memory"),
        pytest.param(("100", "1001"), "$.containers[...][0].compute_milli", id="more than a device"),
        pytest.param(("100", '"1"'), "$.containers[...][0].compute_milli", id="a text for a number"),
        pytest.param(('"GPU-1"', '""'), "$.containers[...][0].uuid", id="no device"),
        pytest.param(('"policy":"binpack",', ""), "$", id="a field missing"),
    ],
)
def test_the_field_that_is_wrong_is_named(change: tuple[str, str], field: str):
    with pytest.raises(InvalidAllocation) as caught:
        decode_allocation(encode_allocation(ONE).replace(*change))
    assert caught.value.field == field
    assert caught.value.problem
    assert isinstance(caught.value, ExtenderError)


def test_deep_nesting_is_garbage_too():
    with pytest.raises(InvalidAllocation):
        decode_allocation('{"v":1,"policy":"a","x":' + "[" * 100_000)


def test_fields_that_a_later_version_may_add_are_skipped():
    assert decode_allocation(encode_allocation(ONE).replace('"v":1', '"v":1,"rack":"7"')) == ONE


class TestDeviceKeys:
    def test_a_containers_key_is_its_name(self):
        assert device_key("main") == "devices-main"

    @given(st.from_regex(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True))
    def test_every_name_gives_a_key_that_kubernetes_accepts(self, name: str):
        key = device_key(name)
        assert len(key) <= 63
        assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", key)

    def test_long_names_that_begin_alike_differ(self):
        assert device_key("a" * 62 + "b") != device_key("a" * 62 + "c")


class TestBinding:
    def test_devices_go_to_the_key_that_the_container_names(self):
        built = pod(container("main", devices_key="devices-0"))
        assert binding_annotations(built, ONE) == {
            PREFIX + "devices-0": "GPU-1",
            PREFIX + "allocation": encode_allocation(ONE),
        }

    def test_a_container_that_names_no_key_gets_its_default(self):
        assert binding_annotations(pod(container("main")), ONE)[PREFIX + "devices-main"] == "GPU-1"

    def test_each_container_of_every_kind_gets_its_own_devices_and_the_others_none(self):
        built = pod(
            container("a", devices_key="devices-a"),
            container("b", devices_key="devices-b"),
            container("c", devices_key="devices-c"),
            init=[container("load", devices_key="devices-load")],
        )
        written = binding_annotations(built, given_to(a="GPU-1,GPU-2", c="GPU-3", load="GPU-4"))
        devices = {key.removeprefix(PREFIX + "devices-"): text for key, text in written.items() if "devices-" in key}
        assert devices == {"a": "GPU-1,GPU-2", "b": "", "c": "GPU-3", "load": "GPU-4"}

    def test_keys_that_the_author_set_beforehand_are_emptied(self):
        forged = {"devices-x": "GPU-9", "allocation": "{}", "nvidia.cdi.k8s.io/container.main": "nvidia.com/gpu=all"}
        written = binding_annotations(pod(container("main", devices_key="devices-main"), annotations=forged), ONE)
        assert written == {
            PREFIX + "devices-x": "",
            PREFIX + "devices-main": "GPU-1",
            PREFIX + "allocation": encode_allocation(ONE),
            "nvidia.cdi.k8s.io/container.main": "",
        }

    def test_a_key_carried_and_named_holds_its_devices(self):
        built = pod(container("main", devices_key="devices-main"), annotations={"devices-main": "GPU-9"})
        assert binding_annotations(built, ONE)[PREFIX + "devices-main"] == "GPU-1"

    def test_a_container_cannot_read_another_ones_devices_by_naming_its_key_first(self):
        thief = container("thief", devices_key="devices-main")
        written = binding_annotations(pod(thief, container("main", devices_key="devices-0")), ONE)
        assert written[PREFIX + "devices-main"] == ""
        assert written[PREFIX + "devices-0"] == "GPU-1"

    def test_two_containers_of_one_key_are_refused(self):
        built = pod(container("a", devices_key="devices-0"), container("main", devices_key="devices-0"))
        with pytest.raises(InvalidRequest, match="NVIDIA_VISIBLE_DEVICES of container main"):
            binding_annotations(built, ONE)

    def test_variables_of_other_names_show_the_owners_devices(self):
        log = container("log") | {"env": [shows("GPUS", PREFIX + "devices-main"), shows("X", PREFIX + "devices-y")]}
        written = binding_annotations(pod(log, container("main")), ONE)
        assert written[PREFIX + "devices-main"] == "GPU-1"
        assert written[PREFIX + "devices-y"] == ""

    def test_other_annotations_are_left_alone(self):
        built = pod(container("main"), annotations={"gpu-policy": "spread", "example.org/devices-main": "x"})
        assert set(binding_annotations(built, ONE)) == {PREFIX + "allocation", PREFIX + "devices-main"}

    def test_the_nri_injector_gets_cdi_names(self):
        written = binding_annotations(pod(container("main")), given_to(main="GPU-1,MIG-2"), injector=Injector.NRI)
        assert written["nvidia.cdi.k8s.io/container.main"] == "nvidia.com/gpu=GPU-1,nvidia.com/gpu=MIG-2"

    def test_a_name_too_long_for_a_cdi_key_is_refused_there_only(self):
        name = "n" * 54
        assert binding_annotations(pod(container(name)), given_to(**{name: "GPU-1"}))
        with pytest.raises(InvalidRequest, match="53"):
            binding_annotations(pod(container(name)), given_to(**{name: "GPU-1"}), injector=Injector.NRI)

    def test_the_prefix_is_configurable(self):
        written = binding_annotations(pod(container("main")), ONE, "gpu.example.org/")
        assert set(written) == {"gpu.example.org/allocation", "gpu.example.org/devices-main"}


def mps_pod(*names: str, annotations: dict[str, str] | None = None):
    def reading(name: str):
        built = container(name, {"gpu-memory": 1}, devices_key=device_key(name))
        threads, memory = mps_keys(name)
        built["env"] += [
            shows("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", PREFIX + threads),
            shows("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", PREFIX + memory),
        ]
        return built

    return pod(*(reading(name) for name in names), annotations=annotations)


def test_mps_limits_are_written_for_the_container_that_reads_them():
    shares = (Share("GPU-1", 8192, 257, SharingMode.MPS), Share("GPU-2", 8000, 250, SharingMode.MPS))
    written = binding_annotations(mps_pod("main"), Allocation((("main", shares),), "binpack"))
    assert written[PREFIX + "mps-threads-main"] == "25"
    assert written[PREFIX + "mps-memory-main"] == "0=8000M,1=8000M"


def test_mps_limits_are_at_least_one_per_cent():
    shares = (Share("GPU-1", 10, 3, SharingMode.MPS),)
    written = binding_annotations(mps_pod("main"), Allocation((("main", shares),), "binpack"))
    assert written[PREFIX + "mps-threads-main"] == "1"


def test_mps_keys_of_others_and_forged_ones_are_emptied():
    built = mps_pod("main", "other", annotations={"mps-threads-elsewhere": "100"})
    shares = (Share("GPU-1", 10, 500, SharingMode.MPS),)
    written = binding_annotations(built, Allocation((("main", shares),), "binpack"))
    assert written[PREFIX + "mps-threads-other"] == written[PREFIX + "mps-memory-other"] == ""
    assert written[PREFIX + "mps-threads-elsewhere"] == ""


def test_pods_that_read_no_mps_limits_are_given_none():
    written = binding_annotations(pod(container(rows={"gpu": 1})), ONE)
    assert not [key for key in written if "mps-" in key]


@given(st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=63))
def test_mps_keys_are_valid_annotation_names(name: str):
    assert all(len(key) <= 63 for key in mps_keys(name))
    assert len({*mps_keys(name), device_key(name)}) == 3


def test_binding_that_carries_an_allocation_is_labelled_under_the_same_prefix():
    assert bound_labels({f"{PREFIX}allocation": "{}", f"{PREFIX}devices-main": "GPU-1"}) == {f"{PREFIX}bound": "true"}
    assert bound_labels({"gpu.example/allocation": "{}"}) == {"gpu.example/bound": "true"}


def test_binding_of_a_pod_without_devices_of_ours_is_not_labelled():
    assert bound_labels({"example.com/note": "x"}) == {}
