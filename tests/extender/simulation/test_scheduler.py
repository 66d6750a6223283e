"""The in-memory kube-scheduler: cycles, back-off and races as in extender-protocol, and the wire it speaks."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import pytest

from extender.changes import ObjectKey
from extender.kube import BindOutcome, BindStatus
from extender.simulation.nodefit import SeenNode, SeenPod
from extender.simulation.scheduler import Outlets, Scheduler
from extender.simulation.verbs import ExtenderVerbs, FilterAnswer, Timings, VerbFailed
from tests.support.builders import PREFIX, node
from tests.support.clock import ManualClock

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def seen_node(name, **amounts):
    plain = {"gpu": 800, "gpu_memory": 80_000, "gpu_compute": 800}
    made = node(name, **{**plain, **amounts})
    allocatable = {**made.status.allocatable, "pods": "110"}
    return SeenNode(made.metadata, msgspec.structs.replace(made.status, allocatable=allocatable))


def seen_pod(name, *, node_name="", phase="Pending", profile="tangram", deleted=None, cpu="1", **amounts):
    requests = {"cpu": cpu, **{PREFIX + key.replace("_", "-"): str(value) for key, value in amounts.items()}}
    content = {
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "deletionTimestamp": deleted},
        "spec": {
            "nodeName": node_name,
            "schedulerName": profile,
            "containers": [{"name": "main", "resources": {"requests": requests}}],
        },
        "status": {"phase": phase},
    }
    return msgspec.json.decode(msgspec.json.encode(content), type=SeenPod)


class FakeExtender:
    """Answers as told, and remembers what it was asked."""

    def __init__(self):
        self.timings = Timings()
        self.asked = []
        self.refuses = {}
        self.scores = {}
        self.bind_errors = []
        self.gate = threading.Event()
        self.gate.set()

    def filter(self, pod, names):
        self.asked.append(("filter", pod.metadata.name, sorted(names)))
        if isinstance(self.refuses, VerbFailed):
            raise self.refuses
        passed = [name for name in names if name not in self.refuses]
        return FilterAnswer(names=passed, failed={name: self.refuses[name] for name in names if name in self.refuses})

    def prioritize(self, pod, names):
        self.asked.append(("prioritize", pod.metadata.name, sorted(names)))
        return {name: self.scores.get(name, 0) for name in names}

    def bind(self, pod, node):
        self.gate.wait(10)
        self.asked.append(("bind", pod.metadata.name, node))
        if self.bind_errors:
            raise VerbFailed(self.bind_errors.pop(0))

    def verbs(self, name):
        return [verb for verb, pod, _ in self.asked if pod == name]

    def bound(self):
        return {pod: node for verb, pod, node in self.asked if verb == "bind"}


class FakeApi:
    """The API server's part: plain Bindings and conditions."""

    def __init__(self):
        self.bound = {}
        self.conditions = {}

    async def bind(self, namespace, name, uid, node, annotations):
        self.bound[name] = node
        return BindOutcome(BindStatus.BOUND)

    def patch_pod_status(self, namespace, name, status):
        (condition,) = status["conditions"]
        self.conditions[name] = (condition["reason"], condition["message"])
        return True


class Bench:
    def __init__(self, *nodes, seed=0):
        self.extender, self.api, self.clock = FakeExtender(), FakeApi(), ManualClock(0.0)
        self.threads = ThreadPoolExecutor(4)
        outlets = Outlets(self.extender, self.api, self.api, self.threads)
        self.scheduler = Scheduler(outlets, self.clock, "tangram", seed)
        for each in nodes:
            self.scheduler.on_node(each)

    async def run(self, *pods):
        for each in pods:
            self.scheduler.on_pod(each)
        while await self.scheduler.step():
            pass
        await self.scheduler.settle()


async def test_a_gpu_pod_goes_through_filter_prioritize_and_bind():
    bench = Bench(seen_node("a"), seen_node("b"))
    bench.extender.scores = {"b": 10}
    await bench.run(seen_pod("p", gpu=1, gpu_compute=50))
    assert bench.extender.verbs("p") == ["filter", "prioritize", "bind"]
    assert bench.extender.bound() == {"p": "b"}
    assert bench.scheduler.counts.bound == 1


async def test_one_remaining_node_is_taken_without_scoring():
    bench = Bench(seen_node("a"), seen_node("b"))
    bench.extender.refuses = {"a": "too few healthy GPUs"}
    await bench.run(seen_pod("p", gpu=1, gpu_compute=50))
    assert bench.extender.verbs("p") == ["filter", "bind"]


async def test_the_choice_among_the_highest_is_random():
    chosen = set()
    for seed in range(20):
        bench = Bench(seen_node("a"), seen_node("b"), seen_node("c"), seed=seed)
        bench.extender.scores = {"a": 10, "b": 10, "c": 9}
        await bench.run(seen_pod("p", gpu=1, gpu_compute=50))
        chosen.add(bench.extender.bound()["p"])
    assert chosen == {"a", "b"}


async def test_the_extender_is_asked_about_nodes_with_room_only():
    bench = Bench(seen_node("a", gpu_compute=100), seen_node("b"))
    bench.scheduler.on_pod(seen_pod("old", node_name="a", gpu=1, gpu_compute=100))
    await bench.run(seen_pod("p", gpu=1, gpu_compute=50))
    assert bench.extender.asked[0] == ("filter", "p", ["b"])


async def test_the_ceiling_of_devices_is_not_counted():
    bench = Bench(seen_node("a", gpu=1))
    await bench.run(*(seen_pod(f"p{number}", gpu=1, gpu_compute=10) for number in range(3)))
    assert len(bench.extender.bound()) == 3


async def test_a_pod_without_gpus_goes_past_the_extender_to_the_fullest_node():
    bench = Bench(seen_node("a"), seen_node("b"))
    bench.scheduler.on_pod(seen_pod("old", node_name="b", cpu="8"))
    await bench.run(seen_pod("p"))
    assert bench.extender.asked == []
    assert bench.api.bound == {"p": "b"}


async def test_pods_of_another_scheduler_are_counted_and_left_alone():
    bench = Bench(seen_node("a", gpu_compute=100))
    await bench.run(seen_pod("foreign", profile="other", gpu=1, gpu_compute=50))
    assert bench.extender.asked == []


async def test_the_next_pod_is_filtered_while_a_bind_is_under_way():
    bench = Bench(seen_node("a"))
    bench.extender.gate.clear()
    for name in ("first", "second"):
        bench.scheduler.on_pod(seen_pod(name, gpu=1, gpu_compute=50))
    while await bench.scheduler.step():
        pass
    assert [verb for verb, *_ in bench.extender.asked] == ["filter", "filter"]
    bench.extender.gate.set()
    await bench.scheduler.settle()
    assert set(bench.extender.bound()) == {"first", "second"}


async def test_an_assumed_pod_counts_before_its_bind_is_answered():
    bench = Bench(seen_node("a", gpu_compute=100))
    bench.extender.gate.clear()
    for name in ("first", "second"):
        bench.scheduler.on_pod(seen_pod(name, gpu=1, gpu_compute=100))
    while await bench.scheduler.step():
        pass
    bench.extender.gate.set()
    await bench.scheduler.settle()
    assert list(bench.extender.bound()) == ["first"]
    assert bench.api.conditions["second"][1] == "0/1 nodes are available: 1 Insufficient tangram.dev/gpu-compute."


class TestRefusals:
    async def test_reasons_are_grouped_into_the_pods_condition(self):
        bench = Bench(seen_node("a"), seen_node("b"), seen_node("c"))
        bench.extender.refuses = {"a": "too few healthy GPUs", "b": "node has no GPU", "c": "too few healthy GPUs"}
        await bench.run(seen_pod("p", gpu=1, gpu_compute=50))
        expected = "0/3 nodes are available: 2 too few healthy GPUs, 1 node has no GPU."
        assert bench.api.conditions["p"] == ("Unschedulable", expected)
        assert bench.scheduler.waiting() == {"ns/p": expected}

    async def test_a_pod_that_fits_nowhere_waits_until_another_ends(self):
        bench = Bench(seen_node("a", gpu_compute=100))
        bench.scheduler.on_pod(seen_pod("old", node_name="a", gpu=1, gpu_compute=100))
        await bench.run(seen_pod("p", gpu=1, gpu_compute=50))
        bench.clock.advance(5)
        await bench.run()
        assert bench.scheduler.counts.tries == 1
        bench.scheduler.on_pod_gone(ObjectKey("ns", "old", "uid-old"))
        await bench.run()
        assert bench.extender.bound() == {"p": "a"}

    async def test_a_pod_that_ran_to_its_end_frees_its_room(self):
        bench = Bench(seen_node("a", gpu_compute=100))
        bench.scheduler.on_pod(seen_pod("old", node_name="a", gpu=1, gpu_compute=100))
        bench.scheduler.on_pod(seen_pod("old", node_name="a", phase="Succeeded", gpu=1, gpu_compute=100))
        await bench.run(seen_pod("p", gpu=1, gpu_compute=100))
        assert bench.extender.bound() == {"p": "a"}

    async def test_a_refused_bind_is_forgotten_and_tried_again_after_a_back_off(self):
        bench = Bench(seen_node("a", gpu_compute=100))
        bench.extender.bind_errors = ["no longer fits"]
        await bench.run(seen_pod("p", gpu=1, gpu_compute=100))
        assert bench.scheduler.counts.conflicts == 1
        assert bench.api.conditions["p"] == ("SchedulerError", "no longer fits")
        await bench.run()
        assert bench.scheduler.counts.bound == 0
        bench.clock.advance(1.0)
        await bench.run()
        assert bench.scheduler.counts.bound == 1

    async def test_a_filter_that_fails_is_an_error_with_back_off(self):
        bench = Bench(seen_node("a"))
        bench.extender.refuses = VerbFailed("not ready")
        await bench.run(seen_pod("p", gpu=1, gpu_compute=50))
        assert bench.scheduler.counts.errors == 1
        assert bench.api.conditions["p"] == ("SchedulerError", "not ready")
        bench.extender.refuses = {}
        bench.clock.advance(1.0)
        await bench.run()
        assert bench.extender.bound() == {"p": "a"}

    async def test_a_pod_that_is_deleted_while_it_waits_is_forgotten(self):
        bench = Bench()
        await bench.run(seen_pod("p", gpu=1, gpu_compute=50))
        bench.scheduler.on_pod_gone(ObjectKey("ns", "p", "uid-p"))
        bench.clock.advance(100)
        await bench.run()
        assert bench.scheduler.waiting() == {}
        assert bench.scheduler.counts.tries == 1


class _Answers(BaseHTTPRequestHandler):
    def do_POST(self):
        length = int(self.headers["Content-Length"])
        self.server.bodies.append((self.path, msgspec.json.decode(self.rfile.read(length))))
        status, body = self.server.answer
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def wire():
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answers)
    server.daemon_threads = True
    server.bodies, server.answer = [], (200, b"{}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    server.verbs = ExtenderVerbs(f"http://127.0.0.1:{server.server_port}")
    yield server
    server.verbs.close()
    server.shutdown()
    thread.join()
    server.server_close()


class TestWire:
    def test_filter_sends_the_whole_pod_and_names_as_go_spells_them(self, wire):
        wire.answer = (
            200,
            b'{"NodeNames":["a"],"FailedNodes":{"b":"why"},"FailedAndUnresolvableNodes":null,"Error":""}',
        )
        answer = wire.verbs.filter(seen_pod("p", gpu=1), ["a", "b"])
        ((path, body),) = wire.bodies
        assert path == "/v1/filter"
        assert (body["NodeNames"], body["Nodes"]) == (["a", "b"], None)
        assert body["Pod"]["metadata"]["uid"] == "uid-p"
        assert body["Pod"]["spec"]["containers"][0]["resources"]["requests"]["tangram.dev/gpu"] == "1"
        assert (answer.names, answer.reasons()) == (["a"], {"why": 1})

    @pytest.mark.parametrize(
        ("status", "body"),
        [
            pytest.param(200, b'{"Error":"cannot be read"}', id="error set"),
            pytest.param(200, b'{"NodeNames":["stranger"]}', id="unknown node"),
            pytest.param(200, b"", id="empty body"),
            pytest.param(422, b'{"NodeNames":["a"]}', id="not 200"),
        ],
    )
    def test_a_filter_that_fails_as_a_whole_is_an_error(self, wire, status, body):
        wire.answer = (status, body)
        with pytest.raises(VerbFailed):
            wire.verbs.filter(seen_pod("p", gpu=1), ["a"])

    def test_an_answer_in_another_spelling_means_that_nothing_fits(self, wire):
        wire.answer = (200, b'{"node_names":["a"]}')
        assert not wire.verbs.filter(seen_pod("p", gpu=1), ["a"]).names

    @pytest.mark.parametrize(
        "body", [b'[{"Host":"a","Score":7.5}]', b'{"a":7}', b""], ids=["a fraction", "an object", "nothing"]
    )
    def test_scores_that_go_cannot_read_are_no_opinion(self, wire, body):
        wire.answer = (200, body)
        assert wire.verbs.prioritize(seen_pod("p", gpu=1), ["a", "b"]) == {"a": 0, "b": 0}

    def test_a_refused_bind_carries_the_extenders_words(self, wire):
        wire.answer = (200, b'{"Error":"no longer fits"}')
        with pytest.raises(VerbFailed, match="no longer fits"):
            wire.verbs.bind(seen_pod("p", gpu=1), "a")
        ((_, body),) = wire.bodies
        assert body == {"PodName": "p", "PodNamespace": "ns", "PodUID": "uid-p", "Node": "a"}

    def test_every_call_is_timed(self, wire):
        wire.answer = (200, b'{"NodeNames":["a"]}')
        wire.verbs.filter(seen_pod("p", gpu=1), ["a"])
        assert wire.verbs.timings.percentile("filter", 0.99) > 0
        assert wire.verbs.timings.percentile("bind", 0.99) is None
