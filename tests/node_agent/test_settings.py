import pytest

from node_agent.settings import SettingsError, load_settings


def test_environment_is_read_and_overridden():
    settings = load_settings(
        {
            "TANGRAM_AGENT_NODE": "a",
            "TANGRAM_AGENT_SWEEP_S": "5",
            "TANGRAM_AGENT_URLS": "http://x, ,http://y",
            "HOME": "/",
        },
        {"node": "b"},
    )
    assert (settings.node_name(), settings.sweep_s, settings.url_list()) == ("b", 5.0, ["http://x", "http://y"])


def test_every_problem_is_told_at_once():
    with pytest.raises(SettingsError) as refused:
        load_settings(
            {"TANGRAM_AGENT_SWEEP_S": "0", "TANGRAM_AGENT_METRICS_PORT": "70000", "TANGRAM_AGENT_HARTBEAT_S": "5"}
        )
    words = str(refused.value)
    for part in ("SWEEP_S", "'0'", "METRICS_PORT", "65535", "HARTBEAT_S", "no such setting", "heartbeat_s"):
        assert part in words


def test_empty_paths_mean_none():
    assert (load_settings({}).token_path(), load_settings({}).ca_path()) == (None, None)
