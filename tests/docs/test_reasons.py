from __future__ import annotations

from scoring.conditions import parse_conditions
from scoring.outlook import Outlook
from scoring.pipeline import evaluate
from scoring.status import Code, Reason
from tests.docs.tables import rows
from tests.support.fleets import A100, BINPACK, GIB, asks, fleet, gpu, share, whole

_ROWS = {row["code"].strip("`"): row for row in rows("reasons.md", "code")}


def test_every_reason_has_a_row_in_the_order_of_the_enum():
    assert list(_ROWS) == [reason.value for reason in Reason]


def test_rows_show_what_the_scheduler_shows():
    assert {code: row["what kube-scheduler shows"] for code, row in _ROWS.items()} == {
        reason.value: reason.sentence for reason in Reason
    }


def test_every_row_says_what_it_means_and_what_to_do():
    for row in _ROWS.values():
        assert row["what it means"]
        assert row["what you can do"]
        assert row["kind"] in {"for good", "for now", "either"}


def test_kinds_are_what_the_core_answers():
    codes = {"for good": Code.UNRESOLVABLE, "for now": Code.UNSCHEDULABLE}
    of = fleet(a=[], b=[gpu(), gpu()], c=[gpu(A100, free_mib=0), gpu(A100, free_mib=0)])
    requests = (
        asks(share(20 * GIB)),
        asks(share(20 * GIB, count=2)),
        asks(whole(3)),
        asks(whole(2)),
        asks(share(GIB), conditions=parse_conditions({"tangram.dev/gpu-architecture": "ampere"})),
    )
    seen = set()
    for request in requests:
        found = evaluate(request, of, BINPACK, Outlook.empty())
        for code, number in zip(found.code.tolist(), found.reason.tolist(), strict=True):
            if code != Code.FIT:
                reason = list(Reason)[number]
                assert codes[_ROWS[reason.value]["kind"]] == code
                seen.add(reason)
    assert len(seen) >= 5
