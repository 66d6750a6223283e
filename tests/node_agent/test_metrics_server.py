import contextlib
import socket
import ssl
import urllib.request

import pytest
import trustme
from prometheus_client import CollectorRegistry, Gauge

from node_agent.assembly import assemble
from node_agent.metrics_server import TlsFiles, start_metrics_server
from node_agent.settings import SettingsError, load_settings


@pytest.fixture
def registry():
    registry = CollectorRegistry()
    Gauge("tangram_test", "A value", registry=registry).set(7)
    return registry


def lay_out(authority, directory):
    leaf = authority.issue_cert("127.0.0.1")
    leaf.cert_chain_pems[0].write_to_path(str(directory / "tls.crt"))
    leaf.private_key_pem.write_to_path(str(directory / "tls.key"))
    return TlsFiles(directory / "tls.crt", directory / "tls.key")


@contextlib.contextmanager
def serving(registry, files=None, host="127.0.0.1"):
    server, thread = start_metrics_server(registry, host, 0, files)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def scrape(port, authority=None):
    context = ssl.create_default_context()
    if authority is not None:
        authority.configure_trust(context)
    scheme = "http" if authority is None else "https"
    with urllib.request.urlopen(f"{scheme}://127.0.0.1:{port}/metrics", timeout=5, context=context) as answer:
        return answer.read()


def test_plain_where_no_certificate_is_given(registry):
    with serving(registry) as port:
        assert b"tangram_test 7.0" in scrape(port)


def test_renewed_certificate_is_served_without_a_restart(registry, tmp_path):
    first, second = trustme.CA(), trustme.CA()
    with serving(registry, lay_out(first, tmp_path)) as port:
        assert b"tangram_test 7.0" in scrape(port, first)
        lay_out(second, tmp_path)
        assert b"tangram_test 7.0" in scrape(port, second)
        with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            scrape(port, first)


def test_half_written_certificate_leaves_the_old_one_serving(registry, tmp_path):
    authority = trustme.CA()
    with serving(registry, lay_out(authority, tmp_path)) as port:
        (tmp_path / "tls.crt").write_text("not yet")
        assert b"tangram_test 7.0" in scrape(port, authority)
        (tmp_path / "tls.crt").unlink()
        assert b"tangram_test 7.0" in scrape(port, authority)


def test_silent_client_holds_nobody_up(registry, tmp_path):
    authority = trustme.CA()
    with (
        serving(registry, lay_out(authority, tmp_path)) as port,
        socket.create_connection(("127.0.0.1", port), 5),
        socket.create_connection(("127.0.0.1", port), 5) as babbler,
    ):
        babbler.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b"tangram_test 7.0" in scrape(port, authority)


def test_files_that_are_not_there_are_told_at_start(registry, tmp_path):
    with pytest.raises(OSError, match=r"tls\.crt"):
        start_metrics_server(registry, "127.0.0.1", 0, TlsFiles(tmp_path / "tls.crt", tmp_path / "tls.key"))


def test_certificate_without_a_key_is_refused():
    settings = load_settings({"TANGRAM_AGENT_METRICS_CERT_FILE": "/x/tls.crt"})
    with pytest.raises(SettingsError, match="METRICS_KEY_FILE"):
        assemble(settings)
