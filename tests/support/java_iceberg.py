"""Iceberg's Java library in a process of its own, as a judge."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from eos.testing import maven
from tests.support.java_program import JavaProgram, running

# The newest runtime; it does not run in PySpark 4.2, whose interface for views is another one.
_RUNTIME: Final = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
_SQLITE: Final = "org.xerial:sqlite-jdbc:3.50.3.0"


@dataclass
class JavaIceberg:
    """The running library; one order at a time."""

    program: JavaProgram

    def read(self, folder: Path, table: str, where: Any = None) -> tuple[list[list[str]], int]:
        """Return the rows as text, and the number of files that the filter leaves."""
        text = "" if where is None else json.dumps(where)
        found = self.ask("read", folder, table, filter=text)
        return found["rows"], found["files"]

    def ask(self, do: str, folder: Path, table: str, **order: Any) -> Any:
        """See ``JavaIceberg.java``."""
        return self.program.ask(do=do, folder=str(folder), table=table, **order)


@contextmanager
def java_iceberg() -> Iterator[JavaIceberg]:
    """Start it, and end it after the block."""
    with running("Iceberg", "JavaIceberg.java", _class_path()) as (program, _):
        yield JavaIceberg(program)


@contextmanager
def java_rest_catalog(folder: Path) -> Iterator[str]:
    """The URL of a REST catalog whose tables are in ``folder``, while it runs."""
    with running("Iceberg", "JavaRestCatalog.java", _class_path(), str(folder)) as (_, port):
        yield f"http://127.0.0.1:{port}"


def _class_path() -> str:
    jars = maven.resolve([_RUNTIME, _SQLITE], "iceberg-1.12.0")
    return os.pathsep.join(map(str, [*jars, *maven.spark_jars()]))
