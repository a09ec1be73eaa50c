"""Iceberg's Java library in a process of its own, as a judge."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from eos.testing import jvm, maven

_PROGRAMS: Final = Path(__file__).parent / "java"
# The newest runtime; it does not run in PySpark 4.2, whose interface for views is another one.
_RUNTIME: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
_SQLITE: Final = "org.xerial:sqlite-jdbc:3.50.3.0"


@dataclass
class JavaIceberg:
    """The running library; one order at a time."""

    orders: IO[str]
    answers: IO[str]

    def read(self, folder: Path, table: str, where: Any = None) -> tuple[list[list[str]], int]:
        """Return the rows as text, and the number of files that the filter leaves."""
        text = "" if where is None else json.dumps(where)
        found = self.ask("read", folder, table, filter=text)
        return found["rows"], found["files"]

    def ask(self, do: str, folder: Path, table: str, **order: Any) -> Any:
        """See ``JavaIceberg.java``."""
        order |= {"do": do, "folder": str(folder), "table": table}
        self.orders.write(json.dumps(order) + "\n")
        self.orders.flush()
        return json.loads(self.line("answer"))

    def line(self, word: str) -> str:
        """Return the rest of the next line that begins with ``word``; others are its log."""
        for line in self.answers:
            if line.startswith(word):
                return line.removeprefix(word).strip()
            if line.startswith("failed"):
                raise AssertionError(f"Iceberg {line.strip()}")
        raise AssertionError("The Java process ended")


@contextmanager
def java_iceberg() -> Iterator[JavaIceberg]:
    """Start it, and end it after the block."""
    with _running("JavaIceberg.java") as (library, _):
        yield library


@contextmanager
def java_rest_catalog(folder: Path) -> Iterator[str]:
    """The URL of a REST catalog whose tables are in ``folder``, while it runs."""
    with _running("JavaRestCatalog.java", str(folder)) as (_, port):
        yield f"http://127.0.0.1:{port}"


@contextmanager
def _running(program: str, *args: str) -> Iterator[tuple[JavaIceberg, str]]:
    jars = maven.resolve([_RUNTIME, _SQLITE], "iceberg-1.12.0")
    path = os.pathsep.join(map(str, [*jars, *maven.spark_jars()]))
    options = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", path]
    process = subprocess.Popen(
        [jvm.need_java(), *options, str(_PROGRAMS / program), *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    library = JavaIceberg(process.stdin, process.stdout)
    try:
        yield library, library.line("ready")
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError):
            process.communicate(timeout=10)  # it ends with its input
        process.kill()
        process.wait()
