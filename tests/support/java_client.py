"""Pulsar's Java client in a process of its own, as a judge."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from eos.testing import maven
from tests.support.java_program import JavaProgram, running


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

    program: JavaProgram

    def send(self, topic: str, messages: Sequence[JavaMessage], **options: Any) -> None:
        """Send ``messages``, with the options of ``JavaClient.java``."""
        plain = [
            {"value": _text(one.value), "key": one.key, "properties": dict(one.properties)}
            for one in messages
        ]
        assert self.program.ask(do="send", topic=topic, messages=plain, **options) == len(messages)

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
            for one in self.program.ask(**order)
        ]


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


@contextmanager
def java_client(service_url: str) -> Iterator[JavaClient]:
    """Start it, and end it after the block."""
    jars = str(maven.pulsar_jars(maven.pulsar_version())[0].parent / "*")
    with running("The Java client", "JavaClient.java", jars, service_url) as (program, _):
        yield JavaClient(program)
