"""What the door writes into pods, and what it leaves alone."""

from __future__ import annotations

from typing import Any

import pytest

from extender.allocation import Injector
from extender.workloads import WORKLOADS
from tests.support.fleets import A100, T4, fleet, gpu
from tests.support.pods import PREFIX
from tests.support.reviews import VOID, a_door, decoded, mutated, raw_container, raw_pod, shown

MANAGED = {f"{PREFIX}managed": "true"}


def rows(pod: dict[str, Any], index: int = 0) -> dict[str, str]:
    resources = pod["spec"]["containers"][index]["resources"]
    assert resources["limits"] == resources["requests"]
    return {name.removeprefix(PREFIX): amount for name, amount in resources["limits"].items()}


def test_pod_that_asks_gets_scheduler_runtime_class_label_and_variable():
    changed = mutated(raw_pod(raw_container(gpu_memory="8192")))
    assert changed["spec"]["schedulerName"] == "tangram-scheduler"
    assert changed["spec"]["runtimeClassName"] == "nvidia"
    assert changed["metadata"]["labels"] == MANAGED
    assert changed["spec"]["containers"][0]["env"] == [shown("main")]
    assert rows(changed) == {"gpu-memory": "8192"}


def test_existing_labels_and_variables_stay():
    name = {"name": "MODE", "value": "fast"}
    changed = mutated(raw_pod(raw_container(gpu="1", env=[name]), labels={"app": "x"}))
    assert changed["metadata"]["labels"] == {"app": "x", **MANAGED}
    assert changed["spec"]["containers"][0]["env"] == [name, shown("main")]


def test_every_kind_of_container_is_told_what_it_sees():
    sidecar = raw_container("proxy", gpu_memory="10") | {"restartPolicy": "Always"}
    changed = mutated(
        raw_pod(
            raw_container("main", gpu_memory="10"),
            raw_container("log", env=[]),
            init=(raw_container("fetch"), raw_container("warm", gpu_memory="10"), sidecar),
        )
    )
    variables = {
        each["name"]: each["env"] for each in changed["spec"]["initContainers"] + changed["spec"]["containers"]
    }
    assert variables == {
        "fetch": [VOID],
        "warm": [shown("warm")],
        "proxy": [shown("proxy")],
        "main": [shown("main")],
        "log": [VOID],
    }


def test_whole_devices_are_completed_by_their_compute():
    assert rows(mutated(raw_pod(raw_container(gpu="2")))) == {"gpu": "2", "gpu-compute": "200"}


def test_memory_beside_a_count_is_not_completed():
    assert rows(mutated(raw_pod(raw_container(gpu="2", gpu_memory="4000")))) == {"gpu": "2", "gpu-memory": "4000"}


def test_fraction_becomes_compute_of_the_only_container():
    assert rows(mutated(raw_pod(raw_container(), annotations={f"{PREFIX}gpu-fraction": "0.25"}))) == {
        "gpu-compute": "25"
    }


def test_fraction_goes_to_the_named_container_and_counts_for_each_device():
    pod = raw_pod(
        raw_container("log"),
        raw_container("main", gpu="2"),
        annotations={f"{PREFIX}gpu-fraction": "0.5", f"{PREFIX}gpu-container": "main"},
    )
    changed = mutated(pod)
    assert rows(changed, 1) == {"gpu": "2", "gpu-compute": "100"}
    assert changed["spec"]["containers"][0]["env"] == [VOID]


def test_limits_left_out_become_the_requests():
    container = raw_container()
    container["resources"] = {"requests": {f"{PREFIX}gpu-memory": "8192", "cpu": "1"}}
    resources = mutated(raw_pod(container))["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {f"{PREFIX}gpu-memory": "8192"}
    assert resources["requests"] == {f"{PREFIX}gpu-memory": "8192", "cpu": "1"}


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_preset_is_written_out(workload: str):
    pod = raw_pod(raw_container(gpu="1"), annotations={f"{PREFIX}workload": workload})
    written = {PREFIX + key: text for key, text in WORKLOADS[workload].items()}
    assert mutated(pod)["metadata"]["annotations"] == {f"{PREFIX}workload": workload, **written}


def test_rows_of_the_author_win_over_the_preset():
    marks = {f"{PREFIX}workload": "inference", f"{PREFIX}gpu-policy": "night"}
    written = mutated(raw_pod(raw_container(gpu="1"), annotations=marks))["metadata"]["annotations"]
    assert written[f"{PREFIX}gpu-policy"] == "night"
    assert written[f"{PREFIX}gpu-prefer"] == WORKLOADS["inference"]["gpu-prefer"]


def test_mps_limits_are_shown_only_to_those_who_ask_for_mps():
    marks = {f"{PREFIX}gpu-sharing": "mps"}
    pod = raw_pod(raw_container(gpu_memory="10"), raw_container("log"), annotations=marks)
    main, log = mutated(pod)["spec"]["containers"]
    assert main["env"] == [
        shown("main"),
        shown("main", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "mps-threads-main"),
        shown("main", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "mps-memory-main"),
        {"name": "CUDA_MPS_PIPE_DIRECTORY", "value": "/run/tangram/mps/$(NVIDIA_VISIBLE_DEVICES)/pipe"},
    ]
    assert log["env"] == [VOID]


def test_nri_injects_instead_of_the_environment():
    changed = mutated(raw_pod(raw_container(gpu="1"), raw_container("log")), a_door(injector=Injector.NRI))
    assert "runtimeClassName" not in changed["spec"]
    assert not any("env" in container for container in changed["spec"]["containers"])
    assert changed["metadata"]["labels"] == MANAGED


def test_accepted_scheduler_and_runtime_class_of_the_author_stay():
    pod = raw_pod(raw_container(gpu="1"), schedulerName="night-shift", runtimeClassName="nvidia-cdi")
    changed = mutated(pod, a_door(other_schedulers=("night-shift",)))
    assert changed["spec"]["schedulerName"] == "night-shift"
    assert changed["spec"]["runtimeClassName"] == "nvidia-cdi"


def test_pods_stay_with_the_default_scheduler_where_it_is_the_one_that_calls_us():
    changed = mutated(raw_pod(raw_container(gpu="1")), a_door(scheduler_name="default-scheduler"))
    assert changed["spec"]["schedulerName"] == "default-scheduler"


def test_no_runtime_class_is_named_where_it_is_the_default_of_the_nodes():
    assert "runtimeClassName" not in mutated(raw_pod(raw_container(gpu="1")), a_door(runtime_class=""))["spec"]


def test_pod_of_the_device_plugin_gets_scheduler_and_conditions_only():
    container = raw_container()
    container["resources"] = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    pod = raw_pod(container, annotations={f"{PREFIX}workload": "analytics"})
    changed = mutated(pod)
    assert changed["spec"] == pod["spec"] | {"schedulerName": "tangram-scheduler"}
    assert changed["metadata"]["annotations"][f"{PREFIX}gpu-architecture"] == ">=volta"
    assert "labels" not in changed["metadata"]
    assert mutated(pod, a_door(plugin_pods=False)) == pod


def test_plugin_pod_with_a_scheduler_of_its_own_stays_with_it():
    container = raw_container()
    container["resources"] = {"limits": {"nvidia.com/mig-1g.10gb": "1"}}
    pod = raw_pod(container, schedulerName="volcano")
    assert mutated(pod) == pod


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(raw_pod(raw_container()), id="plain"),
        pytest.param(raw_pod(raw_container(gpu="0")), id="asks for zero"),
        pytest.param(
            raw_pod(raw_container(), annotations={f"{PREFIX}gpu-arch": "x"}), id="an annotation without effect"
        ),
        pytest.param(raw_pod(raw_container(env=[VOID]), schedulerName="volcano"), id="another scheduler"),
    ],
)
def test_pod_without_gpu_is_left_alone(pod: dict[str, Any]):
    assert mutated(pod) == pod
    assert not a_door().validate(decoded(pod)).problems


def test_every_pod_of_a_routed_namespace_is_given_to_our_scheduler_and_no_more():
    door = a_door(routed_namespaces=("batch",))
    pod = raw_pod(raw_container())
    assert mutated(pod, door, "batch")["spec"] == pod["spec"] | {"schedulerName": "tangram-scheduler"}
    assert mutated(pod, door, "web") == pod


def test_routing_leaves_pods_with_a_scheduler_of_their_own():
    pod = raw_pod(raw_container(), schedulerName="volcano")
    assert mutated(pod, a_door(routed_namespaces=("batch",)), "batch") == pod


def test_pods_that_tolerate_a_routed_taint_by_name_are_given_to_our_scheduler():
    door = a_door(routed_taints=("nvidia.com/gpu",))
    pod = raw_pod(raw_container(), tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists"}])
    assert mutated(pod, door)["spec"]["schedulerName"] == "tangram-scheduler"
    everywhere = raw_pod(raw_container(), tolerations=[{"operator": "Exists"}])
    assert mutated(everywhere, door) == everywhere


def test_pod_of_a_job_is_treated_like_any_other():
    pod = raw_pod(raw_container(gpu="1"))
    pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "night", "uid": "u", "controller": True}]
    changed = mutated(pod)
    assert changed["metadata"]["ownerReferences"] == pod["metadata"]["ownerReferences"]
    assert changed["metadata"]["labels"] == MANAGED


def test_request_that_no_known_node_could_hold_is_warned_of_and_not_refused():
    door = a_door(fleet(a=[gpu(T4), gpu(T4)], b=[gpu(A100)]))
    opinion = door.validate(decoded(mutated(raw_pod(raw_container(gpu_memory="90000")))))
    assert opinion.problems == ()
    (warning,) = opinion.warnings
    assert warning == (
        "container main fits no node known today: a node has at most 0 of them that are large enough, 1 are asked"
    )


@pytest.mark.parametrize(
    ("container", "annotations", "words"),
    [
        ({"gpu": "3"}, {}, "at most 2 GPUs, 3 are asked"),
        ({"gpu": "2"}, {"gpu-product": "A100*"}, "at most 1 GPUs that meet the pod's conditions, 2 are asked"),
        ({"gpu_memory": "10"}, {"gpu-sharing": "mps"}, "at most 0 of them with the kind of sharing asked, 1 are asked"),
    ],
)
def test_warning_says_what_is_short(container: dict[str, str], annotations: dict[str, str], words: str):
    door = a_door(fleet(a=[gpu(T4), gpu(T4)], b=[gpu(A100)]))
    marks = {PREFIX + key: text for key, text in annotations.items()}
    (warning,) = door.validate(decoded(raw_pod(raw_container(**container), annotations=marks))).warnings
    assert words in warning


@pytest.mark.parametrize("nodes", [{}, {"a": [gpu(A100, free_mib=0)]}], ids=["no fleet yet", "full but large enough"])
def test_no_warning_where_a_node_could_hold_it_or_none_is_known(nodes: dict[str, Any]):
    assert a_door(fleet(**nodes)).validate(decoded(raw_pod(raw_container(gpu_memory="60000")))).warnings == ()


def test_preference_for_an_unknown_product_is_warned_of():
    pod = raw_pod(raw_container(gpu="1"), annotations={f"{PREFIX}gpu-prefer": "l4=3,t1000000=1"})
    (warning,) = a_door().validate(decoded(pod)).warnings
    assert "t1000000" in warning
