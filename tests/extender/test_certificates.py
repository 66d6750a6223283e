"""Certificates: what strict clients want of them, one set for all replicas, and new ones under a running server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from extender.authorities import Pair, Subject, UnusableAuthority, issue, make_authority, renew_at
from extender.certificates import (
    Audience,
    Authorities,
    IssuedLeaf,
    MountedLeaf,
    Rotation,
    ServerTls,
    bootstrap,
    read_authorities,
)
from extender.errors import KubeRefused
from tests.support.clock import ManualClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
WEEK = timedelta(days=7)
SERVER = Subject("tangram", ("tangram.test", "127.0.0.1"))


class Secrets:
    """Secrets of an API server; ``before_create`` is what another replica wrote just before us."""

    def __init__(self, before_create: Mapping[str, bytes] | None = None) -> None:
        self.entries: Mapping[str, bytes] | None = None
        self.before_create = before_create
        self.refuses: int | None = None

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        return self.entries

    async def create_secret(self, namespace: str, name: str, entries: Mapping[str, bytes]) -> None:
        if self.refuses is not None:
            raise KubeRefused(self.refuses, "no")
        if self.before_create is not None:
            self.entries = self.before_create
        if self.entries is not None:
            raise KubeRefused(409, "exists")
        self.entries = dict(entries)


def certificate(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate_pem)


@pytest.fixture(scope="module")
def authority() -> Pair:
    return make_authority("agents", NOW)


def test_leaf_passes_a_strict_verifier_for_its_names(authority: Pair) -> None:
    leaf = issue(authority, SERVER, NOW, WEEK)
    verifier = PolicyBuilder().store(Store([certificate(authority)])).time(NOW)
    chain = verifier.build_server_verifier(x509.DNSName("tangram.test")).verify(certificate(leaf), [])
    assert len(chain) == 2
    with pytest.raises(VerificationError):
        verifier.build_server_verifier(x509.DNSName("other.test")).verify(certificate(leaf), [])


def test_every_certificate_carries_identifiers_and_usages(authority: Pair) -> None:
    for each, is_authority in (
        (certificate(authority), True),
        (certificate(issue(authority, SERVER, NOW, WEEK)), False),
    ):
        extensions = each.extensions
        assert extensions.get_extension_for_class(x509.BasicConstraints).value.ca is is_authority
        usage = extensions.get_extension_for_class(x509.KeyUsage)
        assert usage.critical
        assert usage.value.key_cert_sign is is_authority
        issuer = certificate(authority).extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
        key = extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
        assert key == issuer.key_identifier


def test_clients_certificate_does_not_serve(authority: Pair) -> None:
    leaf = certificate(issue(authority, Subject("kube-scheduler", is_client=True), NOW, WEEK))
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_leaf_is_due_after_two_thirds_of_its_life(authority: Pair) -> None:
    leaf = issue(authority, SERVER, NOW, timedelta(days=9))
    assert abs(renew_at(leaf.certificate_pem) - (NOW + timedelta(days=6))) < timedelta(minutes=5)


def test_key_is_not_in_the_representation(authority: Pair) -> None:
    assert "PRIVATE" not in repr(authority)
    assert "agents" in repr(authority)


@pytest.mark.parametrize("wrong", [b"", b"not PEM"])
def test_authority_that_cannot_be_read_is_refused(authority: Pair, wrong: bytes) -> None:
    with pytest.raises(UnusableAuthority):
        issue(Pair(wrong, authority.key_pem), SERVER, NOW, WEEK)
    with pytest.raises(UnusableAuthority):
        issue(Pair(authority.certificate_pem, wrong), SERVER, NOW, WEEK)


def test_key_of_another_authority_is_refused(authority: Pair) -> None:
    other = make_authority("people", NOW)
    with pytest.raises(UnusableAuthority, match="does not belong"):
        issue(Pair(authority.certificate_pem, other.key_pem), SERVER, NOW, WEEK)


def test_first_replica_makes_one_authority_for_each_audience_and_others_read_them() -> None:
    secrets = Secrets()
    first = asyncio.run(bootstrap(secrets, "tangram-system", "ca", NOW))
    second = asyncio.run(bootstrap(secrets, "tangram-system", "ca", NOW))
    assert first == second
    assert len({first.certificate(audience) for audience in Audience}) == len(Audience)


def test_replica_that_lost_the_race_takes_the_winners_authorities() -> None:
    winner = Authorities({audience: make_authority(audience, NOW) for audience in Audience})
    taken = asyncio.run(bootstrap(Secrets(winner.entries()), "tangram-system", "ca", NOW))
    assert taken == winner


def test_refused_secret_is_an_error_of_the_api_server() -> None:
    secrets = Secrets()
    secrets.refuses = 403
    with pytest.raises(KubeRefused):
        asyncio.run(bootstrap(secrets, "tangram-system", "ca", NOW))


def test_secret_with_a_missing_or_broken_entry_is_named() -> None:
    entries = Authorities({audience: make_authority(audience, NOW) for audience in Audience}).entries()
    with pytest.raises(UnusableAuthority, match=r"secret ca: found no entry agents\.key"):
        read_authorities({key: value for key, value in entries.items() if key != "agents.key"}, "secret ca")
    with pytest.raises(UnusableAuthority, match="secret ca: people: authority"):
        read_authorities(entries | {"people.crt": b"?"}, "secret ca")


def served(context: ssl.SSLContext, trusted: Pair) -> x509.Certificate:
    """Shake hands in memory and return the certificate that the server shows."""
    client_context = ssl.create_default_context(cadata=trusted.certificate_pem.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server, server_hostname="tangram.test")
    for _ in range(6):
        for side in (client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    shown = client.getpeercert(binary_form=True)
    assert shown is not None
    return x509.load_der_x509_certificate(shown)


class TestRotation:
    """A leaf that is due is replaced in the context that serves."""

    def leaf(self, authority: Pair, directory: Path, clock: ManualClock) -> IssuedLeaf:
        began, start = clock.now(), datetime.now(UTC) - timedelta(days=5)
        return IssuedLeaf(
            authority, SERVER, directory / "agents", now=lambda: start + timedelta(seconds=clock.now() - began)
        )

    def test_new_leaf_is_served_by_the_same_context(self, tmp_path: Path) -> None:
        clock, authority = ManualClock(), make_authority("agents", datetime.now(UTC) - timedelta(days=5))
        tls = ServerTls(self.leaf(authority, tmp_path, clock))
        rotation = Rotation({Audience.AGENTS: tls}, clock)
        first = served(tls.context, authority)
        assert rotation.round() == ()
        assert served(tls.context, authority) == first
        clock.advance(5 * 86_400)
        assert rotation.round() == (Audience.AGENTS,)
        assert served(tls.context, authority).serial_number != first.serial_number

    def test_files_are_for_us_alone(self, tmp_path: Path) -> None:
        leaf = self.leaf(make_authority("agents", datetime.now(UTC)), tmp_path, ManualClock())
        leaf.refresh()
        assert {path.stat().st_mode & 0o777 for path in leaf.files} == {0o600}

    def test_mounted_files_are_loaded_again_when_they_change(self, tmp_path: Path) -> None:
        authority = make_authority("agents", datetime.now(UTC))
        self.mount(tmp_path, authority)
        tls = ServerTls(MountedLeaf(tmp_path))
        first = served(tls.context, authority)
        assert not tls.reload()
        self.mount(tmp_path, authority)
        assert tls.reload()
        assert served(tls.context, authority) != first

    def test_broken_files_leave_the_old_leaf_serving(self, tmp_path: Path) -> None:
        clock, authority = ManualClock(), make_authority("agents", datetime.now(UTC))
        self.mount(tmp_path, authority)
        tls = ServerTls(MountedLeaf(tmp_path))
        first = served(tls.context, authority)
        (tmp_path / "tls.key").write_bytes(make_authority("other", NOW).key_pem)
        assert Rotation({Audience.AGENTS: tls}, clock).round() == ()
        assert served(tls.context, authority) == first
        self.mount(tmp_path, authority)
        assert Rotation({Audience.AGENTS: tls}, clock).round() == (Audience.AGENTS,)

    def test_missing_files_stop_the_start(self, tmp_path: Path) -> None:
        with pytest.raises(OSError, match="No such file"):
            ServerTls(MountedLeaf(tmp_path))

    def mount(self, directory: Path, authority: Pair) -> None:
        leaf = issue(authority, SERVER, datetime.now(UTC), WEEK)
        (directory / "tls.crt").write_bytes(leaf.certificate_pem)
        (directory / "tls.key").write_bytes(leaf.key_pem)
