"""The publisher on TLS: tokens that expire, authorities and certificates that change while it runs."""

import ssl
from itertools import pairwise

import pytest
import trustme

from node_agent.endpoint import Credentials, Endpoint
from node_agent.pace import PaceTimes
from node_agent.publisher import Publisher
from node_agent.report import Device, Report
from tests.node_agent.receiver import Receiver, wait_until

FAST = PaceTimes(heartbeat_s=15, gap_s=0.05, backoff_first_s=0.05, backoff_limit_s=0.4, first_s=0.01)


def report(sequence):
    device = Device(uuid="GPU-a", total_mib=1000, foreign_mib=sequence * 1000)
    return Report(version=1, node="n", agent_run="r", sequence=sequence, devices=(device,))


def server_context(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def authority():
    return trustme.CA()


@pytest.fixture
def files(tmp_path, authority):
    """Return the files of the CA and the token, as a projected volume has them."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    (tmp_path / "token").write_text("good")
    return tmp_path / "ca.crt", tmp_path / "token"


@pytest.fixture
def publish(files):
    started = []

    def start(receiver):
        ca_file, token = files
        endpoint = Endpoint.parse(f"https://127.0.0.1:{receiver.port}")
        publisher = Publisher([endpoint], Credentials(token, ca_file), FAST, timeout_s=5.0)
        publisher.start()
        started.append(publisher)
        return publisher

    yield start
    for publisher in started:
        publisher.stop()


def test_expired_token_backs_off_and_the_fresh_one_catches_up_with_the_newest_report(publish, authority, files):
    _, token = files
    token.write_text("expired")
    with Receiver(context=server_context(authority)) as receiver:
        receiver.token = "fresh"
        publisher = publish(receiver)
        for sequence in range(1, 40):
            publisher.offer(report(sequence))
        assert receiver.wait_for(lambda: len(receiver.refused_at) >= 4)
        assert publisher.tally.outcomes["http_401"] >= 3
        # Jitter is full, so single pauses say little; what must not be is a hammering with every report.
        assert all(later - sooner > 0 for sooner, later in pairwise(receiver.refused_at))
        assert len(receiver.refused_at) < 30
        token.write_text("fresh")
        assert receiver.wait_for(lambda: bool(receiver.reports))
        assert [each.sequence for each in receiver.reports] == [39]


def test_server_that_changes_its_authority_is_trusted_once_the_file_names_it(publish, authority, files):
    ca_file, _ = files
    with Receiver(context=server_context(authority)) as receiver:
        publisher = publish(receiver)
        publisher.offer(report(1))
        assert receiver.wait_for(lambda: len(receiver.reports) == 1)
        port = receiver.port
    successor = trustme.CA()
    with Receiver(port=port, context=server_context(successor)) as receiver:
        publisher.offer(report(2))
        assert wait_until(lambda: publisher.tally.outcomes["certificate"] >= 1)
        assert receiver.reports == []
        publisher.offer(report(3))
        successor.cert_pem.write_to_path(str(ca_file))
        assert receiver.wait_for(lambda: bool(receiver.reports))
        assert [each.sequence for each in receiver.reports] == [3]


def test_server_that_renews_its_certificate_of_the_same_authority_is_not_noticed(publish, authority):
    with Receiver(context=server_context(authority)) as receiver:
        publisher = publish(receiver)
        publisher.offer(report(1))
        assert receiver.wait_for(lambda: len(receiver.reports) == 1)
        port = receiver.port
    with Receiver(port=port, context=server_context(authority)) as receiver:
        publisher.offer(report(2))
        assert receiver.wait_for(lambda: bool(receiver.reports))
        assert not publisher.tally.outcomes["certificate"]


def test_missing_ca_file_is_counted_and_healed(publish, authority, files):
    ca_file, _ = files
    ca_file.unlink()
    with Receiver(context=server_context(authority)) as receiver:
        publisher = publish(receiver)
        publisher.offer(report(1))
        assert wait_until(lambda: sum(publisher.tally.outcomes.values()) >= 1)
        assert not publisher.tally.outcomes["ok"]
        authority.cert_pem.write_to_path(str(ca_file))
        assert receiver.wait_for(lambda: bool(receiver.reports))
