"""The table of troubles in docs/operations.md is that of the code."""

from extender.trouble import REASONS
from tests.docs.tables import rows


def test_every_event_about_a_device_in_trouble_has_a_row():
    table = rows("operations.md", "event", "kind", "what happened")
    assert {row["event"].strip("`"): row["kind"].strip("`") for row in table} == {
        reason: str(kind) for kind, reason in REASONS.items()
    }
