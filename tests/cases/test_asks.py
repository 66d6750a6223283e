"""Cases A of the public bug reports: what a pod asks, as far as reading it goes."""

from __future__ import annotations

import pytest

from extender.allocation import binding_annotations
from extender.podspec import effective_totals, parse_problems, pod_request
from extender.quantity import memory_amount
from scoring.errors import InvalidRequest
from scoring.request import Allocation, Share, SharingMode
from tests.support.pods import PREFIX, container, pod

GIB = 1024


@pytest.mark.parametrize(("text", "mib"), [("16Gi", 16_384), ("16384", 16_384), ("5k", 5_000), ("8G", 7_629)])
def test_a1_an_amount_of_memory_is_read_the_same_with_and_without_the_webhook(text: str, mib: int):
    (ask,) = pod_request(pod(container(rows={"gpu-memory": text}))).containers
    assert ask.memory_mib == mib
    assert memory_amount(text, "gpu-memory").needs_rewrite is (text in ("16Gi", "8G"))


@pytest.mark.parametrize(
    ("rows", "annotations", "field", "found", "valid"),
    [
        pytest.param({"gpu-compute": 101}, {}, "gpu-compute of container main", "101", "1 to 100", id="compute 101"),
        pytest.param(
            {"gpu": 3, "gpu-memory": 1000}, {}, "gpu-memory of container main", "1000", "999 or 1002", id="uneven"
        ),
        *(
            pytest.param({}, {"gpu-fraction": text}, "gpu-fraction", text, "0.01 to 1", id=f"fraction {text}")
            for text in ("NaN", "0", "-0.5", "1.5", "9223372036854775809")
        ),
        pytest.param(
            {"gpu-memory": "9223372036854775808"},
            {},
            "gpu-memory of container main",
            "9223372036854775808",
            "0 to 9223372036854775807",
            id="above 2^63",
        ),
    ],
)
def test_a2_nonsense_that_came_past_admission_is_refused_with_field_value_and_range(
    rows: dict[str, str | int], annotations: dict[str, str], field: str, found: str, valid: str
):
    built = pod(container(rows=rows), annotations=annotations)
    (problem,) = parse_problems(built)
    assert (problem.field, problem.found) == (PREFIX + field, found)
    assert valid in problem.valid
    with pytest.raises(InvalidRequest):
        pod_request(built)


def test_a3_an_unknown_key_is_refused_with_the_nearest_valid_one():
    (problem,) = parse_problems(pod(container(rows={"gpu": 1}), annotations={"gpu-arch": "ampere"}))
    assert problem.field == PREFIX + "gpu-arch"
    assert PREFIX + "gpu-architecture" in problem.valid


def test_a4_an_init_container_and_an_app_container_count_the_larger_one():
    built = pod(
        container("serve", {"gpu-memory": f"{10}Gi"}),
        init=[container("load", {"gpu-memory": f"{20}Gi"})],
    )
    assert effective_totals(pod_request(built)).memory_mib == 20 * GIB


def test_a5_a_sidecar_counts_beside_the_app_container():
    built = pod(
        container("serve", {"gpu-memory": "10Gi"}),
        init=[container("proxy", {"gpu-memory": "10Gi"}, restart_policy="Always")],
    )
    assert effective_totals(pod_request(built)).memory_mib == 20 * GIB


def test_a6_a_container_without_a_gpu_between_two_others_takes_nobodys_device():
    built = pod(
        container("first", {"gpu-memory": 1000}, devices_key="devices-first"),
        container("middle", devices_key="devices-middle"),
        container("last", {"gpu-memory": 2000}, devices_key="devices-last"),
    )
    assert [(ask.name, ask.memory_mib) for ask in pod_request(built).containers] == [("first", 1000), ("last", 2000)]
    shares = [
        (name, (Share(uuid, mib, 10, SharingMode.TIME_SLICING),))
        for name, uuid, mib in (("first", "GPU-1", 1000), ("last", "GPU-2", 2000))
    ]
    written = binding_annotations(built, Allocation(tuple(shares), "binpack"))
    assert {key: written[f"{PREFIX}devices-{key}"] for key in ("first", "middle", "last")} == {
        "first": "GPU-1",
        "middle": "",
        "last": "GPU-2",
    }
