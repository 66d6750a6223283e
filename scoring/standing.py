"""What of an evaluation stays as it is while a node does, so that it need not be worked out again.

For a request of one container, without a demand on topology, most of the work depends on the node alone. That part is
kept as a value; when some rows change, those rows are worked out anew. What passes by itself - measured load, scarcity
in the fleet - is added when scores are asked for. The result equals ``placement.place`` to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from scoring.candidates import Candidates
from scoring.feasibility import one_by_one
from scoring.fleet import BoolArray, ByteArray, Fleet, FloatArray
from scoring.greedy import pick
from scoring.ground import survey
from scoring.helper import Helper, Question
from scoring.needs import Need
from scoring.outlook import Outlook
from scoring.policies.load import load_value
from scoring.registry import Policy
from scoring.request import PodRequest, Topology
from scoring.status import Code

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Standing:
    """The lasting part of one request's evaluation by one policy, at ``generation`` of the fleet.

    ``code``, ``reason``  shape (nodes,), as in ``Placements``
    ``fits``, ``value``   shape (width, nodes): where the ask fits, and the lasting part of each device's value
    ``rest_milli``, ``left_milli``  shape (width, nodes): what each device has left now, and would have after
    """

    generation: int
    code: ByteArray
    reason: ByteArray
    fits: BoolArray
    value: FloatArray
    rest_milli: npt.NDArray[np.int16]
    left_milli: npt.NDArray[np.int16]


def can_stand(request: PodRequest) -> bool:
    """Return whether a request's evaluation has a lasting part that can be told apart."""
    if len(request.containers) != 1:
        return False
    return request.containers[0].count == 1 or request.topology is Topology.ANY


def stand(request: PodRequest, fleet: Fleet, policy: Policy, outlook: Outlook) -> Standing:
    """Work the lasting part out for every node."""
    helped = _helped(request, fleet, policy, outlook)
    if helped is not None:
        helper, question = helped
        columns = _blank(fleet)
        helper.stand(question, np.arange(len(fleet)), columns)
        return columns
    ground = survey(request, fleet, policy, outlook)
    code, reason = one_by_one(ground)
    fits = ground.fits(0, ground.free_mib, ground.free_milli)
    view = ground.candidates(0, fits, ground.free_mib, ground.free_milli)
    value = policy.standing_value(view)
    rest, left = view.rest_milli.astype(np.int16), view.left_milli.astype(np.int16)
    return Standing(fleet.generation, code, reason, fits, value, rest, left)


def stand_again(
    before: Standing, request: PodRequest, fleet: Fleet, policy: Policy, outlook: Outlook, rows: Rows
) -> Standing:
    """Return the lasting part with these rows worked out anew; rows and slots that are new must be among them.

    What was before is used up: only its ``code`` and ``reason``, which others may hold, stay as they are.
    """
    width, count = fleet.kind.shape
    if before.value.shape != (width, count):
        before = _grown(before, width, count)
    if not len(rows):
        return replace(before, generation=fleet.generation)
    told = before.code.copy(), before.reason.copy()
    after = Standing(fleet.generation, *told, before.fits, before.value, before.rest_milli, before.left_milli)
    helped = _helped(request, fleet, policy, outlook)
    if helped is not None:
        helper, question = helped
        helper.stand(question, rows, after)
    else:
        found = stand(request, fleet.take(rows), policy, outlook)
        for name in _COLUMNS:
            getattr(after, name)[..., rows] = getattr(found, name)
    return after


def scores(
    standing: Standing,
    request: PodRequest,
    fleet: Fleet,
    policy: Policy,
    outlook: Outlook,
    loads: FloatArray | None = None,
) -> FloatArray:
    """Return the score of every node as it is now, 0 where nothing fits, shape (nodes,).

    ``loads`` is what ``policies.load`` says of the fleet's devices, where the caller knows it.
    """
    count = request.containers[0].count
    helped = _helped(request, fleet, policy, outlook)
    if helped is not None and count == 1:
        helper, question = helped
        return helper.scores(question, standing, _loads(fleet, loads))
    value = values(standing, request, fleet, policy, outlook, loads)
    if count == 1:
        score = np.where(standing.fits, value, np.float32(0)).max(axis=0)
    else:
        _, score, _ = pick(fleet, request.topology, count, standing.fits, value, value)
    fits = standing.code == Code.FIT
    return np.where(fits, np.minimum(score, np.float32(1)), np.float32(0))


def values(
    standing: Standing,
    request: PodRequest,
    fleet: Fleet,
    policy: Policy,
    outlook: Outlook,
    loads: FloatArray | None = None,
) -> FloatArray:
    """Return the value of every device as it is now; where the ask does not fit it means nothing."""
    helped = _helped(request, fleet, policy, outlook)
    if helped is not None:
        helper, question = helped
        return helper.values(question, standing, _loads(fleet, loads))
    ask = request.containers[0]
    nothing = Need(fleet.booked_mib, fleet.booked_milli, standing.fits)
    rest, left = standing.rest_milli.astype(np.int32), standing.left_milli.astype(np.int32)
    view = Candidates(request, ask, fleet, outlook, nothing, standing.fits, rest, left, loads)
    value: FloatArray = standing.value + policy.passing_value(view)
    return value


def _helped(request: PodRequest, fleet: Fleet, policy: Policy, outlook: Outlook) -> tuple[Helper, Question] | None:
    """Return the policy's helper with what to ask it, where it can do the work."""
    question = Question(request, fleet, policy.weights, outlook)
    return (policy.helper, question) if policy.helper is not None and policy.helper.can_do(question) else None


def _loads(fleet: Fleet, known: FloatArray | None) -> FloatArray:
    return load_value(fleet) if known is None else known


def _blank(fleet: Fleet) -> Standing:
    """Return columns for every row, to be filled in."""
    shape = fleet.kind.shape
    return Standing(
        fleet.generation,
        np.empty(len(fleet), np.uint8),
        np.empty(len(fleet), np.uint8),
        np.empty(shape, np.bool_),
        np.empty(shape, np.float32),
        np.empty(shape, np.int16),
        np.empty(shape, np.int16),
    )


_COLUMNS = ("code", "reason", "fits", "value", "rest_milli", "left_milli")


def _grown(before: Standing, width: int, count: int) -> Standing:
    """Return the same with room for more slots and rows: refused until they are worked out."""
    slots, rows = width - before.value.shape[0], count - before.value.shape[1]
    return Standing(
        before.generation,
        np.pad(before.code, (0, rows)),
        np.pad(before.reason, (0, rows)),
        np.pad(before.fits, ((0, slots), (0, rows))),
        np.pad(before.value, ((0, slots), (0, rows))),
        np.pad(before.rest_milli, ((0, slots), (0, rows))),
        np.pad(before.left_milli, ((0, slots), (0, rows))),
    )
