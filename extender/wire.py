"""kube-scheduler's extender/v1 JSON: what its verbs send, and the answers it understands.

The Go structs carry no tags, so keys are spelled as Go's fields (``NodeNames``, ``PodUID``, ``NumPDBViolations``); the
golden files under ``tests/contract`` pin every one. Names come in and go out as bytes: an answer for thousands of nodes
is joined from names that are JSON already, grouped by what is said of them, and no object per node is made.
Source of every shape: ``k8s.io/kube-scheduler/extender/v1/types.go``, unchanged since July 2020.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from extender.errors import MalformedBody, NotCacheCapable
from extender.native_names import Endings, NameTable
from extender.objects import Pod
from scoring.status import Code, Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

_T = TypeVar("_T")
_NULL = b"null"


class NodesArgs(msgspec.Struct, frozen=True, gc=False):
    """What filter and prioritize are asked: a pod, and the nodes' names as the JSON array that was sent.

    ``body`` is where they stand in, while nobody has seen that the names are such an array.
    """

    pod: Pod
    names_json: bytes
    body: bytes | None = None

    def checked(self) -> NodesArgs:
        """Return the same with names that are an array; raise MalformedBody where there are none."""
        return self if self.body is None else decode_nodes_args(self.body)

    def names(self) -> list[str]:
        """Return the nodes' names in the order in which they were sent; raise MalformedBody unless they are strings."""
        return _decode(self.names_json, _NAMES)


class BindArgs(msgspec.Struct, frozen=True, gc=False):
    """What bind is asked: this pod, on this node."""

    pod_name: str = msgspec.field(name="PodName")
    pod_namespace: str = msgspec.field(name="PodNamespace")
    pod_uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


class Victim(msgspec.Struct, frozen=True, gc=False):
    """A pod to evict, by UID."""

    uid: str = msgspec.field(name="UID")


class Victims(msgspec.Struct, frozen=True, gc=False):
    """The pods to evict from one node, and how many disruption budgets that breaks."""

    pods: tuple[Victim, ...] | None = msgspec.field(name="Pods", default=None)
    pdb_violations: int = msgspec.field(name="NumPDBViolations", default=0)

    def uids(self) -> tuple[str, ...]:
        """Return the victims' UIDs; empty in a placeholder that schedulers after 1.37 send."""
        return tuple(victim.uid for victim in self.pods or ())


class PreemptArgs(msgspec.Struct, frozen=True, gc=False):
    """What preempt is asked: a pod, and for each node the pods that kube-scheduler would evict there."""

    pod: Pod
    victims: Mapping[str, Victims]


class _ExtenderArgs(msgspec.Struct, frozen=True):
    pod: Pod | None = msgspec.field(name="Pod", default=None)
    nodes: msgspec.Raw = msgspec.field(name="Nodes", default=msgspec.Raw(_NULL))
    node_names: msgspec.Raw = msgspec.field(name="NodeNames", default=msgspec.Raw(_NULL))


class _PreemptionArgs(msgspec.Struct, frozen=True):
    pod: Pod | None = msgspec.field(name="Pod", default=None)
    victims: msgspec.Raw = msgspec.field(name="NodeNameToVictims", default=msgspec.Raw(_NULL))
    meta_victims: dict[str, Victims] | None = msgspec.field(name="NodeNameToMetaVictims", default=None)


class _FilterResult(msgspec.Struct, frozen=True):
    nodes: None = msgspec.field(name="Nodes", default=None)
    node_names: Sequence[str] | None = msgspec.field(name="NodeNames", default=None)
    failed: Mapping[str, str] = msgspec.field(name="FailedNodes", default_factory=dict)
    unresolvable: Mapping[str, str] = msgspec.field(name="FailedAndUnresolvableNodes", default_factory=dict)
    error: str = msgspec.field(name="Error", default="")


class _BindingResult(msgspec.Struct, frozen=True):
    error: str = msgspec.field(name="Error", default="")


class _PreemptionResult(msgspec.Struct, frozen=True):
    victims: Mapping[str, Victims] = msgspec.field(name="NodeNameToMetaVictims")


_NAMES = msgspec.json.Decoder(list[str])
_LAST_FIELD = b'"NodeNames":['
_LAST_FIELD_NULL = b'"NodeNames":null}'
_BACKSLASH = ord("\\")
_EXTENDER_ARGS = msgspec.json.Decoder(_ExtenderArgs)
_BINDING_ARGS = msgspec.json.Decoder(BindArgs)
_PREEMPTION_ARGS = msgspec.json.Decoder(_PreemptionArgs)
_ENCODER = msgspec.json.Encoder()


def decode_nodes_args(body: bytes) -> NodesArgs:
    """Read the body of filter or prioritize (``ExtenderArgs``).

    Names stay undecoded: most answers never need them as strings. Raises MalformedBody, or NotCacheCapable where whole
    nodes were sent.
    """
    args = _decode(body, _EXTENDER_ARGS)
    names = bytes(args.node_names)
    if names == _NULL:
        if bytes(args.nodes) != _NULL:
            raise NotCacheCapable
        msg = "NodeNames: found null, valid is a list of node names"
        raise MalformedBody(msg)
    if not names.startswith(b"["):
        msg = "NodeNames: found no list, valid is a list of node names"
        raise MalformedBody(msg)
    return NodesArgs(_required(args.pod), names)


def split_nodes_args(body: bytes) -> NodesArgs | None:
    """Read the same body, with the names neither decoded nor checked, where they come last; None for any other.

    With ``null`` in the names' place the rest must be a whole body, so the names are a value of it whatever they are. A
    quote behind a backslash would be inside of a name.
    """
    at = body.rfind(_LAST_FIELD)
    if at < 1 or body[at - 1] == _BACKSLASH or not body.endswith(b"]}"):
        return None
    try:
        args = _EXTENDER_ARGS.decode(body[:at] + _LAST_FIELD_NULL)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if args.pod is None:
        return None
    return NodesArgs(args.pod, body[at + len(_LAST_FIELD) - 1 : -1], body)


def decode_bind_args(body: bytes) -> BindArgs:
    """Read the body of bind (``ExtenderBindingArgs``); raise MalformedBody if a field is missing or empty."""
    args = _decode(body, _BINDING_ARGS)
    for field in args.__struct_fields__:
        if not getattr(args, field):
            msg = f"{_BIND_SPELLING[field]}: found an empty string, valid is a name"
            raise MalformedBody(msg)
    return args


def decode_preempt_args(body: bytes) -> PreemptArgs:
    """Read the body of preempt (``ExtenderPreemptionArgs``); raise MalformedBody or NotCacheCapable."""
    args = _decode(body, _PREEMPTION_ARGS)
    if args.meta_victims is None and bytes(args.victims) != _NULL:
        raise NotCacheCapable
    return PreemptArgs(_required(args.pod), args.meta_victims or {})


def filter_answer(
    passed: Sequence[str], failed: Mapping[str, str], unresolvable: Mapping[str, str], error: str = ""
) -> bytes:
    """Return filter's answer; with ``error`` the call as a whole failed and the scheduler reads nothing else."""
    if error:
        return _ENCODER.encode(_FilterResult(error=error))
    return _ENCODER.encode(_FilterResult(node_names=passed, failed=failed, unresolvable=unresolvable))


def quote(names: Sequence[str]) -> NDArray[np.object_]:
    """Return names as the JSON strings (bytes) from which the answers for many nodes are joined, in the same order."""
    column = np.empty(len(names), dtype=object)
    column[:] = [_ENCODER.encode(name) for name in names]
    return column


def filter_answer_columns(
    names_json: NDArray[np.object_], codes: NDArray[np.integer], reasons: NDArray[np.integer]
) -> bytes:
    """Return filter's answer from one row per node: quoted name, ``Code``, and the reason's place in ``REASONS``.

    ``reasons`` is not looked at where the code is FIT. Equal to ``filter_answer`` but for the order inside the maps.
    """
    return filter_answer_and_passed(names_json, codes, reasons)[0]


def filter_answer_and_passed(
    names_json: NDArray[np.object_], codes: NDArray[np.integer], reasons: NDArray[np.integer]
) -> tuple[bytes, bytes]:
    """Return filter's answer as ``filter_answer_columns`` does, and the JSON array of the names that passed."""
    groups = _grouped(names_json, filter_keys(codes, reasons))
    return _filter_answer({key: _entries(key, names) for key, names in groups})


def filter_answer_by_table(table: NameTable, rows: NDArray[np.intp], keys: NDArray[np.uint8]) -> tuple[bytes, bytes]:
    """Return the same as ``filter_answer_and_passed``, for nodes in a table, by their ``filter_keys``."""
    return _filter_answer(table.join(rows, keys, b"", _REFUSED_ENDINGS))


def filter_keys(codes: NDArray[np.integer], reasons: NDArray[np.integer]) -> NDArray[np.uint8]:
    """Return one number a node for what is said of it, in the order in which nodes are told; FIT_KEY where it fits."""
    keys = np.where(codes == Code.UNRESOLVABLE, reasons + _UNRESOLVABLE_KEY, reasons).astype(np.uint8)
    keys[codes == Code.FIT] = FIT_KEY
    return keys


def _filter_answer(groups: dict[int, bytes] | dict[int, memoryview]) -> tuple[bytes, bytes]:
    """Return filter's answer, and its list of names that passed, from the entries of each key, keys ascending."""
    passed = b"".join((b"[", groups.pop(FIT_KEY, b""), b"]"))
    answer = (
        b'{"Nodes":null,"NodeNames":',
        passed,
        b',"FailedNodes":{',
        *_with_commas([entries for key, entries in groups.items() if key < _UNRESOLVABLE_KEY]),
        b'},"FailedAndUnresolvableNodes":{',
        *_with_commas([entries for key, entries in groups.items() if key >= _UNRESOLVABLE_KEY]),
        b'},"Error":""}',
    )
    return b"".join(answer), passed


def _with_commas(parts: Sequence[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield the parts with commas between them, to be joined with others in one go: they are long."""
    for number, part in enumerate(parts):
        if number:
            yield b","
        yield part


def prioritize_answer(names_json: NDArray[np.object_], scores: NDArray[np.integer]) -> bytes:
    """Return prioritize's answer (``HostPriorityList``): a bare array with an integer for each quoted name.

    Hosts come grouped by score; the scheduler adds them up by name. Raises TypeError for scores that are not integers:
    one ``7.0`` makes the scheduler drop the whole answer without a word.
    """
    if scores.dtype.kind not in "iu":
        msg = f"scores are {scores.dtype}, the scheduler reads integers only"
        raise TypeError(msg)
    groups = []
    for score, names in _grouped(names_json, scores):
        ending = b',"Score":%d}' % score
        groups.append(_HOST + (ending + b"," + _HOST).join(names) + ending)
    return b"[" + b",".join(groups) + b"]"


def prioritize_answer_by_table(table: NameTable, rows: NDArray[np.intp], scores: NDArray[np.integer]) -> bytes:
    """Return the same as ``prioritize_answer``, for nodes whose names are in a table; scores are 0 to 10."""
    groups = table.join(rows, scores.astype(np.uint8), _HOST, _SCORED_ENDINGS)
    return b"".join((b"[", *_with_commas([*groups.values()]), b"]"))


def bind_answer(error: str = "") -> bytes:
    """Return bind's answer; an empty ``error`` says that the pod is bound."""
    return _ENCODER.encode(_BindingResult(error))


def preempt_answer(victims: Mapping[str, Victims]) -> bytes:
    """Return preempt's answer: the nodes to keep, and whom to evict there. It has no way to tell an error."""
    return _ENCODER.encode(_PreemptionResult(victims))


REASONS: tuple[Reason, ...] = tuple(Reason)
"""Reasons by the number that stands for each in ``filter_answer_columns``."""

_UNRESOLVABLE_KEY = 64
FIT_KEY = 255
assert len(REASONS) <= _UNRESOLVABLE_KEY

_SENTENCES = tuple(_ENCODER.encode(reason.sentence) for reason in REASONS)
_BIND_SPELLING = {field.name: field.encode_name for field in msgspec.structs.fields(BindArgs)}


_REFUSED = {key + number: b":" + _SENTENCES[number] for key in (0, _UNRESOLVABLE_KEY) for number in range(len(REASONS))}
"""What follows the name of a node in a map of filter's answer, by key."""

_REFUSED[FIT_KEY] = b""
_HOST = b'{"Host":'
_REFUSED_ENDINGS = Endings(_REFUSED)
_SCORED_ENDINGS = Endings({score: b',"Score":%d}' % score for score in range(11)})


def _entries(key: int, names: list[bytes]) -> bytes:
    """Return what filter's answer says of the nodes of one key: names alone, or entries of a map."""
    ending = _REFUSED[key]
    return (ending + b",").join(names) + ending


def _grouped(names: NDArray[np.object_], keys: NDArray[np.integer]) -> list[tuple[int, list[bytes]]]:
    """Return the names of each key, keys ascending, names of one key in their order."""
    if len(keys) == 0:
        return []
    if keys.min() >= 0 and keys.max() < _UNRESOLVABLE_KEY:
        keys = keys.astype(np.uint8)  # Bytes are sorted in a tenth of the time of words.
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = [0, *(np.flatnonzero(ordered[1:] != ordered[:-1]) + 1).tolist(), len(keys)]
    listed = names[order].tolist()
    return [(int(ordered[start]), listed[start:end]) for start, end in itertools.pairwise(starts)]


def _decode(body: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        msg = f"body of {len(body)} bytes cannot be read: {error}"
        raise MalformedBody(msg) from error


def _required(pod: Pod | None) -> Pod:
    if pod is None:
        msg = "Pod: found nothing, valid is a pod"
        raise MalformedBody(msg)
    return pod
