from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.changes import ObjectKey
from extender.kube import KubeClient
from extender.objects import Node, Pod
from extender.reflection import NODES, PODS, Pace, read_page
from extender.reflector import ReflectorThread
from extender.simulation.apiserver import SimulatedApiServer
from extender.simulation.apiserving import ServedApiServer
from extender.simulation.faults import Fault, FaultKind
from extender.simulation.semantics import ApiRefusal, json_patch, merge_patch

MOMENT = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
WAIT_S = 15.0


@pytest.fixture
def server():
    return SimulatedApiServer(now=lambda: MOMENT)


def decoded(body: bytes) -> dict[str, Any]:
    return msgspec.json.decode(body)


def pod(server: SimulatedApiServer, name: str = "train-0", spec: dict[str, Any] | None = None) -> dict[str, Any]:
    return decoded(server.create("pods", "ml", {"metadata": {"name": name}, "spec": spec or {}}))


def binding(node: str = "gpu-a", **metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata, "target": {"kind": "Node", "name": node}}


def refusal(call: Callable[[], object]) -> tuple[int, str]:
    with pytest.raises(ApiRefusal) as caught:
        call()
    return caught.value.status, caught.value.reason


class TestCreate:
    def test_the_server_gives_uid_version_time_and_phase(self, server: SimulatedApiServer):
        made = pod(server)
        assert made["metadata"]["uid"]
        assert made["metadata"]["resourceVersion"] == "1"
        assert made["metadata"]["creationTimestamp"] == "2030-01-02T03:04:05Z"
        assert made["status"]["phase"] == "Pending"

    def test_a_taken_name_is_refused(self, server: SimulatedApiServer):
        pod(server)
        assert refusal(lambda: pod(server)) == (409, "AlreadyExists")

    def test_a_missing_name_is_refused(self, server: SimulatedApiServer):
        assert refusal(lambda: server.create("pods", "ml", {})) == (422, "Invalid")

    def test_a_re_created_pod_has_another_uid(self, server: SimulatedApiServer):
        first = pod(server)
        server.delete("pods", "ml", "train-0", {})
        assert pod(server)["metadata"]["uid"] != first["metadata"]["uid"]


class TestBinding:
    def test_node_annotations_and_nomination_change_in_one_write(self, server: SimulatedApiServer):
        made = pod(server)
        server.patch(
            "pods",
            "ml",
            "train-0",
            {"status": {"nominatedNodeName": "x"}},
            "application/merge-patch+json",
            is_status=True,
        )
        before = server.version
        server.bind("ml", "train-0", binding(uid=made["metadata"]["uid"], annotations={"a": "1"}))
        after = decoded(server.get("pods", "ml", "train-0"))
        assert server.version == before + 1
        assert after["spec"]["nodeName"] == "gpu-a"
        assert after["metadata"]["annotations"] == {"a": "1"}
        assert "nominatedNodeName" not in after["status"]

    def test_a_bound_pod_is_refused(self, server: SimulatedApiServer):
        pod(server)
        server.bind("ml", "train-0", binding())
        assert refusal(lambda: server.bind("ml", "train-0", binding())) == (409, "Conflict")

    def test_a_pod_that_is_being_deleted_is_refused(self, server: SimulatedApiServer):
        pod(server, spec={"nodeName": "gpu-b"})
        server.delete("pods", "ml", "train-0", {})
        with pytest.raises(ApiRefusal, match="being deleted"):
            server.bind("ml", "train-0", binding())

    def test_a_gated_pod_is_refused(self, server: SimulatedApiServer):
        pod(server, spec={"schedulingGates": [{"name": "wait"}]})
        assert refusal(lambda: server.bind("ml", "train-0", binding())) == (409, "Conflict")

    def test_another_uid_or_version_is_refused(self, server: SimulatedApiServer):
        pod(server)
        assert refusal(lambda: server.bind("ml", "train-0", binding(uid="u9"))) == (409, "Conflict")
        assert refusal(lambda: server.bind("ml", "train-0", binding(resourceVersion="9"))) == (409, "Conflict")

    def test_a_missing_pod_is_refused(self, server: SimulatedApiServer):
        assert refusal(lambda: server.bind("ml", "nobody", binding())) == (404, "NotFound")

    def test_a_target_that_is_no_node_is_an_internal_error(self, server: SimulatedApiServer):
        pod(server)
        assert refusal(lambda: server.bind("ml", "train-0", {"target": {"kind": "Pod", "name": "x"}}))[0] == 500


class TestPatch:
    MERGE = "application/merge-patch+json"

    def test_status_and_spec_are_changed_by_their_own_calls_only(self, server: SimulatedApiServer):
        server.create("nodes", "", {"metadata": {"name": "n"}, "spec": {"a": 1}, "status": {"b": 1}})
        both = {"spec": {"a": 2}, "status": {"b": 2}}
        server.patch("nodes", "", "n", both, self.MERGE, is_status=True)
        assert decoded(server.get("nodes", "", "n"))["spec"] == {"a": 1}
        assert decoded(server.get("nodes", "", "n"))["status"] == {"b": 2}
        server.patch("nodes", "", "n", {"spec": {"a": 3}, "status": {"b": 3}}, self.MERGE)
        assert decoded(server.get("nodes", "", "n"))["spec"] == {"a": 3}
        assert decoded(server.get("nodes", "", "n"))["status"] == {"b": 2}

    def test_a_json_patch_reaches_keys_with_a_slash(self, server: SimulatedApiServer):
        server.create("nodes", "", {"metadata": {"name": "n"}, "status": {"capacity": {}}})
        patch = [{"op": "add", "path": "/status/capacity/tangram.dev~1gpu-memory", "value": "7"}]
        server.patch("nodes", "", "n", patch, "application/json-patch+json", is_status=True)
        assert decoded(server.get("nodes", "", "n"))["status"]["capacity"] == {"tangram.dev/gpu-memory": "7"}

    def test_a_patch_that_changes_nothing_writes_nothing(self, server: SimulatedApiServer):
        pod(server)
        before = server.version
        server.patch("pods", "ml", "train-0", {"status": {"phase": "Pending"}}, self.MERGE, is_status=True)
        assert server.version == before

    def test_identity_cannot_be_patched(self, server: SimulatedApiServer):
        made = pod(server)
        server.patch("pods", "ml", "train-0", {"metadata": {"uid": "u9", "labels": {"a": "b"}}}, self.MERGE)
        assert decoded(server.get("pods", "ml", "train-0"))["metadata"]["uid"] == made["metadata"]["uid"]

    def test_other_kinds_of_patch_are_refused(self, server: SimulatedApiServer):
        pod(server)
        kind = "application/strategic-merge-patch+json"
        assert refusal(lambda: server.patch("pods", "ml", "train-0", {}, kind))[0] == 415

    @pytest.mark.parametrize(
        "operation",
        [
            {"op": "replace", "path": "/nothing", "value": 1},
            {"op": "remove", "path": "/nothing"},
            {"op": "test", "path": "/a", "value": 2},
            {"op": "jump", "path": "/a"},
            {"op": "add"},
            7,
        ],
    )
    def test_a_json_patch_that_does_not_fit_is_refused(self, operation: object):
        assert refusal(lambda: json_patch({"a": 1}, [operation]))[0] == 422


JSON_OBJECTS = st.recursive(
    st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


class TestMergePatchLaws:
    """A merge patch without nulls is idempotent, and patching with the document itself changes nothing."""

    @given(JSON_OBJECTS, JSON_OBJECTS)
    def test_twice_equals_once(self, target: object, patch: object):
        once = merge_patch(target, patch)
        assert merge_patch(once, patch) == once

    @given(JSON_OBJECTS)
    def test_a_document_is_its_own_fixed_point(self, document: object):
        assert merge_patch(document, document) == document


class TestDelete:
    def test_a_pod_on_a_node_is_marked_and_goes_when_kubelet_says_so(self, server: SimulatedApiServer):
        pod(server, spec={"nodeName": "gpu-a", "terminationGracePeriodSeconds": 5})
        marked = decoded(server.delete("pods", "ml", "train-0", {}))
        assert marked["metadata"]["deletionTimestamp"]
        assert marked["metadata"]["deletionGracePeriodSeconds"] == 5
        assert decoded(server.get("pods", "ml", "train-0")) == marked
        server.delete("pods", "ml", "train-0", {"gracePeriodSeconds": 0})
        assert refusal(lambda: server.get("pods", "ml", "train-0"))[0] == 404

    @pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
    def test_a_pod_that_has_ended_goes_at_once(self, server: SimulatedApiServer, phase: str):
        server.create(
            "pods", "ml", {"metadata": {"name": "a"}, "spec": {"nodeName": "gpu-a"}, "status": {"phase": phase}}
        )
        server.delete("pods", "ml", "a", {})
        assert refusal(lambda: server.get("pods", "ml", "a"))[0] == 404

    def test_another_uid_is_refused(self, server: SimulatedApiServer):
        pod(server)
        options = {"preconditions": {"uid": "u9"}}
        assert refusal(lambda: server.delete("pods", "ml", "train-0", options)) == (409, "Conflict")


class TestList:
    def names(self, body: bytes) -> list[str]:
        return [item["metadata"]["name"] for item in decoded(body)["items"]]

    def test_pages_show_one_moment_whatever_happens_between_them(self, server: SimulatedApiServer):
        for name in ("a", "b", "c"):
            pod(server, name)
        first = decoded(server.list_page("pods", "", 2, ""))
        server.delete("pods", "ml", "c", {})
        pod(server, "d")
        second = server.list_page("pods", "", 2, first["metadata"]["continue"])
        assert self.names(second) == ["c"]
        assert decoded(second)["metadata"] == {"resourceVersion": "3", "continue": ""}

    def test_an_unknown_token_is_gone(self, server: SimulatedApiServer):
        assert refusal(lambda: server.list_page("pods", "", 2, "old")) == (410, "Expired")

    def test_unfinished_lists_are_bounded(self, server: SimulatedApiServer):
        pod(server, "a")
        pod(server, "b")
        tokens = [decoded(server.list_page("pods", "", 1, ""))["metadata"]["continue"] for _ in range(20)]
        assert refusal(lambda: server.list_page("pods", "", 1, tokens[0]))[0] == 410
        assert self.names(server.list_page("pods", "", 1, tokens[-1])) == ["b"]

    def test_a_namespace_is_listed_alone(self, server: SimulatedApiServer):
        pod(server, "a")
        server.create("pods", "ml2", {"metadata": {"name": "b"}})
        assert self.names(server.list_page("pods", "ml", 0, "")) == ["a"]

    @pytest.mark.slow
    def test_a_list_of_100_000_pods_is_paged_in_seconds(self, server: SimulatedApiServer):
        annotations = {"tangram.dev/allocation": "x" * 500}
        for number in range(100_000):
            server.create("pods", f"ns{number % 50}", {"metadata": {"name": f"p{number}", "annotations": annotations}})
        began, token, seen = time.perf_counter(), "", 0
        while True:
            page = read_page(server.list_page("pods", "", 250, token))
            seen += len(page.items or ())
            token = page.metadata.continue_token
            if not token:
                break
        assert seen == 100_000
        assert time.perf_counter() - began < 30.0


class Mirror:
    """A handler that holds what it is told: the law is that it ends equal to the server."""

    def __init__(self) -> None:
        self.objects: dict[ObjectKey, str] = {}
        self.lists = 0

    def on_set(self, item: Pod | Node) -> None:
        self.objects[ObjectKey.of(item.metadata)] = item.metadata.resource_version

    def on_delete(self, key: ObjectKey) -> None:
        self.objects.pop(key, None)

    def on_synced(self) -> None:
        self.lists += 1

    def equals(self, server: SimulatedApiServer, resource: str) -> bool:
        items = decoded(server.list_page(resource, "", 0, ""))["items"]
        metadata = [item["metadata"] for item in items]
        told = {ObjectKey(m.get("namespace", ""), m["name"], m["uid"]): m["resourceVersion"] for m in metadata}
        return told == self.objects


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread brings about; bounded."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def anyio_backend():
    return "asyncio"


FAST = Pace(silence_s=0.4, backoff_first_s=0.02, backoff_most_s=0.1, healthy_after_s=0.3)


@pytest.mark.anyio
class TestReflectedOverHttp:
    """The real client and reflector against the server, over HTTP."""

    @pytest.fixture
    async def live(self):
        api = SimulatedApiServer(history_events=50)
        with ServedApiServer(api, bookmark_s=0.05) as served:
            kube = KubeClient.from_url(served.url)
            mirror = Mirror()
            thread = ReflectorThread(kube, PODS, mirror, FAST)
            yield api, thread, mirror
            assert await thread.stop()
            await kube.close()

    async def test_the_mirror_follows_creates_changes_and_deletes(self, live):
        api, thread, mirror = live
        pod(api, "before")
        thread.start()
        await until(lambda: thread.stats.synced)
        pod(api, "after")
        api.bind("ml", "before", binding())
        api.delete("pods", "ml", "after", {})
        pod(api, "after")
        await until(lambda: mirror.equals(api, "pods"))
        assert thread.stats.lists == 1

    async def test_a_cut_watch_is_resumed_without_a_list(self, live):
        api, thread, mirror = live
        api.faults.add(Fault("watch", "pods", FaultKind.CUT), times=3)
        thread.start()
        await until(lambda: thread.stats.watches >= 4)
        pod(api, "a")
        await until(lambda: mirror.equals(api, "pods"))
        assert api.faults.calls("list", "pods") == 1

    async def test_a_history_that_was_compacted_leads_to_a_list_that_tells_the_difference(self, live):
        api, thread, mirror = live
        pod(api, "gone")
        pod(api, "stays")
        thread.start()
        await until(lambda: mirror.lists == 1)
        with api.lock:  # The watch sees the deletion only after it was compacted away.
            api.delete("pods", "ml", "gone", {})
            api.collections["pods"].forget_history()
        await until(lambda: mirror.equals(api, "pods"))
        assert [key.name for key in mirror.objects] == ["stays"]
        assert (thread.stats.gone, thread.stats.lists) == (1, 2)

    async def test_a_half_open_watch_is_left_after_the_silence(self, live):
        api, thread, mirror = live
        api.faults.add(Fault("watch", "pods", FaultKind.SILENCE))
        thread.start()
        await until(lambda: mirror.lists == 1)
        pod(api, "a")
        await until(lambda: mirror.equals(api, "pods"))
        assert (thread.stats.lists, thread.stats.errors) == (1, 1)

    async def test_an_idle_cluster_is_told_from_a_silent_one_by_bookmarks(self, live):
        _, thread, _ = live
        thread.start()
        await until(lambda: thread.stats.bookmarks >= 12)  # Longer than the silence that would end the watch.
        assert (thread.stats.watches, thread.stats.errors) == (1, 0)

    async def test_a_poison_object_does_not_stop_the_others(self, live):
        api, thread, mirror = live
        thread.start()
        await until(lambda: thread.stats.synced)
        api.create("pods", "ml", {"metadata": {"name": "bad"}, "spec": {"containers": 7}})
        pod(api, "good")
        await until(lambda: len(mirror.objects) == 1)
        assert (thread.stats.skips, thread.stats.lists) == (1, 1)

    async def test_nodes_are_reflected_too(self):
        api = SimulatedApiServer()
        for number in range(600):
            api.create("nodes", "", {"metadata": {"name": f"n{number:03}"}})
        with ServedApiServer(api) as served:
            kube, mirror = KubeClient.from_url(served.url), Mirror()
            thread = ReflectorThread(kube, NODES, mirror, FAST)
            thread.start()
            await until(lambda: mirror.lists == 1)
            assert mirror.equals(api, "nodes")
            assert await thread.stop()
            await kube.close()
