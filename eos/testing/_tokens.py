"""Token authentication for a local broker: its key, an administrator's and a job's token."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
from pathlib import Path
from typing import Final

from eos.testing._broker import PulsarStandalone

ADMIN: Final = "admin"
JOB: Final = "job"
"""The role that may only produce and consume, in these namespaces:"""
NAMESPACES: Final = ("public/default", "pulsar/system")
_HEAD: Final = {"alg": "HS256"}


class TokenFolder:
    """``secret.key``, ``admin.token`` and ``job.token``; created if missing.

    Existing files are kept, so that a restarted broker accepts the same tokens.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        key = _load_or_create(folder / "secret.key", secrets.token_hex(32))
        self.files: dict[str, Path] = {}
        self._key = key.encode()
        for role in (ADMIN, JOB):
            self.files[role] = folder / f"{role}.token"
            _load_or_create(self.files[role], self._signed(role))

    @property
    def admin_token(self) -> str:
        """The superuser's token."""
        return self.files[ADMIN].read_text().strip()

    @property
    def settings(self) -> dict[str, str]:
        """Settings of broker.conf."""
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
        """Return a JSON web token, HS256, without expiry."""
        head, claims = (_text(json.dumps(one).encode()) for one in (_HEAD, {"sub": role}))
        signature = hmac.new(self._key, f"{head}.{claims}".encode(), hashlib.sha256).digest()
        return f"{head}.{claims}.{_text(signature)}"


def allow_job(broker: PulsarStandalone) -> None:
    """Grant the job's role its permissions; the broker must run."""
    for namespace in NAMESPACES:
        path = f"/v2/namespaces/{namespace}/permissions/{JOB}"
        broker.admin("POST", path, ["produce", "consume"])


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _load_or_create(path: Path, new: str) -> str:
    """Return the content of ``path``; write ``new`` first if it is missing, for the owner only."""
    try:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(f"{new}\n")
    except FileExistsError:
        pass
    return path.read_text().strip()
