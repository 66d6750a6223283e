"""What is remembered of a request must equal what would be found anew."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.evaluations import Evaluations
from extender.settings import Settings
from extender.store import ClusterStore
from node_agent.report import Health
from scoring.outlook import Outlook
from scoring.pipeline import evaluate
from scoring.status import Code
from tests.support.builders import bound, device, node_facts, placing, report, share_request, store_with, whole_request

REQUESTS = (share_request(4000), share_request(None, 500), whole_request(2))

changes = st.one_of(
    st.tuples(st.just("load"), st.integers(0, 5), st.floats(0, 1)),
    st.tuples(st.just("health"), st.integers(0, 5), st.sampled_from(list(Health))),
    st.tuples(st.just("assume"), st.integers(0, 5), st.integers(1, 16_000)),
    st.tuples(st.just("remove"), st.integers(0, 5), st.none()),
    st.tuples(st.just("add"), st.integers(0, 9), st.none()),
)


def apply(store: ClusterStore, step: int, change: tuple[str, int, object]) -> None:
    what, number, value = change
    node, now = f"n{number}", 1000.0 + step
    if what == "add":
        store.set_node(node_facts(node))
    elif what == "remove":
        store.remove_node(node)
    elif store.node(node) is not None and what == "assume":
        store.assume(placing(share_request(value), f"p{step}", node), now)  # type: ignore[arg-type]
    elif store.node(node) is not None:
        key = "utilisation" if what == "load" else "health"
        store.apply_report(
            report(node, *(device(f"{node}-{at}", total_mib=16_000, **{key: value}) for at in "ab")), now
        )


class TestRefreshing:
    """A judgement kept up to date row by row equals one made from nothing."""

    @settings(max_examples=40, deadline=None)
    @given(st.lists(changes, max_size=25))
    def test_kept_up_to_date_equals_made_anew(self, steps: list[tuple[str, int, object]]) -> None:
        store, kept = ClusterStore(Settings()), Evaluations(Settings())
        for number in range(4):
            apply(store, 0, ("add", number, None))
            apply(store, 0, ("load", number, 0.5))
        for step, change in enumerate(steps):
            apply(store, step, change)
            for request in REQUESTS:
                found = kept.judge(request, store.snapshot())
                anew = Evaluations(Settings()).judge(request, store.snapshot())
                assert np.array_equal(found.code, anew.code)
                assert np.array_equal(found.reason, anew.reason)
                assert np.array_equal(found.score, anew.score)
                plain = evaluate(request, store.snapshot(), anew.policy, Outlook.empty())
                assert np.array_equal(found.score, plain.score)


def test_only_rows_that_changed_are_worked_out_anew() -> None:
    store, evaluations = store_with(device()), Evaluations(Settings())
    evaluations.judge(share_request(), store.snapshot())
    (standing,) = evaluations._standings.values()
    evaluations.judge(share_request(), store.snapshot())
    assert next(iter(evaluations._standings.values())) is standing


def test_what_is_remembered_is_bounded() -> None:
    store, evaluations = store_with(device()), Evaluations(Settings(evaluations_kept=3))
    for number in range(10):
        evaluations.judge(share_request(1000 + number), store.snapshot())
    assert len(evaluations._standings) == 3


def test_what_is_kept_for_a_nominated_pod_is_refused_with_its_own_reason() -> None:
    store, evaluations = store_with(device()), Evaluations(Settings())
    found = evaluations.judge(share_request(), store.snapshot(), {(0, 0): (80_000, 900, 1)})
    assert found.code[0] == Code.UNSCHEDULABLE
    assert evaluations.judge(share_request(), store.snapshot()).code[0] == Code.FIT


def test_an_outlook_is_learned_from_what_was_asked() -> None:
    store, evaluations = store_with(device()), Evaluations(Settings())
    store.set_pod(bound("a"))
    fleet = store.snapshot()
    assert evaluations.due(fleet) is None
    for number in range(64):
        evaluations.note(f"uid-{number}", share_request(), fleet)
    mix = evaluations.due(fleet)
    assert mix is not None
    evaluations.adopt(Outlook.of(mix, fleet.kinds), fleet.kinds, fleet)
    assert evaluations.outlook.knows_demand
    assert evaluations.outlook.prospect is not None
    assert evaluations.due(fleet) is None


def test_the_first_outlooks_come_soon_and_later_ones_as_more_is_known() -> None:
    store, evaluations = store_with(device()), Evaluations(Settings())
    fleet, planned = store.snapshot(), []
    for number in range(2000):
        evaluations.note(f"uid-{number}", share_request(), fleet)
        mix = evaluations.due(fleet)
        if mix is not None:
            planned.append(number + 1)
            evaluations.adopt(Outlook.of(mix, fleet.kinds), fleet.kinds, fleet)
    assert planned[:6] == [1, 17, 33, 65, 129, 257]
    assert all(after - before == 512 for before, after in itertools.pairwise(planned[7:]))


def test_new_kinds_of_device_are_planned_for_at_once_where_anything_is_known() -> None:
    store, evaluations = store_with(), Evaluations(Settings())
    evaluations.note("uid", share_request(), store.snapshot())
    assert evaluations.due(store.snapshot()) is None, "there is nothing to plan for"
    store = store_with(device())
    assert evaluations.due(store.snapshot()) is not None


def test_what_comes_while_an_outlook_is_worked_out_is_planned_for_next_time() -> None:
    store, evaluations = store_with(device()), Evaluations(Settings())
    before = store.snapshot()
    evaluations.note("uid", share_request(), before)
    mix = evaluations.due(before)
    assert mix is not None
    for number in range(20):
        evaluations.note(f"uid-{number}", share_request(), before)
    store.apply_report(report("n1", device("GPU-1", name="Tesla T4", compute_capability=(7, 5))), 1000.0)
    after = store.snapshot()
    evaluations.adopt(Outlook.of(mix, before.kinds), before.kinds, after)
    assert evaluations.due(after) is not None, "there is a new kind of device"
    evaluations.adopt(Outlook.of(mix, after.kinds), after.kinds, after)
    assert evaluations.due(after) is None
    for number in range(20):
        evaluations.note(f"more-{number}", share_request(), after)
    mix = evaluations.due(after)
    assert mix is not None
    for number in range(40):
        evaluations.note(f"late-{number}", share_request(), after)
    evaluations.adopt(Outlook.of(mix, after.kinds), after.kinds, after)
    for number in range(10):
        evaluations.note(f"last-{number}", share_request(), after)
    assert evaluations.due(after) is not None, "the pods noted while it was worked out count too"


def test_a_pod_that_is_tried_again_and_again_teaches_once() -> None:
    store, evaluations = store_with(device()), Evaluations(Settings())
    store.set_pod(bound("a"))
    for _ in range(100):
        evaluations.note("uid", share_request(), store.snapshot())
    assert evaluations._notes == 1


def test_the_setting_turns_the_helper_off() -> None:
    store = store_with(device())
    alone, helped = (Evaluations(Settings(helper=helper)) for helper in (False, True))
    assert all(policy.helper is None for policy in alone.policies.values())
    for request in REQUESTS:
        found = [each.judge(request, store.snapshot()) for each in (alone, helped)]
        assert np.array_equal(found[0].code, found[1].code)
        assert np.array_equal(found[0].score, found[1].score)
