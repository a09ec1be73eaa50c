"""``eos broker``: run a real Pulsar broker from the command line."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Annotated, Final, Literal, Never

import typer

from eos.errors import ConfigurationError, EosError
from eos.testing import PulsarCluster, PulsarStandalone, jvm, maven
from eos.testing._broker import runs_in_docker
from eos.testing._settings import is_free

ADMIN: Final = "admin"
JOB: Final = "job"  # the role that may only produce and consume, in these namespaces:
NAMESPACES: Final = ("public/default", "pulsar/system")
_HEAD: Final = {"alg": "HS256"}
_MIN_KEY_BYTES: Final = 32  # of HS256: the broker refuses tokens of a shorter one


class TokenFolder:
    """``secret.key``, and with it ``admin.token`` and ``job.token``; created if missing.

    Raises:
        ConfigurationError: the key can't be used.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / "secret.key"
        self._key = _load_or_create(path, secrets.token_hex(32))
        if len(self._key) < _MIN_KEY_BYTES:
            raise ConfigurationError(
                f"{path} is shorter than {_MIN_KEY_BYTES} bytes.",
                hint="Delete it: the next start creates it again, and new tokens.",
            )
        self.files: dict[str, Path] = {}
        for role in (ADMIN, JOB):
            self.files[role] = path = folder / f"{role}.token"
            body, _, signature = _load_or_create(path, self._signed(role)).rpartition(b".")
            if signature.decode(errors="replace") != self._signature(body):  # of another key
                path.write_text(f"{self._signed(role)}\n")

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
        return f"{head}.{claims}.{self._signature(f'{head}.{claims}'.encode())}"

    def _signature(self, body: bytes) -> str:
        return _text(hmac.new(self._key, body, hashlib.sha256).digest())


def allow_job(broker: PulsarStandalone) -> None:
    """Grant the job's role its permissions; the broker must run."""
    for namespace in NAMESPACES:
        path = f"/v2/namespaces/{namespace}/permissions/{JOB}"
        broker.admin("POST", path, ["produce", "consume"])


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _load_or_create(path: Path, new: str) -> bytes:
    """Return the content of ``path``; write ``new`` first if it is missing, for the owner only."""
    # An existing file is kept, so that a restarted broker accepts the same tokens.
    try:
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            file.write(f"{new}\n")
    except FileExistsError:
        pass
    return path.read_bytes().strip()


_POLL_S: Final = 0.2
_EXIT_FAILED: Final = 1
_EXIT_WRONG: Final = 2

_Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the data; by default ~/.local/share/eos/broker, or eos/cluster there."
    ),
]
_Temporary = Annotated[bool, typer.Option("--temporary", help="Delete the data at the end.")]
_Port = Annotated[int, typer.Option(min=0, max=65535, help="Port for clients; 0 picks a free one.")]
_AdminPort = Annotated[
    int, typer.Option(min=0, max=65535, help="Port of the admin REST API; 0 picks a free one.")
]
_Brokers = Annotated[
    int,
    typer.Option(
        min=1,
        help="2 or more start a cluster. Further brokers use the ports after the first one's.",
    ),
]
_Bookies = Annotated[int, typer.Option(min=1, help="Number of bookies of a cluster.")]
_PulsarVersion = Annotated[
    str | None,
    typer.Option(
        envvar=maven.PULSAR_VERSION_VARIABLE,
        help=f"Version of Pulsar; {maven.DEFAULT_PULSAR_VERSION} by default.",
    ),
]
_Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A setting of broker.conf; repeatable."),
]

_Tokens = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Require tokens from clients, and write them there: admin.token, job.token.",
    ),
]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)


class _StopRequested(BaseException):  # not an Exception: no handler may take it for a failure
    """Ctrl-C or SIGTERM."""


@app.callback()
def describe() -> None:
    """A real Pulsar broker on this machine, for first steps, demos and tests.

    It runs in Docker if an engine answers and Testcontainers is installed, otherwise in a JVM (Java
    17 or newer), from jars that Maven fetches once into ~/.cache/eos. EOS_BROKER=docker or maven
    overrides this; EOS_CACHE_DIR moves the cache. A cluster always runs in JVMs.

    Exit codes: 0 stopped by Ctrl-C or SIGTERM; 1 the broker was not ready in time, or died; 2 wrong
    options, or something is not installed.
    """


@app.command()
def start(
    data: _Data = None,
    temporary: _Temporary = False,
    port: _Port = 6650,
    admin_port: _AdminPort = 8080,
    brokers: _Brokers = 1,
    bookies: _Bookies = 2,
    pulsar_version: _PulsarVersion = None,
    set_: _Set = None,
    tokens: _Tokens = None,
) -> None:
    """Run a broker, or a cluster, with transactions in the foreground, until Ctrl-C or SIGTERM.

    Prints its URLs and the data folder when it is ready. The data is kept for the next start: a
    commit log or checkpoint that outlives it would record rows that no longer exist.

        eos broker start

        eos broker start --temporary

        eos broker start --data ./pulsar-data --port 0 --admin-port 0

        eos broker start --brokers 2 --bookies 3 --temporary

        eos broker start --tokens ./tokens

        eos broker start --set maxMessageSize=1048576 --set brokerDeduplicationEnabled=true

    Exit codes: 0 stopped by Ctrl-C or SIGTERM; 1 the broker was not ready in time, or died; 2 wrong
    options, or something is not installed.
    """
    if temporary and data is not None:
        raise typer.BadParameter("Give --data or --temporary, not both.")
    _check_free({"--port": port, "--admin-port": admin_port})
    if tokens is not None and brokers > 1:
        raise typer.BadParameter("--tokens is for one broker, without --brokers.")
    config = _parse_settings(set_ or [])
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _on_signal)
    try:
        name: Literal["broker", "cluster"] = "broker" if brokers == 1 else "cluster"
        folder = None if temporary else data or default_data_dir(name)
        if brokers == 1:
            listeners = {"brokerServicePort": str(port), "webServicePort": str(admin_port)}
            _run(folder, listeners | config, pulsar_version, tokens)
        else:
            cluster = PulsarCluster(
                brokers,
                bookies,
                folder,
                config,
                port=port,
                admin_port=admin_port,
                pulsar_version=pulsar_version,
            )
            _run_cluster(cluster, folder)
    except _StopRequested:
        typer.echo("Stopped.")
    except EosError as error:
        _fail(error)


def _check_free(ports: dict[str, int]) -> None:
    for option, port in ports.items():
        if port and not is_free(port):  # the JVM would say it in a page of its log
            raise typer.BadParameter(
                f"Something listens on port {port}, perhaps another broker: stop it, or choose "
                "another port; 0 picks a free one.",
                param_hint=option,
            )


def _parse_settings(given: list[str]) -> dict[str, str]:
    settings = {}
    for setting in given:
        name, equals, value = setting.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{setting!r}: expected KEY=VALUE.", param_hint="--set")
        settings[name] = value
    return settings


@app.command()
def fetch(pulsar_version: _PulsarVersion = None) -> None:
    """Fetch the broker's jars with Maven (240 MB, once) and prepare the JVM for fast starts.

    Exit codes: 0 the jars are complete; 1 a first broker was not ready in time; 2 Maven or Java is
    missing, or Maven failed.
    """

    def run_broker(data: Path, option: str) -> None:
        with PulsarStandalone(data, jvm_options=[option], pulsar_version=version):
            pass

    try:
        version = maven.pulsar_version(pulsar_version)
        jars = maven.pulsar_jars(version)
        typer.echo(f"{len(jars)} jars in {jars[0].parent}")
        if not runs_in_docker() and (java := jvm.find_java()):
            archive = jvm.create_archive(java, version, run_broker)
            typer.echo(f"class archive: {archive or 'none; starts take a little longer'}")
    except EosError as error:
        _fail(error)


def default_data_dir(of: Literal["broker", "cluster"] = "broker") -> Path:
    """Return ``XDG_DATA_HOME/eos/broker``, or else ``~/.local/share/eos/broker``."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else maven.home() / ".local" / "share") / "eos" / of


def _run(
    data: Path | None,
    config: dict[str, str],
    pulsar_version: str | None,
    tokens_folder: Path | None,
) -> None:
    tokens = None if tokens_folder is None else TokenFolder(tokens_folder)
    settings = config if tokens is None else tokens.settings | config
    admin_token = None if tokens is None else tokens.admin_token
    with PulsarStandalone(
        data, settings, admin_token=admin_token, pulsar_version=pulsar_version
    ) as broker:
        typer.echo(f"service URL: {broker.service_url}")
        typer.echo(f"admin URL:   {broker.admin_url}")
        typer.echo(f"data:        {broker.data_dir}" + (" (kept)" if data else " (temporary)"))
        if tokens is not None:
            allow_job(broker)
            for role, path in tokens.files.items():
                typer.echo(f"{role} token:".ljust(13) + str(path))
        typer.echo("Ready. Ctrl-C stops it.")
        while broker.is_running():
            time.sleep(_POLL_S)
        typer.echo("The broker died. The end of its log:", err=True)
        typer.echo("\n".join(broker.log().splitlines()[-15:]), err=True)
    raise typer.Exit(_EXIT_FAILED)


def _run_cluster(cluster: PulsarCluster, data: Path | None) -> None:
    with cluster:
        typer.echo(f"service URL: {cluster.service_url}")
        typer.echo(f"admin URL:   {cluster.admin_url}")
        for node in cluster.nodes:
            typer.echo(f"{node.name + ':':<16} process {node.pid}, {node.data_dir}")
        typer.echo("data:        " + (f"{data} (kept)" if data else "temporary"))
        typer.echo("Ready. Ctrl-C stops it; a killed server is not restarted.")
        reported: set[str] = set()
        while alive := [node for node in cluster.nodes if node.is_running()]:
            for name in (
                {node.name for node in cluster.nodes} - {node.name for node in alive} - reported
            ):
                reported.add(name)
                typer.echo(f"{name} died.", err=True)
            time.sleep(_POLL_S)
    raise typer.Exit(_EXIT_FAILED)


def _on_signal(number: int, frame: FrameType | None) -> Never:
    del number, frame
    # A second Ctrl-C must not interrupt the cleanup.
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    raise _StopRequested


def _fail(error: EosError) -> Never:
    typer.echo(f"eos broker: {error}", err=True)
    for note in getattr(error, "__notes__", ()):
        typer.echo(note, err=True)
    raise typer.Exit(_EXIT_WRONG if isinstance(error, ConfigurationError) else _EXIT_FAILED)


def main() -> None:
    """Run the command line; ``sys.argv[0]`` is the program's name."""
    app(prog_name=sys.argv[0])
