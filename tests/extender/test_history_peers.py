from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import threading
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import urllib3

from extender.authorities import Subject, make_authority
from extender.certificates import IssuedLeaf
from extender.history import Kept, PodHistory
from extender.history_file import Attempt, Bounds, HistoryFile
from extender.history_peers import Peers, merged
from extender.simulation.apiserver import SimulatedApiServer
from extender.simulation.apiserving import ServedApiServer
from tests.extender.cli.stage import ExtenderThread, wait_until_ready

FIRST, SECOND = "127.0.0.1", "127.0.0.2"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def _attempt(replica: str, at: float, **values: object) -> Attempt:
    defaults = {"verb": "filter", "outcome": "refused", "replica": replica}
    return Attempt("ml", "p", "uid-p", first_at=at, last_at=at, **{**defaults, **values})  # type: ignore[arg-type]


def _history(replica: str, *attempts: Attempt) -> PodHistory:
    return PodHistory(Kept(replica, True, "", None, 14.0, {}), attempts, ())


def test_attempts_of_all_replicas_come_newest_first():
    found, _ = merged(
        [_history("r0", _attempt("r0", 3.0), _attempt("r0", 1.0)), _history("r1", _attempt("r1", 2.0))], 10
    )
    assert [(each.replica, each.last_at) for each in found] == [("r0", 3.0), ("r1", 2.0), ("r0", 1.0)]


def test_what_a_replica_tells_twice_counts_once():
    own = _history("r0", _attempt("r0", 1.0))
    assert len(merged([own, own], 10)[0]) == 1


def test_limit_keeps_the_newest():
    found, _ = merged([_history("r0", *(_attempt("r0", float(at)) for at in range(9)))], 2)
    assert [each.last_at for each in found] == [8.0, 7.0]


@pytest.mark.anyio
async def test_name_without_addresses_is_told():
    async def nobody(host: str, port: int) -> list[str]:
        raise OSError("name not known")

    histories, states = await Peers("http://peers.invalid:1", resolve=nobody)("ml", "p", {})
    assert (histories, states[0].problem) == ([], "no addresses: name not known")


class _Replicas:
    """Two extenders on one API server and one port, at two addresses, each with a file of its own."""

    def __init__(self, tmp_path, api_url: str, port: int) -> None:
        self.tmp_path, self.api_url, self.port = tmp_path, api_url, port

    def start(self, name: str, host: str) -> ExtenderThread:
        settings = {
            "history": {"path": str(self.tmp_path / f"{name}.db"), "peers": f"http://localhost:{self.port}"},
            "deployment": {"host_name": name},
        }
        return ExtenderThread(self.api_url, settings, host, self.port)

    def explain(self, host: str) -> dict:
        return urllib3.request("GET", f"http://{host}:{self.port}/v1/explain/ml/p", retries=False).json()


@pytest.mark.anyio
async def test_the_other_replica_serves_what_the_dead_one_kept(tmp_path, monkeypatch):
    """The first answers kube-scheduler and dies; its history is missing while it is away, and back when its file is."""

    async def both(host: str, port: int) -> list[str]:
        return [FIRST, SECOND]

    monkeypatch.setattr("extender.history_peers.resolved", both)
    with ServedApiServer(SimulatedApiServer()) as api:
        replicas = _Replicas(tmp_path, api.url, _free_port())
        with replicas.start("second", SECOND) as (_, second_url):
            wait_until_ready(second_url)
            with replicas.start("first", FIRST) as (_, first_url):
                wait_until_ready(first_url)
                _ask(first_url)
                assert _told_by(replicas.explain(SECOND)) == ["first"]
            alone = urllib3.request("GET", f"{second_url}/v1/explain/ml/p", retries=False)
            assert alone.status == 404
            assert f"did not answer may remember it: {FIRST}" in alone.json()["error"]
            with replicas.start("first", FIRST) as (_, first_url):
                wait_until_ready(first_url)
                answer = replicas.explain(SECOND)
    assert _told_by(answer) == ["first"]
    assert {each["replica"] for each in answer["kept"]} == {"first", "second"}
    assert all(each["is_durable"] for each in answer["kept"])


class _Empty(BaseHTTPRequestHandler):
    """Has nothing to tell."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.anyio
@pytest.mark.parametrize(("is_ours", "problem"), [(True, "HTTP 404"), (False, "certificate verify failed")])
async def test_own_certificates_file_is_trust_enough_in_the_others(tmp_path, is_ours, problem):
    """As the chart says it: each leaf's file ends with the authority that made all of them."""
    now = datetime.now(UTC)
    ours, others = make_authority("people", now), make_authority("people", now)
    subject = Subject("tangram-extender", ("localhost",))
    for name, authority in (("mine", ours), ("theirs", ours if is_ours else others)):
        IssuedLeaf(authority, subject, tmp_path / name).refresh()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "theirs" / "tls.crt", tmp_path / "theirs" / "tls.key")
    with ThreadingHTTPServer((FIRST, 0), _Empty) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"https://localhost:{server.server_address[1]}"

        async def only(host: str, port: int) -> list[str]:
            return [FIRST]

        _, (state,) = await Peers(url, str(tmp_path / "mine" / "tls.crt"), only)("ml", "p", {})
        server.shutdown()
    assert problem in state.problem


def test_killed_process_keeps_what_was_written(tmp_path):
    """SIGKILL right after an answer that shows the attempt: the write-ahead log brings it back."""
    path = tmp_path / "h.db"
    code = f"""
import asyncio, os, signal
from extender.history import History
from extender.history_file import Attempt, Bounds
history = History({str(path)!r}, Bounds(), "r")
history.start()
history.note(Attempt("ml", "p", "uid", "filter", 1e9, 1e9, "refused"))
assert asyncio.run(history.of_pod("ml", "p")).attempts
os.kill(os.getpid(), signal.SIGKILL)
"""
    ran = subprocess.run([sys.executable, "-c", code], timeout=60, check=False, env={**os.environ, "PYTHONPATH": "."})
    assert ran.returncode == -signal.SIGKILL
    file = HistoryFile(str(path), Bounds())
    assert len(file.attempts("ml", "p", 10)) == 1
    file.close()


def _told_by(answer: dict) -> list[str]:
    return [attempt["replica"] for attempt in answer["attempts"]]


def _ask(url: str) -> None:
    pod = {"metadata": {"name": "p", "namespace": "ml", "uid": "uid-p"}, "spec": {}, "status": {}}
    body = {"Pod": pod, "Nodes": None, "NodeNames": ["a"]}
    assert urllib3.request("POST", f"{url}/v1/filter", json=body, retries=False).status == 200


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind((SECOND, 0))
        return int(probe.getsockname()[1])
