"""Tokens for brokers that require them: JSON web tokens, HS256, signed with ``KEY``."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
import uuid
from typing import Final

KEY: Final = b"0123456789abcdef0123456789abcdef"
CONFIG: Final = {
    "authenticationEnabled": "true",
    "authenticationProviders": (
        "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
    ),
    "tokenSecretKey": f"data:;base64,{base64.b64encode(KEY).decode()}",
    "superUserRoles": "admin",
}
"""broker.conf settings to accept the tokens; the role ``admin`` may do everything."""


def token(role: str, key: bytes = KEY, *, life_s: float | None = None) -> str:
    """A token for ``role``; without ``life_s`` it never expires."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    body = f"{part(json.dumps({'alg': 'HS256'}).encode())}."
    claims: dict[str, object] = {"sub": role, "jti": uuid.uuid4().hex}
    if life_s is not None:
        claims["exp"] = time.time() + life_s
    body += part(json.dumps(claims).encode())
    return f"{body}.{part(hmac.new(key, body.encode(), hashlib.sha256).digest())}"
