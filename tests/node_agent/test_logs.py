import json
import logging

import pytest

from node_agent.logs import JsonFormatter, set_up


def test_any_message_is_one_json_line():
    record = logging.LogRecord("node_agent.x", logging.WARNING, "", 0, 'said "%s"\nand left', ("no",), None)
    line = json.loads(JsonFormatter().format(record))
    assert (line["event"], line["level"], line["logger"]) == ('said "no"\nand left', "warning", "node_agent.x")


def test_traceback_is_kept():
    try:
        raise RuntimeError("broken")
    except RuntimeError as problem:
        record = logging.LogRecord(
            "x", logging.ERROR, "", 0, "failed", (), (RuntimeError, problem, problem.__traceback__)
        )
    assert "RuntimeError: broken" in json.loads(JsonFormatter().format(record))["exception"]


def test_level_that_does_not_exist_is_refused(monkeypatch):
    monkeypatch.setattr(logging.root, "handlers", [])
    with pytest.raises(ValueError, match="LOUD"):
        set_up("loud")
