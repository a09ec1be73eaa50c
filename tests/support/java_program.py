"""A Java program as a judge: it gets orders and gives answers, a line of JSON each."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from eos.testing import jvm

_PROGRAMS: Final = Path(__file__).parent / "java"


@dataclass
class JavaProgram:
    """The running program; one order at a time. ``name``: for messages."""

    name: str
    orders: IO[str]
    answers: IO[str]

    def ask(self, **order: Any) -> Any:
        """Give an order; return the answer."""
        self.orders.write(json.dumps(order) + "\n")
        self.orders.flush()
        return json.loads(self.line("answer"))

    def line(self, word: str) -> str:
        """Return the rest of the next line that begins with ``word``; others are its log."""
        for line in self.answers:
            if line.startswith(word):
                return line.removeprefix(word).strip()
            if line.startswith("failed"):
                raise AssertionError(f"{self.name} {line.strip()}")
        raise AssertionError(f"{self.name} ended")


@contextmanager
def running(name: str, file: str, class_path: str, *args: str) -> Iterator[tuple[JavaProgram, str]]:
    """Start a program, and end it after the block; with it comes the rest of its line ``ready``."""
    options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", class_path]
    process = subprocess.Popen(
        [jvm.need_java(), *options, str(_PROGRAMS / file), *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    program = JavaProgram(name, process.stdin, process.stdout)
    try:
        yield program, program.line("ready")
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError):
            process.communicate(timeout=10)  # it ends with its input
        process.kill()
        process.wait()
