"""A program that a demo starts as a process of its own, listens to, and kills."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from eos.chaos.cluster.processes import kill_session

_ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Event:
    """What a program told (which events there are, it says), or what was seen from outside:
    ``died``.

    Attributes:
        epoch: of a program that has epochs.
        at: ``time.time()`` seconds.
        facts: what else it told.
    """

    event: str
    epoch: int
    at: float
    facts: Mapping[str, Any] = field(default_factory=dict)


class Child:
    """One life of a program; a context manager that leaves nothing of it behind.

    Args:
        module: what Python runs, with ``task`` and the number of the file that it writes events to.
        log_file: gets what it prints.
        env: over the variables of this process.
    """

    def __init__(
        self, module: str, task: str, log_file: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self._events: queue.Queue[Event] = queue.Queue()
        read_fd, write_fd = os.pipe()
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, task, str(write_fd)],
                cwd=_ROOT,
                env={**os.environ, **(env or {})},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[write_fd],
                start_new_session=True,
            )
        os.close(write_fd)
        threading.Thread(target=self._listen, args=(read_fd,), daemon=True).start()

    def _listen(self, read_fd: int) -> None:
        with os.fdopen(read_fd) as lines:
            for line in lines:
                # The last line may be half a one: its writer was killed.
                with suppress(json.JSONDecodeError):
                    self._events.put(Event(**json.loads(line)))
        self._process.wait()
        # At once, not when somebody asks for the next event: the JVM must not live on.
        self.kill()
        self._events.put(Event("died", -1, time.time()))

    def next_event(self, timeout_s: float) -> Event:
        """The next thing that happened.

        Raises:
            TimeoutError: nothing did.
        """
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError(f"the program was silent for {timeout_s:.0f} s") from None

    def order(self, word: str) -> None:
        """Give it a line on its standard input; a dead one gets nothing."""
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
        """Of its Python; negative: the signal that killed it. None while it runs."""
        return self._process.poll()

    def kill(self) -> None:
        """SIGKILL what is left of it and of all that it started."""
        kill_session(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.wait(timeout=30)
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
