"""Who may talk to the control plane, and how: certificates, token users and kubeconfig files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trustme
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec


@dataclass(frozen=True, slots=True)
class User:
    """Somebody the API server knows by a fixed bearer token; rights come from RBAC or from the groups."""

    name: str
    token: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Everything a client needs to reach an API server as one user; `authority` is None for plain HTTP."""

    url: str
    token: str
    authority: Path | None


ADMIN = User("admin", "admin-token", ("system:masters",))
SCHEDULER = User("system:kube-scheduler", "scheduler-token")
CONTROLLER_MANAGER = User("system:kube-controller-manager", "controller-manager-token")
BUILT_IN_USERS = (ADMIN, SCHEDULER, CONTROLLER_MANAGER)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Files of one control plane: its authority, the API server's certificate, the key of service account tokens."""

    authority: Path
    certificate: Path
    key: Path
    service_account_key: Path
    tokens: Path


def write_credentials(directory: Path, users: Sequence[User], names: Sequence[str] = ()) -> Credentials:
    """Make fresh credentials in `directory` for a server on 127.0.0.1, and of other `names`, that knows `users`."""
    files = Credentials(
        authority=directory / "ca.crt",
        certificate=directory / "apiserver.crt",
        key=directory / "apiserver.key",
        service_account_key=directory / "service-account.key",
        tokens=directory / "tokens.csv",
    )
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    authority.cert_pem.write_to_path(files.authority)
    server = authority.issue_cert("127.0.0.1", "localhost", *names, key_type=trustme.KeyType.ECDSA)
    for position, pem in enumerate(server.cert_chain_pems):
        pem.write_to_path(files.certificate, append=position > 0)
    server.private_key_pem.write_to_path(files.key)
    files.service_account_key.write_bytes(_private_key())
    files.tokens.write_text("".join(_token_line(user) for user in users), encoding="utf-8")
    return files


def write_kubeconfig(path: Path, endpoint: Endpoint) -> Path:
    """Write a kubeconfig with one cluster and one user, and return its path."""
    cluster = {"server": endpoint.url}
    if endpoint.authority is not None:
        cluster["certificate-authority"] = str(endpoint.authority)
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tangram",
        "clusters": [{"name": "tangram", "cluster": cluster}],
        "users": [{"name": "tangram", "user": {"token": endpoint.token}}],
        "contexts": [{"name": "tangram", "context": {"cluster": "tangram", "user": "tangram"}}],
    }
    path.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return path


def _private_key() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _token_line(user: User) -> str:
    groups = ",".join(user.groups)
    return f'{user.token},{user.name},{user.name},"{groups}"\n'
