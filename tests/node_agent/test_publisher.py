import socket
import ssl
import time

import pytest
import trustme

from node_agent.endpoint import Connection, Credentials, Endpoint, PushError
from node_agent.pace import PaceTimes
from node_agent.publisher import Publisher
from node_agent.report import Booking, Device, Health, Report
from tests.node_agent.receiver import Receiver, wait_until

FAST = PaceTimes(heartbeat_s=15, gap_s=0.05, backoff_first_s=0.05, backoff_limit_s=0.2, first_s=0.01)
BOOKING = Booking(
    pod_uid="u", namespace="d", name="p", container="main", uuid="GPU-a", memory_mib=100, compute_milli=10
)


def report(sequence=1, **fields):
    return Report(
        version=1, node="n", agent_run="r", sequence=sequence, devices=(Device(uuid="GPU-a", total_mib=1000, **fields),)
    )


@pytest.fixture
def publish():
    started = []

    def start(*urls, times=FAST, timeout_s=2.0):
        publisher = Publisher([Endpoint.parse(url) for url in urls], Credentials(), times, timeout_s)
        publisher.start()
        started.append(publisher)
        return publisher

    yield start
    for publisher in started:
        publisher.stop()


class TestPushing:
    def test_report_arrives_and_its_answer_is_heard(self, publish):
        with Receiver() as receiver:
            receiver.bookings, receiver.cordoned = (BOOKING,), ("GPU-b",)
            publisher = publish(receiver.url)
            publisher.offer(report())
            assert receiver.wait_for(lambda: len(receiver.reports) == 1)
            assert wait_until(lambda: publisher.heard().bookings == (BOOKING,))
            assert publisher.heard().cordoned == {"GPU-b"}
            assert receiver.headers[0][":path"] == "/v1/reports"

    def test_known_bookings_are_not_sent_again_and_not_forgotten(self, publish):
        with Receiver() as receiver:
            receiver.bookings = (BOOKING,)
            publisher = publish(receiver.url)
            publisher.offer(report(1))
            assert wait_until(lambda: publisher.heard().bookings == (BOOKING,))
            publisher.offer(report(2, health=Health.OUT))
            assert receiver.wait_for(lambda: len(receiver.reports) == 2)
            assert [each.bookings_generation for each in receiver.reports] == [None, 1]
            assert publisher.heard().bookings == (BOOKING,)
            assert receiver.connections == 1

    def test_changes_that_matter_go_at_once_others_wait_for_the_heartbeat(self, publish):
        with Receiver() as receiver:
            publisher = publish(receiver.url)
            publisher.offer(report(1))
            assert receiver.wait_for(lambda: len(receiver.reports) == 1)
            publisher.offer(report(2, temperature_celsius=50))
            assert not receiver.wait_for(lambda: len(receiver.reports) == 2, 0.3)
            publisher.offer(report(3, health=Health.OUT))
            assert receiver.wait_for(lambda: len(receiver.reports) == 2, 1.0)
            assert receiver.reports[1].sequence == 3

    def test_urgent_news_is_rate_limited_and_latest_wins(self, publish):
        with Receiver() as receiver:
            publisher = publish(receiver.url, times=PaceTimes(gap_s=0.3, first_s=0.01))
            publisher.offer(report(1))
            assert receiver.wait_for(lambda: len(receiver.reports) == 1)
            for sequence in range(2, 102):
                publisher.offer(report(sequence, foreign_mib=sequence * 1000))
            assert receiver.wait_for(lambda: receiver.reports[-1].sequence == 101)
            assert len(receiver.reports) <= 3

    def test_heartbeat_follows_what_the_extender_asks(self, publish):
        with Receiver() as receiver:
            receiver.heartbeat_s = 1.0
            publish(receiver.url).offer(report())
            assert receiver.wait_for(lambda: len(receiver.reports) == 3, 4.0)


class TestTrouble:
    def test_extender_that_is_down_gets_the_newest_report_when_it_comes_up(self, publish):
        with Receiver() as first:
            port = first.port
        publisher = publish(f"http://127.0.0.1:{port}")
        for sequence in range(1, 50):
            publisher.offer(report(sequence, foreign_mib=sequence * 1000))
        assert wait_until(lambda: publisher.tally.outcomes["connection"] >= 2)
        with Receiver(port=port) as receiver:
            assert receiver.wait_for(lambda: bool(receiver.reports))
            assert [each.sequence for each in receiver.reports] == [49]

    def test_refusals_are_counted_by_status_and_retried(self, publish):
        with Receiver() as receiver:
            receiver.status = 401
            publisher = publish(receiver.url)
            publisher.offer(report())
            assert wait_until(lambda: publisher.tally.outcomes["http_401"] >= 2)
            receiver.status = 200
            assert wait_until(lambda: publisher.tally.outcomes["ok"] == 1)

    def test_bookings_are_asked_for_in_full_after_any_failure(self, publish):
        with Receiver() as receiver:
            publisher = publish(receiver.url)
            publisher.offer(report(1))
            assert receiver.wait_for(lambda: len(receiver.reports) == 1)
            receiver.status = 503
            publisher.offer(report(2, health=Health.OUT))
            assert receiver.wait_for(lambda: len(receiver.reports) == 3)
            assert [each.bookings_generation for each in receiver.reports[:3]] == [None, 1, None]

    @pytest.mark.parametrize("answer", [b"", b"null", b"{}", b'{"bookings_generation":"x"}', b"\xff"])
    def test_answer_that_is_not_one_is_a_failure(self, publish, answer):
        with Receiver() as receiver:
            receiver.raw_answer = answer
            publisher = publish(receiver.url)
            publisher.offer(report())
            assert wait_until(lambda: publisher.tally.outcomes["answer"] >= 1)

    def test_huge_answer_is_cut_off(self, monkeypatch):
        monkeypatch.setattr("node_agent.endpoint.MAX_ANSWER_BYTES", 1000)
        with Receiver() as receiver:
            receiver.bookings = (BOOKING,) * 50
            connection = Connection(Endpoint.parse(receiver.url), "127.0.0.1", Credentials(), 2.0)
            with pytest.raises(PushError, match="larger than 1000"):
                connection.push(report())

    def test_slow_replica_holds_nobody_else_up(self, publish):
        silent = socket.socket()
        silent.bind(("127.0.0.2", 0))
        silent.listen()
        try:
            with Receiver() as receiver:
                publisher = publish(f"http://127.0.0.2:{silent.getsockname()[1]}", receiver.url, timeout_s=1.0)
                began_s = time.monotonic()
                publisher.offer(report())
                assert receiver.wait_for(lambda: bool(receiver.reports))
                assert time.monotonic() - began_s < 0.9
                assert wait_until(lambda: publisher.tally.outcomes["timeout"] >= 1)
        finally:
            silent.close()

    def test_connection_that_the_other_side_closed_is_replaced_without_a_failure(self):
        with Receiver() as receiver:
            connection = Connection(Endpoint.parse(receiver.url), "127.0.0.1", Credentials(), 2.0)
            connection.push(report(1))
            port = receiver.port
        with Receiver(port=port) as receiver:
            connection.push(report(2))
            assert receiver.reports[0].sequence == 2
            connection.close()


class TestReplicas:
    def test_every_address_behind_a_name_gets_the_report(self, publish, monkeypatch):
        monkeypatch.setattr(Endpoint, "addresses", lambda _: ["127.0.0.1", "127.0.0.2"])
        with Receiver() as first, Receiver("127.0.0.2", first.port) as second:
            first.bookings = (BOOKING,)
            publisher = publish(first.url)
            publisher.offer(report())
            assert first.wait_for(lambda: bool(first.reports))
            assert second.wait_for(lambda: bool(second.reports))
            assert wait_until(lambda: publisher.heard().bookings == (BOOKING,))

    def test_name_that_does_not_resolve_is_counted(self, publish, monkeypatch):
        def fail(_):
            raise OSError("no such name")

        monkeypatch.setattr(Endpoint, "addresses", fail)
        publisher = publish("http://extender.invalid:80")
        assert wait_until(lambda: publisher.tally.outcomes["resolve"] == 1)


class TestCredentials:
    def test_token_is_read_anew_for_each_push(self, tmp_path):
        token = tmp_path / "token"
        token.write_text("first\n")
        with Receiver() as receiver:
            connection = Connection(Endpoint.parse(receiver.url), "127.0.0.1", Credentials(token), 2.0)
            connection.push(report())
            token.write_text("second")
            connection.push(report())
            connection.close()
            assert [each["Authorization"] for each in receiver.headers] == ["Bearer first", "Bearer second"]

    @pytest.mark.parametrize("content", [None, "", "\n"])
    def test_missing_or_empty_token_is_an_error_before_anything_is_sent(self, tmp_path, content):
        token = tmp_path / "token"
        if content is not None:
            token.write_text(content)
        connection = Connection(Endpoint.parse("http://127.0.0.1:1"), "127.0.0.1", Credentials(token), 2.0)
        with pytest.raises(PushError) as refused:
            connection.push(report())
        assert refused.value.kind == "token"

    def test_certificate_is_verified_against_the_name_and_the_ca_is_read_anew(self, tmp_path):
        authority, stranger = trustme.CA(), trustme.CA()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("extender.tangram").configure_cert(context)
        ca_file = tmp_path / "ca.pem"
        stranger.cert_pem.write_to_path(str(ca_file))
        with Receiver(context=context) as receiver:
            endpoint = Endpoint.parse(f"https://extender.tangram:{receiver.port}")
            connection = Connection(endpoint, "127.0.0.1", Credentials(ca_file=ca_file), 2.0)
            with pytest.raises(PushError) as refused:
                connection.push(report())
            assert refused.value.kind == "certificate"
            authority.cert_pem.write_to_path(str(ca_file))
            connection.push(report())
            connection.close()
            wrong = Endpoint.parse(f"https://other.tangram:{receiver.port}")
            with pytest.raises(PushError, match="match"):
                Connection(wrong, "127.0.0.1", Credentials(ca_file=ca_file), 2.0).push(report())


@pytest.mark.parametrize("url", ["", "extender:80", "ftp://x", "http://", "http://x:99999"])
def test_url_that_cannot_be_used_is_refused(url):
    with pytest.raises(ValueError, match="url"):
        Endpoint.parse(url)


def test_path_prefix_and_default_ports():
    assert Endpoint.parse("https://x/base/") == Endpoint("x", 443, is_tls=True, path="/base/v1/reports")
    assert Endpoint.parse("http://x").port == 80
