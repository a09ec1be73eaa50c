"""Programs that a demo runs in separate processes, so that it can kill them.

The demo starts a program, sends it words on its standard input, and receives events through a pipe.
The second half of this file is the program's side of both.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from eos.chaos.cluster.processes import executors, kill_all, kill_session
from eos.chaos.cluster.spark_env import spark_env

_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Event:
    """An event that a program reported, or ``died`` at its end.

    Attributes:
        event: its name; each program's module lists its events.
        epoch: -1 if the event has none.
    """

    event: str
    epoch: int
    at: float
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """Base of the tasks that programs get on their command line."""

    def to_json(self) -> str:
        """Return the task as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the task that ``to_json`` wrote."""
        return cls(**json.loads(text))


class Subprocess:
    """A running program. A context manager that kills it, and all processes that it started.

    Args:
        module: run as ``python -m module task events_fd``.
        task: given to it as JSON.
        log_file: receives its output.
        env: added to the environment of this process.
    """

    def __init__(
        self, module: str, task: Task, log_file: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self._events: queue.Queue[Event] = queue.Queue()
        read_fd, write_fd = os.pipe()
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, task.to_json(), str(write_fd)],
                cwd=_ROOT,
                env={**os.environ, **(env or {})},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[write_fd],
                start_new_session=True,  # Ctrl-C goes to the demo alone; kill() finds its children
            )
        os.close(write_fd)  # the program's copy is then the last one, so its death ends the events
        threading.Thread(target=self._listen, args=(read_fd,), daemon=True).start()

    def _listen(self, read_fd: int) -> None:
        with os.fdopen(read_fd) as lines:
            for line in lines:
                # The last line may be incomplete: its writer was killed.
                with suppress(json.JSONDecodeError):
                    self._events.put(Event(**json.loads(line)))
        self._process.wait()
        # Immediately, not at the next call of next_event: the JVM must not outlive its Python.
        self.kill()
        self._events.put(Event("died", -1, time.time()))

    def next_event(self, timeout_s: float) -> Event:
        """Wait for the next event.

        Raises:
            TimeoutError: none arrived.
        """
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"The program sent no event for {timeout_s:.0f} s") from None

    def send(self, word: str) -> None:
        """Write a line to its standard input; ignored if it is dead."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{word}\n".encode())
            self._process.stdin.flush()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Exit code of its Python; negative: the signal that killed it. None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL it, if it still runs, and all processes that it started."""
        kill_session(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.wait(timeout=30)
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()


class SparkDriver(Subprocess):
    """A running Spark driver program with its executors.

    Args:
        module, task, log_file: as for ``Subprocess``.
        scratch_dir: an existing folder for Spark's temporary files.
        env: further environment variables.
    """

    def __init__(
        self,
        module: str,
        task: Task,
        log_file: Path,
        scratch_dir: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        spark = spark_env(scratch_dir, path=(_ROOT,))
        super().__init__(module, task, log_file, {**spark, **(env or {})})

    def kill_oldest_executor(self) -> int | None:
        """SIGKILL the oldest executor. Return its process id, or None if no executor runs."""
        running = executors(self.pid)
        if not running:
            return None
        kill_all(running[:1])
        return int(running[0].pid)


class SendEvent(Protocol):
    """Sends an event to the demo: its name, its epoch if it has one, further facts by name."""

    def __call__(self, event: str, epoch: int = -1, **facts: Any) -> None: ...


@contextmanager
def event_sender(events_fd: int) -> Iterator[SendEvent]:
    """Yield a function that sends events through the pipe ``events_fd``, one JSON line each."""
    with os.fdopen(events_fd, "w", buffering=1) as pipe:

        def send(event: str, epoch: int = -1, **facts: Any) -> None:
            line = {"event": event, "epoch": epoch, "at": time.time(), "facts": facts}
            pipe.write(json.dumps(line) + "\n")

        yield send


def follow_parent(commands: Mapping[str, Callable[[], None]] | None = None) -> None:
    """Run the commands that the demo sends by name, and exit when the demo exits, in a thread."""

    def listen() -> None:
        # Not sys.stdin: its lock would be held while the interpreter shuts down.
        with open(os.dup(0)) as lines:
            for line in lines:
                (commands or {})[line.strip()]()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=listen, daemon=True).start()
