"""Where certificates come from and how they change under a running server.

Self-signed: the first replica that comes makes one Secret with an authority for each audience; all others read it, so
every replica's leaves are trusted alike. Leaves live in memory-backed files, are renewed after two thirds of their
life, and are loaded into the TLS context that is serving: connections under way keep the old one, the next handshake
gets the new one. Given by the operator (cert-manager): the files of a mounted Secret, loaded again when they change.

The authorities themselves do not change by themselves: kube-scheduler reads its authority at start only. How to change
them is in docs/operations.md.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import structlog

from extender.authorities import Pair, Subject, UnusableAuthority, issue, make_authority, read_authority, renew_at
from extender.clock import Clock
from extender.errors import KubeRefused

_LOG = structlog.get_logger(__name__)
_CONFLICT = 409
_NOT_ON_DISK = (0, 0)
LEAF_LIFETIME = timedelta(days=7)
CHECK_INTERVAL_S = 30.0


class Audience(StrEnum):
    """Who calls; each has a listener and a certificate authority of its own, so no caller can pass for another."""

    SCHEDULER = "scheduler"
    WEBHOOKS = "webhooks"
    AGENTS = "agents"
    PEOPLE = "people"


class SecretStore(Protocol):
    """Reads and creates Secrets; both raise KubeError children."""

    async def get_secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None:
        """Read a Secret's entries; None if there is none of that name."""

    async def create_secret(self, namespace: str, name: str, entries: Mapping[str, bytes]) -> None:
        """Create a Secret; KubeRefused 409 where one exists."""


@dataclass(frozen=True, slots=True)
class Authorities:
    """One authority an audience, as every replica reads them."""

    pairs: Mapping[Audience, Pair]

    def certificate(self, audience: Audience) -> bytes:
        """Return what callers of this audience have to trust, as PEM."""
        return self.pairs[audience].certificate_pem

    def entries(self) -> dict[str, bytes]:
        """Return the authorities as the Secret holds them."""
        certificates = {f"{audience}.crt": pair.certificate_pem for audience, pair in self.pairs.items()}
        return certificates | {f"{audience}.key": pair.key_pem for audience, pair in self.pairs.items()}


async def bootstrap(store: SecretStore, namespace: str, name: str, now: datetime) -> Authorities:
    """Return the authorities that all replicas share, made by the first one that comes.

    Raises KubeError, and UnusableAuthority naming the entry of the Secret that is missing or broken.
    """
    found = await store.get_secret(namespace, name)
    if found is None:
        made = Authorities({audience: make_authority(audience, now) for audience in Audience})
        try:
            await store.create_secret(namespace, name, made.entries())
        except KubeRefused as refusal:
            if refusal.status != _CONFLICT:
                raise
            found = await store.get_secret(namespace, name)
        else:
            return made
    if found is None:
        raise UnusableAuthority(
            f"secret {namespace}/{name}: vanished while it was read; it is made again at the next start"
        )
    return read_authorities(found, f"secret {namespace}/{name}")


def read_authorities(entries: Mapping[str, bytes], source: str) -> Authorities:
    """Read the authorities from a Secret's entries; raise UnusableAuthority naming the first that cannot be used."""
    pairs = {}
    for audience in Audience:
        missing = [key for key in (f"{audience}.crt", f"{audience}.key") if key not in entries]
        if missing:
            raise UnusableAuthority(
                f"{source}: found no entry {missing[0]}, valid are a .crt and a .key for each of "
                f"{', '.join(Audience)}; delete the Secret to have all made anew"
            )
        pair = Pair(entries[f"{audience}.crt"], entries[f"{audience}.key"])
        try:
            read_authority(pair)
        except UnusableAuthority as error:
            raise UnusableAuthority(f"{source}: {audience}: {error}") from error
        pairs[audience] = pair
    return Authorities(pairs)


class LeafSource(Protocol):
    """Keeps a certificate and a key on disk up to date."""

    @property
    def files(self) -> tuple[Path, Path]:
        """Return the files of the certificate chain and of the key."""

    def refresh(self) -> bool:
        """Bring the files up to date; return whether they have changed since the last call, the first included."""


class IssuedLeaf:
    """A leaf of our own authority, renewed after two thirds of its life, in files that only we may read."""

    def __init__(
        self,
        authority: Pair,
        subject: Subject,
        directory: Path,
        *,
        lifetime: timedelta = LEAF_LIFETIME,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._authority = authority
        self._subject = subject
        self._lifetime = lifetime
        self._now = now
        self._renew_at: datetime | None = None
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._certificate, self._key = directory / "tls.crt", directory / "tls.key"

    @property
    def files(self) -> tuple[Path, Path]:
        """Return the files of the certificate chain and of the key."""
        return self._certificate, self._key

    def refresh(self) -> bool:
        """Issue a new leaf if it is time for one."""
        now = self._now()
        if self._renew_at is not None and now < self._renew_at:
            return False
        leaf = issue(self._authority, self._subject, now, self._lifetime)
        _write_private(self._key, leaf.key_pem)
        _write_private(self._certificate, leaf.certificate_pem + self._authority.certificate_pem)
        self._renew_at = renew_at(leaf.certificate_pem)
        return True


class MountedLeaf:
    """A leaf that somebody else renews, such as cert-manager through a mounted Secret."""

    def __init__(self, directory: Path) -> None:
        self._certificate, self._key = directory / "tls.crt", directory / "tls.key"
        self._seen = (_NOT_ON_DISK, _NOT_ON_DISK)

    @property
    def files(self) -> tuple[Path, Path]:
        """Return the files of the certificate chain and of the key."""
        return self._certificate, self._key

    def refresh(self) -> bool:
        """Look whether the files have changed."""
        seen = (_stamp(self._certificate), _stamp(self._key))
        is_new = seen != self._seen
        self._seen = seen
        return is_new


class ServerTls:
    """The TLS context of one listener; ``reload`` puts a renewed leaf into it while it serves."""

    def __init__(self, leaf: LeafSource, client_authority_pem: bytes | None = None) -> None:
        """With ``client_authority_pem`` no caller gets in without a certificate of that authority.

        Raises OSError or ssl.SSLError when the first leaf cannot be loaded.
        """
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        if client_authority_pem is not None:
            self.context.verify_mode = ssl.CERT_REQUIRED
            self.context.load_verify_locations(cadata=client_authority_pem.decode("ascii"))
        self._leaf = leaf
        leaf.refresh()
        self._load(self.context)

    def reload(self) -> bool:
        """Load the leaf if it changed; return whether it did. A leaf that cannot be loaded leaves the old one serving.

        Raises OSError or ssl.SSLError then. A half-written pair is tried on a context of its own first.
        """
        if not self._leaf.refresh():
            return False
        self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        self._load(self.context)
        return True

    def _load(self, context: ssl.SSLContext) -> None:
        certificate, key = self._leaf.files
        context.load_cert_chain(certificate, key)


class Rotation:
    """Renews the leaves of all listeners; one task of the process."""

    def __init__(
        self, listeners: Mapping[Audience, ServerTls], clock: Clock, interval_s: float = CHECK_INTERVAL_S
    ) -> None:
        self._listeners = listeners
        self._clock = clock
        self._interval_s = interval_s

    async def run(self) -> None:
        """Look at every leaf again and again until cancelled."""
        while True:
            await self._clock.sleep(self._interval_s)
            self.round()

    def round(self) -> Sequence[Audience]:
        """Reload what changed and return whose leaf did; one that cannot be loaded is logged until its next change."""
        return tuple(audience for audience, tls in self._listeners.items() if _reload(audience, tls))


def _reload(audience: Audience, tls: ServerTls) -> bool:
    try:
        is_new = tls.reload()
    except (OSError, UnusableAuthority) as error:
        _LOG.warning("certificate_not_loaded", audience=audience, error=str(error))
        return False
    if is_new:
        _LOG.info("certificate_loaded", audience=audience)
    return is_new


def _write_private(path: Path, content: bytes) -> None:
    """Replace a file at once, readable by us alone."""
    unfinished = path.with_name(f"{path.name}.unfinished")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    unfinished.replace(path)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return _NOT_ON_DISK
    return status.st_mtime_ns, status.st_ino
