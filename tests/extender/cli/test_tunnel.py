"""The command line reaches an extender inside a cluster: port-forward, token, TLS, and what it says if it cannot."""

from __future__ import annotations

import json
import sys
import threading
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest

from extender.authorities import Subject, issue, make_authority
from extender.cli.commands import run
from extender.simulation.apiserver import SimulatedApiServer
from extender.simulation.apiserving import ServedApiServer
from tests.extender.cli.forwarder import NAMESPACE, Cluster, api_server
from tests.extender.cli.stage import ExtenderThread


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """An authority, and a leaf of it for the pod's name, as files."""
    now, folder = datetime.now(UTC), tmp_path_factory.mktemp("tls")
    made = make_authority("people", now)
    leaf = issue(made, Subject("tangram", ("tangram-0",)), now, timedelta(hours=1))
    for name, content in (("ca", made.certificate_pem), ("crt", leaf.certificate_pem), ("key", leaf.key_pem)):
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture(scope="module")
def target(authority):
    """A real extender behind TLS, where pods of the cluster listen."""
    tls = (str(authority / "crt"), str(authority / "key"))
    with ServedApiServer(SimulatedApiServer()) as api, ExtenderThread(api.url, {}, tls=tls) as (_, url):
        parts = urlsplit(url)
        yield parts.hostname, parts.port


@pytest.fixture
def tangram(monkeypatch, capsys):
    def call(url: str, *arguments: str) -> tuple[int, str, str]:
        monkeypatch.delenv("TANGRAM_URL", raising=False)
        monkeypatch.setattr(threading, "excepthook", threading.excepthook)
        monkeypatch.setattr(sys, "argv", ["kubectl-tangram", *arguments, "--api-server", url])
        with pytest.raises(SystemExit) as ended:
            run()
        told = capsys.readouterr()
        return int(ended.value.code or 0), told.out, told.err

    return call


def test_ready_extender_is_reached_by_port_forward(target, tangram):
    cluster = Cluster({"tangram-1": False, "tangram-0": True}, target)
    with api_server(cluster) as url:
        status, out, _ = tangram(url, "policy", "list", "-o", "json")
    assert status == 0
    assert json.loads(out)["default"] == "binpack"
    assert cluster.asked == [
        f"GET {NAMESPACE}/pods",
        f"POST {NAMESPACE}/serviceaccounts/tangram-viewer/token",
        f"GET {NAMESPACE}/pods/tangram-0/portforward",
    ]


def test_certificate_is_checked_where_an_authority_is_given(target, tangram, authority):
    with api_server(Cluster({"tangram-0": True}, target)) as url:
        assert tangram(url, "policy", "list", "--ca", str(authority / "ca"))[0] == 0


def test_other_authority_is_refused(target, tangram, tmp_path):
    (tmp_path / "ca").write_bytes(make_authority("others", datetime.now(UTC)).certificate_pem)
    with api_server(Cluster({"tangram-0": True}, target)) as url:
        status, _, err = tangram(url, "policy", "list", "--ca", str(tmp_path / "ca"))
    assert status == 3
    assert "certificate verify failed" in err


def test_user_without_the_right_to_a_token_goes_on_without(target, tangram):
    with api_server(Cluster({"tangram-0": True}, target, token="")) as url:
        assert tangram(url, "policy", "list")[0] == 0


@pytest.mark.parametrize(("pods", "said"), [({}, "none is there"), ({"tangram-0": False}, "1 there, none ready")])
def test_no_ready_extender_is_status_4(target, tangram, pods, said):
    with api_server(Cluster(pods, target)) as url:
        status, _, err = tangram(url, "top")
    assert status == 4
    assert f"no extender in namespace tangram-system: {said}" in err


def test_pod_that_does_not_listen_is_status_3(tangram):
    with api_server(Cluster({"tangram-0": True}, ("127.0.0.1", 9))) as url:
        status, _, err = tangram(url, "top")
    assert status == 3
    assert "does not answer" in err


def test_api_server_that_is_not_there_is_status_3(tangram):
    status, _, err = tangram("http://127.0.0.1:9", "top")
    assert status == 3
    assert "API server does not answer" in err
