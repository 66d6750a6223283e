"""Every manifest and every annotation in the user guide is accepted at the door as it stands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from extender.podspec import pod_request
from tests.support.pods import PREFIX
from tests.support.reviews import a_door, decoded, mutated, raw_container, raw_pod, refusal

GUIDE = (Path(__file__).parents[2] / "docs" / "user-guide.md").read_text(encoding="utf-8")
MANIFESTS = [yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)]
KINDS_OF_WORK = {"inference", "training", "hpc", "interactive", "analytics", "rendering", "ci"}


def as_the_api_server_sends_it(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the pod of a manifest with quantities as text."""
    pod = manifest if manifest["kind"] == "Pod" else manifest["spec"]["template"]
    built = raw_pod(annotations=pod["metadata"]["annotations"], **{**pod["spec"], "containers": []})
    for container in pod["spec"]["containers"]:
        limits = {name: str(amount) for name, amount in container.get("resources", {}).get("limits", {}).items()}
        built["spec"]["containers"].append(container | {"resources": {"limits": limits, "requests": dict(limits)}})
    return built


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: manifest["metadata"]["name"])
def test_manifest_of_the_guide_is_accepted(manifest: dict[str, Any]):
    pod = as_the_api_server_sends_it(manifest)
    changed = mutated(pod)
    assert changed["metadata"]["labels"][f"{PREFIX}managed"] == "true"
    assert a_door().validate(decoded(changed)).problems == ()


def test_guide_has_a_pod_for_each_kind_of_work():
    pods = [as_the_api_server_sends_it(manifest) for manifest in MANIFESTS]
    assert {pod["metadata"]["annotations"].get(f"{PREFIX}workload", "inference") for pod in pods} == KINDS_OF_WORK
    assert len(MANIFESTS) >= 9


def test_annotations_of_the_migration_tables_are_accepted():
    quoted = re.findall(rf'`{re.escape(PREFIX)}([a-z-]+): "?([^"`]*)"?`', GUIDE)
    annotations = [(key, text) for key, text in quoted if key not in ("gpu", "gpu-memory", "gpu-compute")]
    assert len(annotations) >= 12
    for key, text in annotations:
        if "…" in text:
            continue
        pod = raw_pod(raw_container(gpu_compute="25") if key != "gpu-fraction" else raw_container())
        pod["metadata"]["annotations"] = {PREFIX + key: text}
        assert not a_door().mutate(decoded(pod), "ml").problems, (key, text)


def test_mig_profile_beside_a_count_is_one_instance():
    pod = raw_pod(raw_container(gpu="1"), annotations={f"{PREFIX}mig-profile": "1g.10gb"})
    (ask,) = pod_request(decoded(mutated(pod))).containers
    assert ask.count == 1


@pytest.mark.parametrize(
    "pod",
    [
        raw_pod(raw_container(gpu="1"), runtimeClassName="kata"),
        raw_pod(raw_container(gpu="1"), schedulerName="volcano"),
        raw_pod(raw_container(gpu="1"), nodeName="a"),
    ],
)
def test_what_the_guide_calls_refused_is_refused(pod: dict[str, Any]):
    assert refusal(pod)
