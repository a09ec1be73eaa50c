"""A stand-in for a broker that can be killed, and then does not start again."""

from __future__ import annotations

from typing import Any, Self

from eos.errors import ConfigurationError


class BrokenBroker:
    """Starts, and never restarts."""

    service_url, admin_url = "pulsar://127.0.0.1:1", "http://127.0.0.1:1"

    def __init__(self, **_: Any) -> None:
        self._is_running = False

    def start(self) -> Self:
        self._is_running = True
        return self

    def is_running(self) -> bool:
        return self._is_running

    def log(self) -> str:
        return "No space left on device"

    def kill(self) -> None:
        self._is_running = False

    stop = kill

    def restart(self) -> None:
        error = ConfigurationError("The broker exited with code 1 during its start.")
        error.add_note("The broker's last relevant lines:\nAddress already in use")
        raise error
