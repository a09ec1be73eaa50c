"""The Java client as a peer: one JVM that stays, so that its compiler has warmed up."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from eos.standalone import jvm, maven

_PROGRAM: Final = Path(__file__).parent / "java" / "TransactionClient.java"


class JavaClient:
    """Writes rows in one transaction each time it is asked. A context manager."""

    def __init__(self, service_url: str, value_bytes: int) -> None:
        java = jvm.find_java()
        if java is None:
            raise RuntimeError("there is no Java of version 17 or newer")
        jars = str(maven.pulsar_jars()[0].parent / "*")
        self._process = subprocess.Popen(
            [java, "-Xmx1g", "-cp", jars, str(_PROGRAM), service_url, str(value_bytes)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._await("ready")

    def rows_per_s(self, topic: str, count: int) -> float:
        """Write ``count`` rows to ``topic``, an exact partition, in one transaction."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{topic} {count}\n")
        self._process.stdin.flush()
        return count / float(self._await("took"))

    def _await(self, word: str) -> str:
        """The rest of the line that begins with ``word``; the others are the library's log."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(word):
                return line.removeprefix(word).strip()
        raise RuntimeError(f"the Java client ended with {self._process.wait()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
