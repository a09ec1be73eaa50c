"""``PulsarStandalone``: one real broker, owned by a test or a demo."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, Self

from eos.admin import Transport
from eos.errors import BrokerNotReady, ConfigurationError
from eos.testing import _settings as settings
from eos.testing import maven
from eos.testing._readiness import Probe, relevant_tail
from eos.testing._settings import HOST
from eos.testing.jvm import OPTIONS, StandaloneJvm, need_java
from eos.transport.auth import Auth

_STOP_GRACE_S: Final = 30.0
_ADMIN_TIMEOUT_S: Final = 60.0
_OFFLOAD_POLL_S: Final = 0.1


class _Engine(Protocol):
    """Runs the broker: a ``StandaloneJvm`` or a ``Container``."""

    data_dir: Path

    @property
    def pid(self) -> int | None: ...
    def start(self, values: Mapping[str, str], ports: list[int]) -> None: ...
    def exit_code(self) -> int | None: ...
    def kill(self) -> None: ...
    def stop(self, grace_s: float) -> None: ...
    def close(self) -> None: ...
    def log(self) -> str: ...


class HasAdmin(Protocol):
    """A broker, or a cluster."""

    def admin(self, method: str, path: str, body: object = None) -> Any: ...


def offload(broker: HasAdmin, topic: str, *, timeout_s: float = 60.0) -> None:
    """Move all full ledgers of an exact ``topic``, a full name, to tiered storage.

    Raises:
        TimeoutError: it does not succeed.
        EosError: the broker refuses.
    """
    path, deadline = f"/v2/{topic.replace('://', '/')}", time.monotonic() + timeout_s
    last = broker.admin("GET", f"{path}/lastMessageId")
    place = {name: last[name] for name in ("ledgerId", "entryId", "partitionIndex")}
    status = {"status": "NOT_RUN"}
    while status["status"] != "SUCCESS":
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} is not offloaded after {timeout_s:g} s: {status}")
        if status["status"] != "RUNNING":
            # Also after an error of the storage: the broker does not try again by itself.
            broker.admin("PUT", f"{path}/offload", place)
        time.sleep(_OFFLOAD_POLL_S)
        status = broker.admin("GET", f"{path}/offload")


class PulsarStandalone:
    """A Pulsar broker with its bookie, on free ports of this machine. A context manager.

    It runs in Docker if an engine answers, otherwise in a JVM, from jars that Maven resolves once;
    the environment variable ``EOS_BROKER`` (``docker`` or ``maven``) overrides this. Nothing is
    left behind, even if this process is killed.

    Args:
        data_dir: the folder of the data, kept at the end and reusable. None: temporary.
        config: settings of broker.conf; they override the defaults of eos. A port of ``"0"`` means
            a free one.
        transactions: run a transaction coordinator.
        ready_timeout_s: timeout of a start.
        admin_token: for the readiness check, and for the broker's internal client, if ``config``
            enables authentication. Without it a refused health check counts as ready.
        jvm_options: added to the defaults (``jvm.OPTIONS``), for example a larger ``-Xmx``.
        pulsar_version: for example ``"4.0.7"``; None: the environment's ``EOS_PULSAR_VERSION``,
            otherwise the version that eos is tested with.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        config: Mapping[str, str] | None = None,
        *,
        transactions: bool = True,
        ready_timeout_s: float = 90.0,
        admin_token: str | None = None,
        jvm_options: Sequence[str] = (),
        pulsar_version: str | None = None,
    ) -> None:
        self._requested_dir = None if data_dir is None else Path(data_dir)
        self._config = dict(config or {})
        self._transactions = transactions
        self._ready_timeout_s = ready_timeout_s
        self._token = admin_token
        self._jvm_options = tuple(jvm_options)
        self._version = maven.pulsar_version(pulsar_version)
        self._settings: dict[str, str] = {}
        self._engine: _Engine | None = None

    def start(self) -> Self:
        """Start the broker and return when it is ready; does nothing if it runs.

        Raises:
            ConfigurationError: this machine can't run a broker, or it exited during the start.
            BrokerNotReady: it was not ready in time.
        """
        if self._engine is None:
            self._settings = settings.complete(
                self._config, transactions=self._transactions, token=self._token
            )
            self._engine = _choose_engine(self._version, self._requested_dir, self._jvm_options)
        elif self._engine.exit_code() is None:
            return self
        try:
            return self._run(self._engine)
        except BaseException:
            self.stop()
            raise

    def kill(self) -> None:
        """Kill the broker's process with SIGKILL, like a crash; ``restart()`` starts it again."""
        self._started().kill()

    def restart(self) -> Self:
        """Start again with the same data and ports, after ``kill()``, an exit or a failed restart.

        Raises:
            BrokerNotReady, ConfigurationError: as ``start``.
        """
        engine = self._started()
        engine.stop(_STOP_GRACE_S)
        try:
            return self._run(engine)
        except BaseException:
            with contextlib.suppress(BrokerNotReady):  # the supervisor is gone
                engine.stop(_STOP_GRACE_S)
            raise

    def stop(self) -> None:
        """Stop the broker and delete a temporary data folder. May be called twice."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        try:
            if self._requested_dir is not None:  # Temporary data needs no orderly shutdown.
                engine.stop(_STOP_GRACE_S)
        except BrokerNotReady:
            pass  # The supervisor is gone, and the broker with it.
        finally:
            engine.close()

    @property
    def service_url(self) -> str:
        """``pulsar://host:port``."""
        return f"pulsar://{self._address('brokerServicePort')}"

    @property
    def tls_service_url(self) -> str:
        """``pulsar+ssl://host:port``; needs ``brokerServicePortTls`` in ``config``."""
        return f"pulsar+ssl://{self._address('brokerServicePortTls')}"

    @property
    def admin_url(self) -> str:
        """``http://host:port`` of the admin REST API."""
        return f"http://{self._address('webServicePort')}"

    @property
    def tls_admin_url(self) -> str:
        """``https://host:port``; needs ``webServicePortTls`` in ``config``."""
        return f"https://{self._address('webServicePortTls')}"

    @property
    def data_dir(self) -> Path:
        """The folder of the data and broker.log (in the container: Docker without ``data_dir``)."""
        return self._started().data_dir

    @property
    def pid(self) -> int | None:
        """The broker's process id; None if it does not run."""
        return self._engine.pid if self._engine and self.is_running() else None

    def is_running(self) -> bool:
        """Whether the broker's process is alive."""
        return self._engine is not None and self._engine.exit_code() is None

    def log(self) -> str:
        """The broker's log since its last start."""
        return self._started().log()

    def admin(self, method: str, path: str, body: object = None) -> Any:
        """Call the admin API once, with ``admin_token`` if there is one.

        Args:
            path: below ``/admin``, for example ``/v2/persistent/public/default/orders``.
            body: is sent as JSON.

        Returns:
            The parsed answer; None for an empty one.

        Raises:
            Unauthorized, TopicNotFound, BrokerNotReady: the broker refused; a note on the error
                has its answer.
            EosError: there was no answer.
        """
        transport = Transport(self.admin_url, Auth(token=self._token), timeout_s=_ADMIN_TIMEOUT_S)
        return transport.ask_json(method, f"/admin{path}", body)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _started(self) -> _Engine:
        if self._engine is None:
            raise BrokerNotReady("The broker is not started.", hint="Call start() first.")
        return self._engine

    def _address(self, port_name: str) -> str:
        self._started()
        port = self._settings.get(port_name)
        if not port:
            raise ConfigurationError(f"The broker runs without {port_name}.")
        return f"{self._settings['advertisedAddress']}:{port}"

    def _run(self, engine: _Engine) -> Self:
        ports = [int(self._settings[name]) for name in settings.PORTS if self._settings.get(name)]
        probe = Probe(
            host=settings.HOST,
            admin_port=int(self._settings["webServicePort"]),
            service_port=int(self._settings["brokerServicePort"]),
            token=self._token,
            transactions=self._settings["transactionCoordinatorEnabled"] == "true",
        )

        def check_alive() -> None:
            code = engine.exit_code()
            if code is not None:
                raise ConfigurationError(f"The broker exited with code {code} during its start.")

        try:
            engine.start(self._settings, ports)
            probe.wait(time.monotonic() + self._ready_timeout_s, check_alive)
        except (ConfigurationError, BrokerNotReady) as error:
            error.add_note(f"The broker's last relevant lines:\n{relevant_tail(engine.log())}")
            raise
        return self


def runs_in_docker() -> bool:
    """Whether a broker started now would run in Docker: ``EOS_BROKER``, or if an engine answers.

    Raises:
        ConfigurationError: ``EOS_BROKER`` is invalid, or asks for an engine that does not answer.
    """
    wanted = os.environ.get("EOS_BROKER", "")
    if wanted not in ("", "docker", "maven"):
        raise ConfigurationError(f"EOS_BROKER={wanted!r}: expected docker or maven.")
    answers = wanted != "maven" and engine_answers()
    if wanted == "docker" and not answers:
        raise ConfigurationError(
            "EOS_BROKER=docker, but no Docker engine answers or Testcontainers is not installed.",
            hint="Start the engine, and run: pip install testcontainers.",
        )
    return answers


def _choose_engine(version: str, data_dir: Path | None, options: Sequence[str]) -> _Engine:
    if runs_in_docker():
        return Container(version, data_dir, options)
    return StandaloneJvm(need_java(), version, data_dir, options)


_IMAGE: Final = "apachepulsar/pulsar"
_DATA: Final = "/pulsar/data"
# The image's script turns PULSAR_PREFIX_* variables into settings; exec makes java process 1, which
# receives the signals.
_COMMAND: Final = (
    "umask 077; bin/apply-config-from-env.py conf/standalone.conf"
    " && exec bin/pulsar standalone -nfw -nss"
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
    """The broker's container. Its writable layer, or ``data_dir``, survives a kill."""

    # Testcontainers' reaper removes the container when this process dies.

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
        from docker.errors import DockerException

        try:
            if self._container is None:
                self._container = self._create(values, ports)
                self._container.start()
            else:
                self._container.get_wrapped_container().start()
        except DockerException as error:
            raise ConfigurationError(
                f"The broker's container did not start: {getattr(error, 'explanation', error)}.",
                hint="Free the port or pull the image that it names, or set EOS_BROKER=maven.",
            ) from error

    def _create(self, values: Mapping[str, str], ports: list[int]) -> Any:
        from testcontainers.core.container import DockerContainer

        container = DockerContainer(self._image).with_command(["sh", "-c", _COMMAND])
        container.with_env("PULSAR_MEM", self._options)
        container.with_env("PULSAR_GC", " ")  # Otherwise the image sets a second collector.
        # The owner of the data and of private keys, in the group for which the image is writable.
        container.with_kwargs(user=f"{os.getuid()}:0")
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
