"""Tokens that look like the API server's, made with its own key."""

import base64
from pathlib import Path

import msgspec
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

_DAY_S = 86_400


def expired(token: str, key_file: Path) -> str:
    """Return a token as it would have been signed a day ago, with the key in a file."""
    head, claims, _ = token.split(".")
    content = msgspec.json.decode(_decoded(claims))
    content |= {name: content[name] - _DAY_S for name in ("exp", "iat", "nbf")}
    signed = f"{head}.{_encoded(msgspec.json.encode(content))}"
    key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    r, s = utils.decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{signed}.{_encoded(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
