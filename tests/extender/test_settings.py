"""Settings: what operators type, and everything that is wrong with it at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from extender.settings import InvalidSettings, Settings, load_settings


def load(monkeypatch: pytest.MonkeyPatch, file: Path | None = None, **environment: str) -> Settings:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    if file is not None:
        monkeypatch.setenv("TANGRAM_CONFIG", str(file))
    return load_settings()


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_need_nothing() -> None:
    settings = load_settings({})
    assert (settings.key_prefix, settings.stale_after_s, settings.policy) == ("tangram.dev/", 45.0, "binpack")


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]


def test_the_file_is_read_and_the_environment_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = write(tmp_path, "port: 9000\nstale_after_s: 90\npolicies:\n  mine: {packing: 1}\npolicy: mine\n")
    settings = load(monkeypatch, file, TANGRAM_PORT="9001")
    assert (settings.port, settings.stale_after_s, settings.policy) == (9001, 90.0, "mine")


def test_every_problem_is_reported_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = write(tmp_path, "prot: 1\nbind_deadline_s: -3\npolicies:\n  mine: {pakcing: 1}\n")
    with pytest.raises(InvalidSettings) as caught:
        load(monkeypatch, file, TANGRAM_STALE_AFTER="soon", TANGRAM_PORT="many")
    text = "\n".join(caught.value.problems)
    assert "TANGRAM_STALE_AFTER: no such setting, the nearest is TANGRAM_STALE_AFTER_S" in text
    assert "port: found 'many'" in text
    assert "prot: no such setting, the nearest is port" in text
    assert "bind_deadline_s: found -3" in text
    assert "unknown scorer 'pakcing' (nearest: packing)" in text
    assert len(caught.value.problems) == 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        pytest.param({"policy": "bestest"}, "valid are binpack, latency, spread", id="d9 unknown policy"),
        pytest.param({"stale_after_s": 10}, "more than heartbeat_s", id="stale before the next heartbeat"),
        pytest.param({"bind_deadline_s": 1}, "more than kube_timeout_s", id="no time for one call"),
        pytest.param({"prefix": "Tangram"}, "prefix", id="prefix that is no domain"),
        pytest.param({"prefix": "tangram.dev/"}, "prefix", id="prefix with its slash"),
    ],
)
def test_values_that_cannot_work_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, values: dict[str, object], message: str
) -> None:
    file = write(tmp_path, "".join(f"{key}: {value}\n" for key, value in values.items()))
    with pytest.raises(InvalidSettings, match=message):
        load(monkeypatch, file)


@pytest.mark.parametrize("text", ["- a\n- b\n", "{", "a: [", "\x00"])
def test_a_file_that_is_no_mapping_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidSettings, match="TANGRAM_CONFIG"):
        load(monkeypatch, write(tmp_path, text))


def test_an_empty_file_is_all_defaults(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert load(monkeypatch, write(tmp_path, "")) == Settings()


def test_a_file_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="cannot be read"):
        load(monkeypatch, tmp_path / "none.yaml")
