"""A broker in a Docker container, started by Testcontainers."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from eos.errors import BrokerNotReady
from eos.testing._settings import HOST
from eos.testing.jvm import OPTIONS

_IMAGE: Final = "apachepulsar/pulsar"
_DATA: Final = "/pulsar/data"
# The image's script turns PULSAR_PREFIX_* variables into settings; exec makes java process 1, which
# receives the signals.
_COMMAND: Final = (
    "bin/apply-config-from-env.py conf/standalone.conf && exec bin/pulsar standalone -nfw -nss"
)


def engine_answers() -> bool:
    """Whether Testcontainers is installed and a Docker engine answers it."""
    if importlib.util.find_spec("testcontainers") is None:
        return False
    from testcontainers.core.docker_client import DockerClient

    try:
        client = DockerClient(timeout=5).client
        try:
            return bool(client.ping())
        finally:
            client.close()
    except Exception:  # On any error there is no usable engine.
        return False


class Container:
    """The broker's container. Its writable layer, or ``data_dir``, survives a kill.

    Testcontainers' reaper removes the container when this process dies.
    """

    def __init__(self, version: str, data_dir: Path | None, options: Sequence[str] = ()) -> None:
        self._image = f"{_IMAGE}:{version}"
        self._host_dir = data_dir
        self._options = " ".join((*OPTIONS, *options))
        self._container: Any = None
        self.data_dir = data_dir or Path(_DATA)

    @property
    def pid(self) -> int | None:
        """The broker's process id on the engine's host; None if it does not run."""
        if self._container is None:
            return None
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        return int(wrapped.attrs["State"]["Pid"]) or None

    def start(self, values: Mapping[str, str], ports: list[int]) -> None:
        """Create and start the container; the second time, start the same one again."""
        if self._container is None:
            self._container = self._create(values, ports)
            self._container.start()
        else:
            self._container.get_wrapped_container().start()

    def _create(self, values: Mapping[str, str], ports: list[int]) -> Any:
        from testcontainers.core.container import DockerContainer

        container = DockerContainer(self._image).with_command(["sh", "-c", _COMMAND])
        container.with_env("PULSAR_MEM", self._options)
        container.with_env("PULSAR_GC", " ")  # Otherwise the image sets a second collector.
        for name, value in {**values, "bindAddress": "0.0.0.0"}.items():  # noqa: S104
            container.with_env(f"PULSAR_PREFIX_{name}", value)
            path = value.removeprefix("file://")
            if path.startswith("/") and Path(path).is_file():
                container.with_volume_mapping(path, path)  # Certificates and keys, read-only.
        for port in ports:
            # The same number inside and outside, as the broker advertises its own port. On the
            # loopback only: most brokers run without authentication.
            container.ports[str(port)] = (HOST, port)
        if self._host_dir is not None:
            self._host_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            container.with_volume_mapping(self._host_dir.absolute(), _DATA, "rw")
            container.with_kwargs(user=f"{os.getuid()}:0")
        return container

    def exit_code(self) -> int | None:
        """The broker's exit code; None while it runs."""
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        state = wrapped.attrs["State"]
        return None if state["Running"] else int(state["ExitCode"])

    def kill(self) -> None:
        """SIGKILL; returns when the broker is gone."""
        if self._container is None:
            raise BrokerNotReady("The broker was not started.")
        if self.exit_code() is None:
            wrapped = self._container.get_wrapped_container()
            wrapped.kill()
            wrapped.wait()

    def stop(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL after ``grace_s``; returns when the broker is gone."""
        if self._container is not None:
            self._container.get_wrapped_container().stop(timeout=int(grace_s))

    def close(self) -> None:
        """Remove the container."""
        if self._container is not None:
            self._container.stop()
            self._container = None

    def log(self) -> str:
        """The container's output."""
        if self._container is None:
            return ""
        return b"".join(self._container.get_logs()).decode(errors="replace")
