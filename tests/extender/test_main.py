"""Where the served extender finds its API server."""

from pathlib import Path

import pytest

from extender.__main__ import connect, options_of
from extender.errors import KubeUnreachable
from extender.settings import InvalidSettings, load_settings


def test_kubeconfig_that_cannot_be_read_is_told_with_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANGRAM_KUBECONFIG", str(tmp_path / "none.kubeconfig"))
    with pytest.raises(KubeUnreachable, match=r"none\.kubeconfig"):
        connect(load_settings({}))


def test_two_ways_to_the_api_server_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANGRAM_KUBECONFIG", "/etc/tangram/kubeconfig")
    monkeypatch.setenv("TANGRAM_API_SERVER", "http://127.0.0.1:8001")
    with pytest.raises(InvalidSettings, match=r"kubeconfig: found '/etc/tangram/kubeconfig' beside api_server"):
        load_settings({})


def test_without_either_the_pods_own_cluster_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubeUnreachable, match="service account of this pod"):
        connect(load_settings({}))


def test_calls_to_the_api_server_are_bounded_as_the_settings_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANGRAM_KUBE_TIMEOUT_S", "0.75")
    options = options_of(load_settings({}))
    assert (options.limits.connect_timeout_s, options.limits.read_timeout_s) == (0.75, 0.75)
    assert options.limits.list_timeout_s > options.limits.read_timeout_s
    assert options.strict_x509


def test_certificates_without_key_identifiers_are_accepted_where_the_operator_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TANGRAM_KUBE_STRICT_X509", "false")
    assert not options_of(load_settings({})).strict_x509
