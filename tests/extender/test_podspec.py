from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender import podspec
from extender.podspec import MAX_CONTAINERS, effective_totals, parse_problems, pod_request
from extender.workloads import WORKLOADS
from scoring.errors import InvalidRequest
from scoring.registry import PROFILES
from scoring.request import ContainerAsk, ContainerKind, PluginAsk, SharingMode, Topology
from tests.support.pods import PREFIX, container, pod, shows


def only_ask(rows: dict[str, str | int]):
    (ask,) = pod_request(pod(container(rows=rows))).containers
    return ask


@pytest.mark.parametrize(
    ("rows", "count", "memory_mib", "compute_milli"),
    [
        pytest.param({"gpu": 2}, 2, None, 1000, id="devices alone are whole"),
        pytest.param({"gpu": 2, "gpu-compute": 200}, 2, None, 1000, id="as the webhook completes whole devices"),
        pytest.param({"gpu-compute": 100}, 1, None, 1000, id="all compute of the one device implied"),
        pytest.param({"gpu-memory": 8192}, 1, 8192, None, id="memory alone, compute follows"),
        pytest.param({"gpu-compute": 50}, 1, None, 500, id="compute alone, memory follows"),
        pytest.param({"gpu": 2, "gpu-memory": "16Gi", "gpu-compute": 75}, 2, 8192, 375, id="totals split evenly"),
        pytest.param({"gpu": 1, "gpu-memory": 16384, "gpu-compute": 100}, 1, 16384, 1000, id="both named"),
    ],
)
def test_rows_are_totals_over_the_containers_devices(
    rows: dict[str, str | int], count: int, memory_mib: int | None, compute_milli: int | None
):
    assert only_ask(rows) == ContainerAsk("main", count, memory_mib, compute_milli)


@pytest.mark.parametrize(
    ("rows", "row", "found", "valid"),
    [
        pytest.param({"gpu-compute": 101}, "gpu-compute", "101", "1 to 100 per cent on 1 device", id="over one device"),
        pytest.param({"gpu": 2, "gpu-compute": 201}, "gpu-compute", "201", "1 to 200", id="over two devices"),
        pytest.param({"gpu": 3, "gpu-memory": 1000}, "gpu-memory", "1000", "999 or 1002 MiB", id="uneven memory"),
        pytest.param({"gpu": 3, "gpu-memory": 2}, "gpu-memory", "2", ": 3 MiB", id="nothing smaller divides"),
        pytest.param({"gpu": 3, "gpu-compute": 100}, "gpu-compute", "100", "99 or 102", id="uneven compute"),
        pytest.param({"gpu": 0, "gpu-memory": 5}, "gpu", "0", "1 to 1024", id="no device for some memory"),
        pytest.param({"gpu": 1, "gpu-memory": 0}, "gpu-memory", "0", "1 to", id="no memory on a device"),
        pytest.param({"gpu": 2000}, "gpu", "2000", "1 to 1024", id="more devices than any node"),
        pytest.param({"gpu": "1500m"}, "gpu", "1500m", "whole number", id="a broken device"),
        pytest.param({"gpu-compute": "9223372036854775808"}, "gpu-compute", "9223372036854775808", "0 to", id="2^63"),
    ],
)
def test_rows_that_cannot_be_meant_are_refused(rows: dict[str, str | int], row: str, found: str, valid: str):
    with pytest.raises(InvalidRequest) as caught:
        only_ask(rows)
    assert caught.value.field == f"{PREFIX}{row} of container main"
    assert caught.value.found == found
    assert valid in caught.value.valid


def test_a_container_without_resources_asks_nothing():
    assert not pod_request(pod({"name": "main"})).asks_gpu


def test_rows_that_are_all_zero_ask_nothing():
    assert not pod_request(pod(container(rows={"gpu": 0, "gpu-memory": 0}))).asks_gpu


def test_unknown_resources_of_ours_are_refused_with_the_nearest():
    (problem,) = parse_problems(pod(container(rows={"gpu-mem": 5})))
    assert problem.found == PREFIX + "gpu-mem"
    assert "nearest is tangram.dev/gpu-memory" in problem.valid


def test_limits_stand_in_for_requests_left_out():
    built = container()
    built["resources"] = {"limits": {PREFIX + "gpu-memory": "8Gi", "cpu": "2"}, "requests": {"cpu": "1"}}
    request = pod_request(pod(built))
    assert (request.containers[0].memory_mib, request.cpu_milli) == (8192, 1000)


def test_the_prefix_is_configurable():
    built = container()
    built["resources"] = {"limits": {"gpu.example.org/gpu": "1"}}
    assert pod_request(pod(built), "gpu.example.org/").asks_gpu
    assert not pod_request(pod(built)).asks_gpu


class TestFraction:
    def test_it_is_compute_of_the_only_container(self):
        request = pod_request(pod(container(), annotations={"gpu-fraction": "0.25"}))
        assert request.containers == (ContainerAsk("main", 1, None, 250),)

    def test_it_goes_to_the_container_that_is_named(self):
        built = pod(container("a"), container("b"), annotations={"gpu-fraction": "0.5", "gpu-container": "b"})
        assert [ask.name for ask in pod_request(built).containers] == ["b"]

    def test_it_agrees_with_the_row_that_the_webhook_wrote(self):
        built = pod(container(rows={"gpu-compute": 25, "gpu": 1}), annotations={"gpu-fraction": "0.25"})
        assert pod_request(built).containers == (ContainerAsk("main", 1, None, 250),)

    @pytest.mark.parametrize(
        ("rows", "annotations", "field"),
        [
            pytest.param({}, {"gpu-fraction": text}, "gpu-fraction", id=text)
            for text in (
                "NaN",
                "0",
                "-0.5",
                "1.5",
                "9223372036854775808",
                "1e-1",
                "50%",
                "0.125",
                "0.001",
                ".",
                "\u0661",
            )
        ]
        + [
            pytest.param(
                {"gpu-compute": 30}, {"gpu-fraction": "0.25"}, "gpu-compute of container main", id="other row"
            ),
            pytest.param({"gpu-memory": 30}, {"gpu-fraction": "0.25"}, "gpu-memory of container main", id="memory too"),
            pytest.param({}, {"gpu-fraction": "0.5", "gpu-container": "x"}, "gpu-container", id="no such container"),
        ],
    )
    def test_what_it_cannot_mean_is_refused(self, rows: dict[str, str | int], annotations: dict[str, str], field: str):
        with pytest.raises(InvalidRequest) as caught:
            pod_request(pod(container(rows=rows), annotations=annotations))
        assert caught.value.field == PREFIX + field

    def test_beside_several_devices_it_is_that_fraction_of_each(self):
        request = pod_request(pod(container(rows={"gpu": 2}), annotations={"gpu-fraction": "0.5"}))
        assert request.containers == (ContainerAsk("main", 2, None, 500),)
        assert effective_totals(request).compute_percent == 100

    def test_it_needs_a_container_named_where_there_are_several(self):
        with pytest.raises(InvalidRequest, match="one of a, b"):
            pod_request(pod(container("a"), container("b"), annotations={"gpu-fraction": "0.5"}))

    def test_blank_it_asks_nothing(self):
        assert not pod_request(pod(container(), annotations={"gpu-fraction": " "})).asks_gpu


class TestAnnotations:
    def read(self, **rows: str):
        keys = {key.replace("_", "-"): text for key, text in rows.items()}
        return pod_request(pod(container(rows={"gpu-memory": 1024}), annotations=keys))

    def test_each_finds_its_field(self):
        request = self.read(
            gpu_sharing="mps, time-slicing,", gpu_topology="numa", gpu_policy="spread", gpu_prefer="t4=2"
        )
        assert request.sharing == {SharingMode.MPS, SharingMode.TIME_SLICING}
        assert request.topology is Topology.NUMA
        assert request.policy == "spread"
        assert request.preferences == (("t4", 2.0),)

    def test_blank_ones_have_no_effect(self):
        assert self.read(gpu_sharing=" ,", gpu_topology="", gpu_policy=" ", gpu_prefer="", workload="") == self.read()

    def test_a_mig_profile_implies_mig(self):
        assert self.read(mig_profile="1g.10gb").sharing == {SharingMode.MIG}
        assert self.read(mig_profile="1g.10gb", gpu_sharing="mig,mps").sharing == {SharingMode.MIG}

    @pytest.mark.parametrize(
        ("key", "text"),
        [
            ("gpu-sharing", "vgpu"),
            ("gpu-topology", "near"),
            ("gpu-policy", "Best Fit!"),
            ("gpu-prefer", "t4=lots"),
            ("workload", "gaming"),
            ("gpu-architecture", "amper"),
            ("gpu-arch", "ampere"),
        ],
    )
    def test_those_that_cannot_be_understood_are_named(self, key: str, text: str):
        (problem,) = parse_problems(pod(container(rows={"gpu": 1}), annotations={key: text}))
        assert problem.field == PREFIX + key
        assert problem.found == text

    def test_a_profile_beside_another_kind_of_share_is_refused(self):
        with pytest.raises(InvalidRequest, match="gpu-sharing"):
            self.read(mig_profile="1g.10gb", gpu_sharing="mps")

    def test_whole_devices_cannot_be_mig_instances_unless_a_profile_says_which(self):
        whole = container(rows={"gpu": 1})
        with pytest.raises(InvalidRequest, match="mig-profile"):
            pod_request(pod(whole, annotations={"gpu-sharing": "mig"}))
        assert pod_request(pod(whole, annotations={"mig-profile": "1g.10gb"})).sharing == {SharingMode.MIG}

    def test_pods_without_gpus_are_never_refused_for_them(self):
        built = pod(container(), annotations={"gpu-arch": "ampere", "gpu-sharing": "none", "workload": "?"})
        assert parse_problems(built) == ()

    def test_all_problems_are_told_at_once(self):
        rows = {"gpu": 3, "gpu-memory": 1000, "gpu-compute": 301}
        built = pod(container(rows=rows), annotations={"gpu-sharing": "x", "gpu-driver": "new", "gpu-arch": "volta"})
        fields = [problem.field.removeprefix(PREFIX) for problem in parse_problems(built)]
        assert fields == [
            "gpu-memory of container main",
            "gpu-compute of container main",
            "gpu-arch",
            "gpu-driver",
            "gpu-sharing",
        ]

    def test_the_first_problem_is_raised_each_time_with_its_type(self):
        built = pod(container(rows={"gpu": 1}), annotations={"gpu-driver": "new"})
        (problem,) = parse_problems(built)
        for _ in range(2):
            with pytest.raises(type(problem), match="gpu-driver") as caught:
                pod_request(built)
            assert caught.value is not problem


class TestWorkloads:
    @pytest.mark.parametrize("name", WORKLOADS)
    def test_every_preset_is_understood_and_names_a_policy_of_every_install(self, name: str):
        request = pod_request(pod(container(rows={"gpu-memory": 1024}), annotations={"workload": name}))
        assert request.workload == name
        assert request.policy in PROFILES

    def test_the_authors_own_rows_win(self):
        rows = {"workload": "training", "gpu-policy": "spread", "gpu-features": ""}
        request = pod_request(pod(container(rows={"gpu-memory": 1024}), annotations=rows))
        assert request.policy == "spread"
        assert request.conditions.is_any
        assert request.preferences


class TestKinds:
    def test_init_containers_and_sidecars_come_first_and_are_told_apart(self):
        request = pod_request(
            pod(
                container("serve", {"gpu-memory": 10}),
                init=[
                    container("load", {"gpu-memory": 20}),
                    container("proxy", {"gpu-memory": 5}, restart_policy="Always"),
                ],
            )
        )
        assert [(ask.name, ask.kind) for ask in request.containers] == [
            ("load", ContainerKind.INIT),
            ("proxy", ContainerKind.SIDECAR),
            ("serve", ContainerKind.APP),
        ]
        # init alone 20; sidecar 5 beside app 10 = 15
        assert effective_totals(request).memory_mib == 20

    def test_an_app_containers_restart_policy_makes_no_sidecar(self):
        request = pod_request(pod(container("a", {"gpu": 1}, restart_policy="Always")))
        assert request.containers[0].kind is ContainerKind.APP

    def test_totals_are_kubernetes_sums(self):
        request = pod_request(
            pod(container("a", {"gpu": 2, "gpu-memory": 4096, "gpu-compute": 75}), container("b", {"gpu": 1}))
        )
        assert effective_totals(request) == (3, 4096, 175)


class TestHostSide:
    def test_containers_add_up_and_are_rounded_up(self):
        request = pod_request(
            pod(
                container("a", cpu="250m", memory="1Gi"),
                container("b", cpu="1.0001", memory="1"),
                spec={"overhead": None},
            )
        )
        assert (request.cpu_milli, request.host_memory_mib) == (1251, 1025)

    def test_sidecars_run_beside_init_containers_after_them_and_beside_the_pod(self):
        init = [
            container("before", cpu="4"),
            container("sidecar", restart_policy="Always", cpu="1"),
            container("after", cpu="3500m"),
        ]
        # before 4; after 3.5 + sidecar 1 = 4.5; running: app 2 + sidecar 1 = 3
        assert pod_request(pod(container(cpu="2"), init=init)).cpu_milli == 4500

    def test_pod_level_resources_replace_the_sum_and_overhead_is_added(self):
        spec = {"resources": {"requests": {"cpu": "3"}, "limits": {"memory": "2Gi"}}, "overhead": {"cpu": "250m"}}
        request = pod_request(pod(container(cpu="1"), spec=spec))
        assert (request.cpu_milli, request.host_memory_mib) == (3250, 2048)

    def test_a_pod_level_limit_counts_only_where_no_container_asks(self):
        spec = {"resources": {"limits": {"cpu": "8"}}}
        assert pod_request(pod(container(cpu="1"), spec=spec)).cpu_milli == 1000

    def test_nonsense_is_named(self):
        (problem,) = parse_problems(pod(container(cpu="much")))
        assert problem.field == "cpu of container main"


class TestPlugin:
    def test_its_resources_are_counted_for_the_pod(self):
        others = {"nvidia.com/gpu": "2", "nvidia.com/mig-1g.5gb": "1", "nvidia.com/gpu.shared": "0"}
        request = pod_request(pod(container(**others), init=[container("load", **{"nvidia.com/gpu": "3"})]))
        assert request.plugin == (PluginAsk("nvidia.com/gpu", 3), PluginAsk("nvidia.com/mig-1g.5gb", 1))
        assert request.containers == ()
        assert request.asks_gpu

    def test_conditions_hold_for_it_too(self):
        built = pod(container(**{"nvidia.com/gpu": "1"}), annotations={"gpu-architecture": "volta"})
        assert not pod_request(built).conditions.is_any

    def test_both_kinds_in_one_pod_are_refused(self):
        built = pod(container("a", {"gpu": 1}), container("b", **{"nvidia.com/gpu": "1"}))
        with pytest.raises(InvalidRequest, match=r"nvidia\.com/gpu"):
            pod_request(built)


def test_two_containers_that_read_one_key_are_refused():
    built = pod(
        container("a", {"gpu": 1}, devices_key="devices-x"), container("b", {"gpu": 1}, devices_key="devices-x")
    )
    (problem,) = parse_problems(built)
    assert problem.field == "NVIDIA_VISIBLE_DEVICES of container b"
    assert problem.found == PREFIX + "devices-x"


def test_a_key_may_be_shown_to_other_containers_under_another_name():
    built = pod(container("a", {"gpu": 1}, devices_key="devices-a"), container("log"))
    log = container("log") | {"env": [shows("GPUS", PREFIX + "devices-a")]}
    assert parse_problems(built) == ()
    assert parse_problems(pod(container("a", {"gpu": 1}, devices_key="devices-a"), log)) == ()


class TestMemory:
    def test_equal_pods_share_one_request(self):
        first, second = (pod(container(rows={"gpu": 1}), name=name) for name in ("a", "b"))
        assert pod_request(first) is pod_request(second)

    def test_what_is_written_at_bind_does_not_count(self):
        plain = pod(container(rows={"gpu": 1}))
        bound = pod(container(rows={"gpu": 1}), annotations={"allocation": "{}", "devices-main": "GPU-1"})
        assert pod_request(plain) is pod_request(bound)

    def test_huge_annotations_are_not_remembered(self):
        built = pod(container(rows={"gpu": 1}), annotations={"note": "x" * 200_000})
        before = podspec._read.cache_info().currsize
        assert pod_request(built) == pod_request(pod(container(rows={"gpu": 1})))
        assert podspec._read.cache_info().currsize <= before + 1


texts = st.text(max_size=20) | st.sampled_from(
    ["1", "0", "5k", "8Gi", "-1", "NaN", "1e9", "1g.10gb", "mig", ">=ampere", "0.5"]
)
rows = st.dictionaries(st.sampled_from(["gpu", "gpu-memory", "gpu-compute", "gpu-x"]), texts, max_size=3)
marks = st.dictionaries(
    st.sampled_from(
        ["gpu-fraction", "gpu-container", "gpu-sharing", "mig-profile", "workload", "gpu-prefer", "gpu-arch"]
    )
    | st.sampled_from(
        ["gpu-architecture", "gpu-product", "gpu-total-memory", "gpu-uuid", "gpu-features", "gpu-policy"]
    ),
    texts,
    max_size=4,
)


class TestAnyPod:
    """Safety: whatever came past admission, reading a pod returns a request or raises InvalidRequest."""

    @given(st.lists(rows, max_size=3), marks)
    def test_it_is_read_or_refused(self, containers: list[dict[str, str | int]], annotations: dict[str, str]):
        built = pod(*(container(f"c{at}", asked) for at, asked in enumerate(containers)), annotations=annotations)
        problems = parse_problems(built)
        if problems:
            with pytest.raises(InvalidRequest):
                pod_request(built)
        else:
            request = pod_request(built)
            for ask in request.containers:
                assert 1 <= ask.count <= 1024
                assert ask.memory_mib is None or ask.memory_mib >= 1
                assert ask.compute_milli is None or 1 <= ask.compute_milli <= 1000

    @given(st.integers(1, 64), st.integers(1, 4096), st.integers(1, 100))
    def test_what_divides_evenly_adds_up_again(self, count: int, memory: int, percent: int):
        request = pod_request(
            pod(container(rows={"gpu": count, "gpu-memory": memory * count, "gpu-compute": percent * count}))
        )
        assert effective_totals(request) == (count, memory * count, percent * count)


@pytest.mark.parametrize("kind", ["containers", "init"])
def test_more_containers_with_devices_than_can_be_placed_in_time_are_refused(kind: str):
    many = [container(f"c{number}", {"gpu-memory": 10}) for number in range(1000)]
    (problem,) = parse_problems(pod(*many) if kind == "containers" else pod(init=many))
    assert (problem.field, problem.found) == ("containers", f"more than {MAX_CONTAINERS} that ask for GPUs")
    assert len(pod_request(pod(*many[:MAX_CONTAINERS])).containers) == MAX_CONTAINERS


def test_containers_without_devices_may_be_many():
    many = [container(f"c{number}", cpu="1") for number in range(1000)]
    assert len(pod_request(pod(*many, container("main", {"gpu": 1}))).containers) == 1


def test_a_pod_with_too_many_problems_is_not_read_to_its_end():
    many = [container(f"c{number}", {"gpu-memoryy": 10}) for number in range(1000)]
    assert 1 < len(parse_problems(pod(*many))) < 100


def test_a_problem_names_what_was_found_within_a_readable_length():
    marks = {"gpu-fraction": "0.5", "gpu-container": "z" * 100_000}
    (problem,) = parse_problems(pod(container("a"), container("b"), annotations=marks))
    assert len(str(problem)) < 4096


@pytest.mark.parametrize(
    "huge",
    [
        pod(container("main", {"gpu": 1}), annotations={f"a{number}": "x" for number in range(5000)}),
        pod(*[container(f"c{number}", cpu="1") for number in range(1000)]),
    ],
    ids=["annotations", "containers"],
)
def test_pods_with_much_to_say_are_not_remembered(huge):
    before = podspec._read.cache_info().currsize
    parse_problems(huge)
    assert podspec._read.cache_info().currsize == before
