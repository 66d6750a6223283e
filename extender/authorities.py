"""Certificates as values: a self-signed authority for each audience, and short-lived leaves that it issues.

Every certificate carries the key identifiers and key usages without which strict clients (Python 3.13 and newer,
RFC 5280 section 4.2.1) refuse it. Keys are ECDSA P-256.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
_BACKDATED = timedelta(minutes=5)
"""Clocks of nodes differ a little; a certificate from the future is refused."""


class UnusableAuthority(ValueError):
    """A certificate authority cannot be read, or does not fit its key."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key as PEM; the key never appears in a representation."""

    certificate_pem: bytes
    key_pem: bytes

    def __repr__(self) -> str:
        return f"Pair({x509.load_pem_x509_certificate(self.certificate_pem).subject.rfc4514_string()})"


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom a leaf is for: names and addresses of a server, or the name of a client; ``is_client`` says which."""

    common_name: str
    names: tuple[str, ...] = ()
    is_client: bool = False


def make_authority(audience: str, now: datetime) -> Pair:
    """Return a new self-signed authority for one audience, valid for ten years; ``now`` is aware of its time zone."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(f"tangram {audience} authority")
    builder = _builder(name, name, key.public_key(), now, timedelta(days=AUTHORITY_DAYS))
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(is_authority=True), critical=True)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    return _pair(builder.sign(key, hashes.SHA256()), key)


def issue(authority: Pair, subject: Subject, now: datetime, lifetime: timedelta) -> Pair:
    """Return a leaf of ``authority``; UnusableAuthority if that cannot be read. The chain ends with the authority."""
    issuer, issuer_key = read_authority(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(subject.common_name), issuer.subject, key.public_key(), now, lifetime)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(is_authority=False), critical=True)
    purpose = ExtendedKeyUsageOID.CLIENT_AUTH if subject.is_client else ExtendedKeyUsageOID.SERVER_AUTH
    builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = builder.add_extension(identifier, critical=False)
    if subject.names:
        builder = builder.add_extension(_alternative_names(subject.names), critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def read_authority(pair: Pair) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the authority's certificate and key; raise UnusableAuthority with what is wrong."""
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate_pem)
        key = serialization.load_pem_private_key(pair.key_pem, None)
    except (ValueError, TypeError) as error:
        raise UnusableAuthority(f"authority: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise UnusableAuthority(f"authority: found a key of type {type(key).__name__}, valid is an elliptic curve key")
    if key.public_key() != certificate.public_key():
        raise UnusableAuthority("authority: the key does not belong to the certificate")
    return certificate, key


def renew_at(certificate_pem: bytes) -> datetime:
    """Return when a certificate should be replaced: after two thirds of its life."""
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begin + (end - begin) * 2 / 3


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=public_key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - _BACKDATED).not_valid_after(now + lifetime)
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:64])])


def _alternative_names(names: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_alternative_name(name) for name in names])


def _alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pem = serialization.Encoding.PEM
    plain = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(certificate.public_bytes(pem), plain)
