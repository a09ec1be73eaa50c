"""The Java client as a peer: one JVM that stays, so that its compiler has warmed up."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from bench.environment import HEAP
from bench.rows import RowShape
from eos.standalone import jvm, maven

_PROGRAM: Final = Path(__file__).parent / "java" / "TransactionClient.java"


class JavaClient:
    """Writes rows in one transaction each time it is asked. A context manager, which starts it."""

    def __init__(self, service_url: str) -> None:
        java = jvm.find_java()
        if java is None:
            raise RuntimeError("there is no Java of version 17 or newer")
        jars = str(maven.pulsar_jars(maven.pulsar_version())[0].parent / "*")
        self._command = [java, *HEAP, "-cp", jars, str(_PROGRAM), service_url]

    def rows_per_s(self, shape: RowShape, topic: str, count: int) -> float:
        """Write ``count`` values to ``topic`` in one transaction."""
        if shape.partitions == 1:
            topic += "-partition-0"  # which spares the client its router
        return self._rate(topic, count, str(shape.value_bytes))

    def records_per_s(self, schema: str, topic: str, count: int) -> float:
        """Write ``count`` records of ``bench.schemas`` to a topic of one partition."""
        return self._rate(f"{topic}-partition-0", count, schema)

    def _rate(self, topic: str, count: int, kind: str) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{topic} {count} {kind}\n")
        self._process.stdin.flush()
        return count / float(self._await("took"))

    def _await(self, word: str) -> str:
        """The rest of the line that begins with ``word``; the others are the library's log."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.removeprefix(word).strip()
            if line.startswith("failed"):
                raise RuntimeError(f"the Java client: {line.strip()}")
        self._errors.seek(0)
        raise RuntimeError(
            f"the Java client ended with {self._process.wait()}: {self._errors.read()[-1000:]}"
        )

    def __enter__(self) -> Self:
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        try:
            self._await("ready")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def _end(self) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.communicate(timeout=20)  # the end of its input is the end of its work
        self._process.kill()
        self._process.wait()
        self._errors.close()
