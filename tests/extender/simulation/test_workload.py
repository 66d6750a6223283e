import itertools

import msgspec
import pytest

from extender.objects import Pod
from extender.podspec import parse_problems, pod_request
from extender.simulation.trace import TracePod, load_pods
from extender.simulation.workload import PREFIX, Tempo, arrivals, pod_object
from scoring.request import SharingMode


def trace_pod(**changes):
    plain = {
        "name": "p",
        "cpu_milli": 4000,
        "memory_mib": 8192,
        "gpus": 1,
        "gpu_milli": 470,
        "models": (),
        "qos": "LS",
        "created_s": 0,
        "duration_s": 60,
    }
    return TracePod(**{**plain, **changes})


def read(pod):
    return msgspec.convert(pod_object(pod, pod.name), Pod)


def ask(pod):
    (container,) = pod_request(read(pod), PREFIX).containers
    return container.count, container.memory_mib, container.compute_milli


def test_every_pod_of_the_trace_is_understood_by_the_product():
    assert not [pod.name for pod in load_pods() if parse_problems(read(pod), PREFIX)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # 470 / 1000 of 16,384 MiB is 7,700.48.
        pytest.param({}, (1, 7700, 470), id="a service names memory and compute"),
        pytest.param({"qos": "BE"}, (1, None, 470), id="a batch share lets memory follow"),
        pytest.param({"gpu_milli": 230}, (1, 3768, None), id="a small service lets compute follow"),
        pytest.param({"gpu_milli": 1000}, (1, None, 1000), id="a whole card"),
        pytest.param({"gpus": 8, "gpu_milli": 1000}, (8, None, 1000), id="eight whole cards"),
    ],
)
def test_a_share_of_a_card_becomes_our_resources(changes, expected):
    assert ask(trace_pod(**changes)) == expected


def test_a_pod_without_cards_asks_for_nothing_of_ours():
    request = pod_request(read(trace_pod(gpus=0, gpu_milli=0)), PREFIX)
    assert not request.asks_gpu
    assert (request.cpu_milli, request.host_memory_mib) == (4000, 8192)


@pytest.mark.parametrize(
    ("changes", "sharing"),
    [
        pytest.param({}, {SharingMode.MIG}, id="a service of any model wants a wall"),
        pytest.param({"models": ("T4",)}, {SharingMode.MIG, SharingMode.TIME_SLICING}, id="a service of one model"),
        pytest.param({"qos": "BE"}, {SharingMode.MIG, SharingMode.TIME_SLICING}, id="a batch pod takes either"),
    ],
)
def test_small_shares_take_mig_instances(changes, sharing):
    assert pod_request(read(trace_pod(gpu_milli=110, **changes)), PREFIX).sharing == sharing


@pytest.mark.parametrize(
    ("models", "annotation", "value"),
    [
        pytest.param(("T4",), "gpu-product", "T4", id="one model"),
        pytest.param(("V100M16", "V100M32"), "gpu-architecture", "volta", id="every model of a generation"),
        pytest.param(("P100", "V100M32"), "gpu-product", "P100*, V100*-32GB", id="several models"),
        pytest.param(("G3",), "gpu-architecture", ">=hopper", id="an undisclosed model"),
        pytest.param((), "gpu-architecture", ">=pascal", id="any model of that cluster"),
    ],
)
def test_accepted_models_become_conditions(models, annotation, value):
    annotations = read(trace_pod(models=models)).annotations
    assert annotations[f"{PREFIX}{annotation}"] == value


def test_equal_seeds_give_equal_arrivals_and_others_do_not():
    def first(seed):
        return [(each.at_s, each.name) for each in itertools.islice(arrivals(load_pods(), 100, Tempo(), seed), 50)]

    assert first(1) == first(1)
    assert first(1) != first(2)


def test_the_fleet_is_asked_for_in_full_by_the_end_of_the_filling():
    tempo = Tempo(fill_s=10.0, load=1.0)
    early = itertools.takewhile(lambda each: each.at_s < 10.0, arrivals(load_pods(), 2000, tempo, 3))
    devices = {pod.name: pod.gpus * pod.gpu_milli / 1000 for pod in load_pods()}
    asked = sum(devices[each.name.rpartition("-")[0]] for each in early)
    assert asked == pytest.approx(2000, rel=0.15)


def test_names_stay_apart_when_the_trace_begins_again():
    pods = load_pods()[:5]
    names = [each.name for each in itertools.islice(arrivals(pods, 10, Tempo(), 0), 20)]
    assert len(set(names)) == 20


def test_durations_keep_their_limits():
    tempo = Tempo(least_s=3.0, most_s=40.0)
    runs = [each.runs_s for each in itertools.islice(arrivals(load_pods(), 100, tempo, 5), 500)]
    assert min(runs) >= 3.0
    assert max(runs) <= 40.0
