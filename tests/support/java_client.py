"""Pulsar's Java client in a process of its own, as a judge."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

from eos.testing import jvm, maven

_PROGRAM: Final = Path(__file__).parent / "java" / "JavaClient.java"


@dataclass(frozen=True)
class JavaMessage:
    """A message for the Java client to send, or one that it has read."""

    value: bytes | None
    key: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    encrypted: bool = False


@dataclass
class JavaClient:
    """The running client; one order at a time."""

    orders: IO[str]
    answers: IO[str]

    def send(self, topic: str, messages: Sequence[JavaMessage], **options: Any) -> None:
        """Send ``messages``, with the options of ``JavaClient.java``."""
        plain = [
            {"value": _text(one.value), "key": one.key, "properties": dict(one.properties)}
            for one in messages
        ]
        assert self._call(do="send", topic=topic, messages=plain, **options) == len(messages)

    def read(self, topic: str, **options: Any) -> list[JavaMessage]:
        """Return all messages of ``topic``, by a reader."""
        return self._messages(do="read", topic=topic, **options)

    def consume(self, topic: str, count: int, **options: Any) -> list[JavaMessage]:
        """Return ``count`` messages of a shared consumer with retries."""
        return self._messages(do="consume", topic=topic, count=count, **options)

    def _messages(self, **order: Any) -> list[JavaMessage]:
        return [
            JavaMessage(
                None if one["value"] is None else base64.b64decode(one["value"]),
                one["key"],
                one["properties"],
                one["encrypted"],
            )
            for one in self._call(**order)
        ]

    def _call(self, **order: Any) -> Any:
        self.orders.write(json.dumps(order) + "\n")
        self.orders.flush()
        return json.loads(self.line("answer"))

    def line(self, word: str) -> str:
        """Return the rest of the next line that begins with ``word``; others are its log."""
        for line in self.answers:
            if line.startswith(word):
                return line.removeprefix(word).strip()
            if line.startswith("failed"):
                raise AssertionError(f"The Java client {line.strip()}")
        raise AssertionError("The Java client ended")


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


@contextmanager
def java_client(service_url: str) -> Iterator[JavaClient]:
    """Start it, and end it after the block."""
    java = jvm.find_java()
    assert java is not None
    jars = str(maven.pulsar_jars(maven.pulsar_version())[0].parent / "*")
    process = subprocess.Popen(
        [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", jars, str(_PROGRAM), service_url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    client = JavaClient(process.stdin, process.stdout)
    try:
        client.line("ready")
        yield client
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired, BrokenPipeError):
            process.communicate(timeout=10)  # it ends with its input
        process.kill()
        process.wait()
