"""Cases of the door from public bug reports, as far as the webhooks decide them."""

from __future__ import annotations

import pytest

from extender.settings import InvalidSettings, load_settings
from tests.support.pods import PREFIX
from tests.support.reviews import a_door, answered, decoded, mutated, raw_container, raw_pod, refusal

MEMORY = f"{PREFIX}gpu-memory"


@pytest.mark.parametrize(
    ("text", "mib", "words"),
    [
        ("16Gi", "16384", "16Gi is an amount of bytes and was written as 16384 (MiB)"),
        ("16384", "16384", None),
        ("5k", "5000", "5k is a count of MiB and was written as 5000 (MiB)"),
        ("8G", "7629", "8G is an amount of bytes and was written as 7629 (MiB)"),
    ],
)
def test_a1_amounts_are_rewritten_as_plain_mib_with_a_warning(text: str, mib: str, words: str | None):
    pod = raw_pod(raw_container(gpu_memory=text))
    resources = mutated(pod)["spec"]["containers"][0]["resources"]
    assert resources["limits"][MEMORY] == resources["requests"][MEMORY] == mib
    warnings = answered(a_door().mutate(decoded(pod), "ml")).get("warnings", [])
    assert warnings == ([f"{MEMORY} of container main: {words}"] if words else [])


@pytest.mark.parametrize(
    ("rows", "fraction", "field", "found", "valid"),
    [
        ({"gpu_compute": "101"}, None, "gpu-compute of container main", "101", "1 to 100 per cent"),
        ({"gpu": "3", "gpu_memory": "1000"}, None, "gpu-memory of container main", "1000", "999 or 1002"),
        *(({}, text, "gpu-fraction", text, "0.01 to 1") for text in ("NaN", "0", "-0.5", "1.5", str(2**63 + 1))),
        ({"gpu_memory": str(2**63)}, None, "gpu-memory of container main", str(2**63), "0 to 9223372036854775807"),
        ({"gpu_memory": "1.5"}, None, "gpu-memory of container main", "1.5", "a whole number"),
        ({"gpu": "-1"}, None, "gpu of container main", "-1", "0 to 9223372036854775807"),
    ],
)
def test_a2_nonsense_is_refused_with_field_value_and_range(
    rows: dict[str, str], fraction: str | None, field: str, found: str, valid: str
):
    annotations = {} if fraction is None else {f"{PREFIX}gpu-fraction": fraction}
    message = refusal(raw_pod(raw_container(**rows), annotations=annotations))
    assert f"{PREFIX}{field}: found '{found}', valid is " in message
    assert valid in message


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("gpu-arch", "gpu-architecture"),
        ("gpu-model", "gpu-product"),
        ("gpu-memory", "gpu-memory as a resource limit"),
        ("mig-profiles", "mig-profile"),
        ("gpu-policies", "gpu-policy"),
    ],
)
def test_a3_unknown_key_is_refused_with_the_nearest_one(key: str, nearest: str):
    message = refusal(raw_pod(raw_container(gpu="1"), annotations={PREFIX + key: "ampere"}))
    assert message.startswith(f"{PREFIX}{key}: found 'ampere'")
    assert PREFIX + nearest in message


@pytest.mark.parametrize(
    "name", ["NVIDIA T1000 8GB", "Tesla T4", "NVIDIA-H100-80GB-HBM3", "NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"]
)
def test_d4_product_is_understood_as_tools_and_labels_spell_it(name: str):
    pod = raw_pod(raw_container(gpu="1"), annotations={f"{PREFIX}gpu-product": name})
    assert not a_door().mutate(decoded(pod), "ml").problems


def test_d4_unknown_product_is_refused_with_the_nearest_known_ones():
    message = refusal(raw_pod(raw_container(gpu="1"), annotations={f"{PREFIX}gpu-product": "A100"}))
    assert "found 'a100'" in message
    assert "nearest are" in message
    assert "A100-SXM4-80GB" in message


def test_d9_unknown_policy_is_refused_at_admission_with_the_valid_ones():
    message = refusal(raw_pod(raw_container(gpu="1"), annotations={f"{PREFIX}gpu-policy": "latncy"}))
    assert "one of binpack, latency, night, spread; the nearest is latency" in message


def test_d9_unknown_policy_in_the_configuration_is_refused_at_start(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TANGRAM_POLICY", "latncy")
    with pytest.raises(InvalidSettings, match="valid are binpack, latency, spread"):
        load_settings()


@pytest.mark.parametrize("key", ["allocation", "devices-main"])
def test_s2_allocation_written_by_an_author_is_refused(key: str):
    assert f"annotation {PREFIX}{key}" in refusal(raw_pod(raw_container(gpu="1"), annotations={PREFIX + key: "GPU-1"}))


@pytest.mark.parametrize("value", ["all", "GPU-1", "0", "none", ""])
def test_s2_visible_devices_written_by_an_author_are_refused(value: str):
    variable = {"name": "NVIDIA_VISIBLE_DEVICES", "value": value}
    message = refusal(raw_pod(raw_container(gpu="1", env=[variable])))
    assert f"variable NVIDIA_VISIBLE_DEVICES of container main: found '{value}'" in message
