from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender import wire
from extender.errors import MalformedBody, NotCacheCapable, WireError
from extender.objects import Node
from scoring import feasibility
from scoring.status import Code, Reason

GOLDEN = Path(__file__).parents[1] / "contract" / "golden"


def golden(name: str) -> bytes:
    return (GOLDEN / f"{name}.json").read_bytes()


texts = st.lists(st.sampled_from([*'an"\\:[]{},', '"NodeNames":[', '":[']), max_size=5).map("".join)
field_names = st.sampled_from(["Pod", "Nodes", "NodeNames", "Other", 'a"NodeNames', 'a\\"NodeNames'])


def compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _value(name: str, told: list[str]) -> object:
    return {"metadata": {"name": "".join(told)}} if name == "Pod" else told


class TestRequests:
    def test_filter_reads_the_fields_it_uses_and_skips_what_it_does_not_know(self):
        args = wire.decode_nodes_args(golden("filter-request"))
        assert args.names() == ["gpu-a", "gpu-b", "gpu-c"]
        pod = args.pod
        assert (pod.metadata.name, pod.metadata.namespace, pod.metadata.uid[:4]) == ("train-0", "ml", "5d1e")
        assert pod.metadata.resource_version == "812"
        assert pod.annotations == {"tangram.dev/gpu-architecture": ">=ampere"}
        assert pod.metadata.owner_references[0].kind == "Job"
        assert [container.name for container in pod.all_containers()] == ["proxy", "main"]
        assert pod.spec.init_containers[0].restart_policy == "Always"
        main = pod.spec.containers[0]
        assert main.resources.requests["tangram.dev/gpu-memory"] == "8k"
        assert main.env[0].field_path == "metadata.annotations['tangram.dev/devices-main']"
        assert (pod.spec.scheduler_name, pod.spec.priority, pod.spec.overhead) == ("tangram", 100, {"cpu": "250m"})
        assert (pod.status.phase, pod.status.nominated_node_name) == ("Pending", "gpu-a")
        assert pod.status.conditions[0].reason == "Unschedulable"

    def test_names_are_kept_as_the_bytes_that_came(self):
        assert wire.decode_nodes_args(golden("filter-request")).names_json == b'["gpu-a", "gpu-b", "gpu-c"]'

    def test_no_node_at_all_is_a_list_too(self):
        assert wire.decode_nodes_args(b'{"Pod":{},"Nodes":null,"NodeNames":[]}').names() == []

    def test_whole_nodes_are_refused_with_the_setting_to_change(self):
        with pytest.raises(NotCacheCapable, match="nodeCacheCapable: true"):
            wire.decode_nodes_args(golden("filter-request-not-cache-capable"))

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param(b"", id="empty"),
            pytest.param(b"null", id="null"),
            pytest.param(b"[]", id="a list"),
            pytest.param(b"{}", id="nothing in it"),
            pytest.param(b'{"NodeNames":["a"]}', id="no pod"),
            pytest.param(b'{"Pod":null,"NodeNames":["a"]}', id="null for the pod"),
            pytest.param(b'{"Pod":{},"Nodes":null,"NodeNames":null}', id="null for both lists"),
            pytest.param(b'{"Pod":{},"NodeNames":"a"}', id="a name for the list"),
            pytest.param(b'{"Pod":{"spec":{"containers":{}}},"NodeNames":[]}', id="containers of another type"),
            pytest.param(b'{"Pod":{},"NodeNames":[', id="cut off"),
            pytest.param(b'\xff{"Pod":{}}', id="no text"),
            pytest.param(b'{"Pod":' + b"[" * 100_000, id="nested without end"),
            pytest.param(b'{"pod":{},"nodenames":[]}', id="keys that are not Go's"),
        ],
    )
    def test_bodies_that_cannot_be_read_are_a_typed_error(self, body: bytes):
        with pytest.raises(MalformedBody):
            wire.decode_nodes_args(body)

    def test_names_that_are_no_strings_are_found_when_they_are_read(self):
        args = wire.decode_nodes_args(b'{"Pod":{},"NodeNames":["a",1]}')
        with pytest.raises(MalformedBody):
            args.names()

    @given(st.binary(max_size=200))
    def test_any_bytes_are_read_or_refused(self, body: bytes):
        for decode in (wire.decode_nodes_args, wire.decode_bind_args, wire.decode_preempt_args):
            with pytest.raises(WireError):
                decode(body)

    @given(
        st.lists(st.tuples(field_names, st.lists(texts, max_size=3)), max_size=4),
        st.sampled_from(["}", "", "]}", "} "]),
    )
    def test_a_body_that_is_split_says_what_it_says_when_decoded(self, fields: list[tuple[str, list[str]]], end: str):
        """Whatever comes before, between and behind; names that can be read as they are are the names."""
        body = (
            "{" + ",".join(f"{compact(name)}:{compact(_value(name, told))}" for name, told in fields) + end
        ).encode()
        split = wire.split_nodes_args(body)
        if split is None:
            return
        try:
            names = msgspec.json.decode(split.names_json, type=list[str])
        except msgspec.DecodeError:
            names = None
        try:
            plain = wire.decode_nodes_args(body)
        except WireError:
            assert names is None
            return
        assert plain.pod == split.pod
        assert names is None or names == plain.names()
        assert split.checked() == plain

    def test_what_kube_scheduler_sends_is_split(self):
        body = json.dumps(
            {"Pod": {"metadata": {"name": "p"}}, "Nodes": None, "NodeNames": ["a", "b"]}, separators=(",", ":")
        )
        split = wire.split_nodes_args(body.encode())
        assert split is not None
        assert (split.pod.metadata.name, split.names_json) == ("p", b'["a","b"]')

    def test_bind_names_pod_and_node(self):
        args = wire.decode_bind_args(golden("bind-request"))
        assert (args.pod_name, args.pod_namespace, args.node) == ("train-0", "ml", "gpu-a")
        assert args.pod_uid == "5d1e2c2a-0000-4000-8000-000000000001"

    @pytest.mark.parametrize("key", ["PodName", "PodNamespace", "PodUID", "Node"])
    def test_bind_needs_each_of_its_fields(self, key: str):
        body = json.loads(golden("bind-request"))
        with pytest.raises(MalformedBody, match=key):
            wire.decode_bind_args(json.dumps(body | {key: ""}).encode())
        del body[key]
        with pytest.raises(MalformedBody, match=key):
            wire.decode_bind_args(json.dumps(body).encode())

    def test_preempt_reads_victims_by_uid_and_placeholders_without_any(self):
        args = wire.decode_preempt_args(golden("preempt-request"))
        assert {node: victims.uids() for node, victims in args.victims.items()} == {
            "gpu-b": ("u-2", "u-3"),
            "gpu-c": (),
        }
        assert args.victims["gpu-b"].pdb_violations == 1

    def test_preempt_with_whole_pods_is_refused_with_the_setting_to_change(self):
        with pytest.raises(NotCacheCapable, match="nodeCacheCapable: true"):
            wire.decode_preempt_args(b'{"Pod":{},"NodeNameToVictims":{"a":{"Pods":[]}},"NodeNameToMetaVictims":null}')

    def test_preempt_without_candidates_is_empty(self):
        body = b'{"Pod":{},"NodeNameToVictims":null,"NodeNameToMetaVictims":null}'
        assert wire.decode_preempt_args(body).victims == {}

    def test_nodes_are_read_in_part(self):
        node = msgspec.json.decode(golden("node"), type=Node)
        assert (node.metadata.name, node.metadata.uid, node.metadata.labels) == ("gpu-a", "n-1", {"zone": "a"})
        assert node.spec.unschedulable
        assert node.spec.taints[0].effect == "NoSchedule"
        assert node.status.capacity["tangram.dev/gpu-memory"] == "655360"
        assert node.status.allocatable == {"cpu": "63500m"}
        assert node.status.conditions[0].status == "True"


class TestAnswers:
    def test_filter_speaks_gos_spelling(self):
        reasons = {"gpu-b": Reason.INSUFFICIENT_MEMORY.sentence}
        answer = wire.filter_answer(["gpu-a"], reasons, {"gpu-c": Reason.NO_DEVICES.sentence})
        assert answer == golden("filter-answer").strip()

    def test_a_filter_that_failed_says_so_and_nothing_else(self):
        answer = wire.filter_answer(["gpu-a"], {"gpu-b": "x"}, {}, "tangram.dev/gpu: found '0'")
        assert answer == golden("filter-answer-error").strip()

    def test_columns_give_the_same_bytes(self):
        codes = np.array([Code.FIT, Code.UNSCHEDULABLE, Code.UNRESOLVABLE], np.uint8)
        numbers = [255, wire.REASONS.index(Reason.INSUFFICIENT_MEMORY), wire.REASONS.index(Reason.NO_DEVICES)]
        answer = wire.filter_answer_columns(wire.quote(["gpu-a", "gpu-b", "gpu-c"]), codes, np.array(numbers, np.uint8))
        assert answer == golden("filter-answer").strip()

    def test_reasons_have_the_numbers_that_the_core_gives_them(self):
        assert wire.REASONS == feasibility.REASONS

    def test_scores_come_grouped(self):
        answer = wire.prioritize_answer(wire.quote(["gpu-a", "gpu-b"]), np.array([10, 0]))
        assert answer == golden("prioritize-answer").strip()

    def test_no_score_at_all_is_an_empty_list(self):
        assert wire.prioritize_answer(wire.quote([]), np.array([], np.int64)) == b"[]"

    @pytest.mark.parametrize("scores", [np.array([7.0]), np.array(["7"]), np.array([True])])
    def test_scores_that_are_no_integers_never_leave(self, scores: np.ndarray):
        with pytest.raises(TypeError, match="integers"):
            wire.prioritize_answer(wire.quote(["gpu-a"]), scores)

    def test_scores_outside_the_contracts_range_are_passed_on_as_they_are(self):
        answer = json.loads(wire.prioritize_answer(wire.quote(["a", "b", "c"]), np.array([1000, -1, 300])))
        assert answer == [{"Host": "b", "Score": -1}, {"Host": "c", "Score": 300}, {"Host": "a", "Score": 1000}]

    def test_bind_answers_success_or_the_error(self):
        assert wire.bind_answer() == golden("bind-answer").strip()
        assert json.loads(wire.bind_answer('no "room"')) == {"Error": 'no "room"'}

    def test_preempt_gives_back_what_it_keeps(self):
        victims = wire.decode_preempt_args(golden("preempt-request")).victims
        assert wire.preempt_answer({"gpu-b": victims["gpu-b"]}) == golden("preempt-answer").strip()


names = st.lists(st.text(min_size=1, max_size=12), unique=True, max_size=30)


class TestColumns:
    """Law: the fast answer says what the plain one says, whatever the names."""

    @given(st.data(), names)
    def test_every_node_is_in_exactly_one_list_with_its_reason(self, data: st.DataObject, listed: list[str]):
        codes = data.draw(st.lists(st.sampled_from(Code), min_size=len(listed), max_size=len(listed)))
        reasons = data.draw(st.lists(st.sampled_from(Reason), min_size=len(listed), max_size=len(listed)))
        numbers = [
            255 if code is Code.FIT else wire.REASONS.index(reason) for code, reason in zip(codes, reasons, strict=True)
        ]
        rows = list(zip(listed, codes, reasons, strict=True))
        fast = wire.filter_answer_columns(wire.quote(listed), np.array(codes, np.uint8), np.array(numbers, np.uint8))
        plain = wire.filter_answer(
            [name for name, code, _ in rows if code is Code.FIT],
            {name: reason.sentence for name, code, reason in rows if code in (Code.ERROR, Code.UNSCHEDULABLE)},
            {name: reason.sentence for name, code, reason in rows if code is Code.UNRESOLVABLE},
        )
        assert json.loads(fast) == json.loads(plain)
        assert json.loads(fast)["NodeNames"] is not None

    @given(st.data(), names)
    def test_every_host_is_scored_once_with_an_integer(self, data: st.DataObject, listed: list[str]):
        scores = data.draw(st.lists(st.integers(0, 10), min_size=len(listed), max_size=len(listed)))
        answer = json.loads(wire.prioritize_answer(wire.quote(listed), np.array(scores, np.int32)))
        assert len(answer) == len(listed)
        assert {row["Host"]: row["Score"] for row in answer} == dict(zip(listed, scores, strict=True))
        assert all(type(row["Score"]) is int for row in answer)
