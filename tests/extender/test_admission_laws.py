"""Laws of the door that hold for every pod."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from extender.admission import Door
from extender.allocation import Injector, binding_annotations, claimed_keys
from extender.podspec import pod_request
from extender.workloads import WORKLOADS
from scoring.request import Allocation, Share, SharingMode
from tests.support.pods import PREFIX
from tests.support.reviews import a_door, answered, decoded, patched, raw_container, raw_pod

names = st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
amounts = st.one_of(
    st.integers(0, 300).map(str), st.sampled_from(["16Gi", "5k", "8G", "8192", "1500000", "1.5", "x", "100", "200"])
)
row_sets = st.dictionaries(st.sampled_from(["gpu", "gpu_memory", "gpu_compute"]), amounts, max_size=3)
variables = st.sampled_from(
    [
        {"name": "MODE", "value": "x"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"},
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
    ]
)
annotation_sets = st.fixed_dictionaries(
    {},
    optional={
        f"{PREFIX}gpu-fraction": st.sampled_from(["0.25", "1", "nonsense", " "]),
        f"{PREFIX}workload": st.sampled_from([*WORKLOADS, "leisure"]),
        f"{PREFIX}gpu-sharing": st.sampled_from(["mps", "time-slicing,mps", "mig", "exclusive"]),
        f"{PREFIX}mig-profile": st.just("1g.10gb"),
        f"{PREFIX}gpu-policy": st.sampled_from(["spread", "night"]),
        "other.example/key": st.text(max_size=5),
    },
)


@st.composite
def containers(draw: st.DrawFn) -> list[dict[str, Any]]:
    built = []
    for name in draw(st.lists(names, min_size=1, max_size=4, unique=True)):
        env = draw(st.none() | st.lists(variables, max_size=2))
        container = raw_container(name, env=env, **draw(row_sets))
        if draw(st.booleans()) and "resources" in container:
            del container["resources"]["requests" if draw(st.booleans()) else "limits"]
        built.append(container)
    return built


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    built = draw(containers())
    first_app = draw(st.integers(0, len(built) - 1))
    init = [each | draw(st.sampled_from([{}, {"restartPolicy": "Always"}])) for each in built[:first_app]]
    annotations = draw(st.none() | annotation_sets)
    labels = draw(st.none() | st.just({"app": "x"}))
    return raw_pod(*built[first_app:], init=tuple(init), annotations=annotations, labels=labels)


doors = st.builds(
    a_door,
    injector=st.sampled_from(Injector),
    runtime_class=st.sampled_from(["nvidia", ""]),
    routed_namespaces=st.sampled_from([(), ("ml",)]),
)


class TestWhatIsWritten:
    """Mutating is idempotent, keeps the meaning of a request, and yields a pod that validates."""

    @given(pods(), doors)
    def test_mutating_twice_changes_nothing_more(self, pod: dict[str, Any], door: Door):
        opinion = door.mutate(decoded(pod), "ml")
        if opinion.problems:
            return
        once = patched(pod, answered(opinion))
        again = door.mutate(decoded(once), "ml")
        assert (again.problems, again.patch, again.warnings) == ((), (), ())
        assert door.validate(decoded(once)).problems == ()

    @given(pods(), doors)
    def test_request_means_the_same_before_and_after(self, pod: dict[str, Any], door: Door):
        opinion = door.mutate(decoded(pod), "ml")
        if not opinion.problems:
            assert pod_request(decoded(pod)) == pod_request(decoded(patched(pod, answered(opinion))))

    @given(pods(), doors)
    def test_both_webhooks_find_the_same_problems(self, pod: dict[str, Any], door: Door):
        assert door.mutate(decoded(pod), "ml").problems == door.validate(decoded(pod)).problems

    @given(pods())
    def test_every_container_of_a_pod_that_asks_is_told_what_it_sees(self, pod: dict[str, Any]):
        door = a_door()
        opinion = door.mutate(decoded(pod), "ml")
        request = None if opinion.problems else pod_request(decoded(pod))
        if request is None or not request.containers:
            return
        changed = decoded(patched(pod, answered(opinion)))
        asking = {ask.name for ask in request.containers}
        for container in changed.all_containers():
            found = [each.value for each in container.env or () if each.name == "NVIDIA_VISIBLE_DEVICES"]
            assert found  # an author may say "void" more than once; the last one counts, and all are the same
            assert {value == "void" for value in found} == {container.name not in asking}
            assert bool(claimed_keys(container)) == (container.name in asking)

    @given(pods())
    def test_binding_fills_every_key_that_was_written(self, pod: dict[str, Any]):
        door = a_door()
        opinion = door.mutate(decoded(pod), "ml")
        if opinion.problems:
            return
        changed = decoded(patched(pod, answered(opinion)))
        asking = pod_request(changed).containers
        shares = {ask.name: (Share(f"GPU-{ask.name}", 64, 500, SharingMode.MPS),) for ask in asking}
        written = binding_annotations(changed, Allocation(tuple(shares.items()), "binpack"))
        for container in changed.all_containers():
            for key in claimed_keys(container):
                assert written[key] == f"GPU-{container.name}"
            for variable in container.env or ():
                if variable.name.startswith("CUDA_MPS_") and variable.field_path:
                    assert written[variable.field_path.split("'")[1]] in ("50", "0=64M")
