"""A broker that asks for tokens: its key, a token for an administrator and one for a job."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Final

from eos.standalone._broker import PulsarStandalone

ADMIN: Final = "admin"
JOB: Final = "job"
"""May produce and consume in these namespaces, and nothing else:"""
NAMESPACES: Final = ("public/default", "pulsar/system")
_HEAD: Final = {"alg": "HS256"}


class TokenFolder:
    """``secret.key``, ``admin.token`` and ``job.token``; made when they are missing, and then kept:
    a broker that starts again takes the tokens that were given out."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = _kept(folder / "secret.key", secrets.token_hex(32))
        self.files: dict[str, Path] = {}
        self._key = key.encode()
        for role in (ADMIN, JOB):
            self.files[role] = folder / f"{role}.token"
            _kept(self.files[role], self._signed(role))

    @property
    def admin_token(self) -> str:
        """Of the superuser."""
        return self.files[ADMIN].read_text().strip()

    @property
    def settings(self) -> dict[str, str]:
        """Of broker.conf."""
        return {
            "authenticationEnabled": "true",
            "authorizationEnabled": "true",
            "authenticationProviders": (
                "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
            ),
            "tokenSecretKey": f"data:;base64,{base64.b64encode(self._key).decode()}",
            "superUserRoles": ADMIN,
        }

    def _signed(self, role: str) -> str:
        """A JSON web token, HS256, without an end."""
        head, claims = (_text(json.dumps(one).encode()) for one in (_HEAD, {"sub": role}))
        signature = hmac.new(self._key, f"{head}.{claims}".encode(), hashlib.sha256).digest()
        return f"{head}.{claims}.{_text(signature)}"


def allow_job(broker: PulsarStandalone) -> None:
    """Let the job's role write and read, once the broker runs."""
    for namespace in NAMESPACES:
        path = f"/v2/namespaces/{namespace}/permissions/{JOB}"
        broker.admin("POST", path, ["produce", "consume"])


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _kept(path: Path, new: str) -> str:
    """What is in ``path``; ``new`` where nothing is, readable by its owner only."""
    try:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(f"{new}\n")
    except FileExistsError:
        pass
    return path.read_text().strip()
