"""Topics of any messages, sent and read by Pulsar's Java client, and copies of them."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from hypothesis import strategies as st

from eos.testing import maven
from eos.testing.jvm import find_java

_MESSAGES: Final = Path(__file__).parent / "java" / "Messages.java"

MAX_EVENT_TIME: Final = 253_402_300_799_999


@dataclass(frozen=True)
class Sent:
    """A message of the Java client. ``event_time``: 0 if it has none."""

    value: bytes | None
    key: bytes | None = None
    key_is_binary: bool | None = None
    ordering_key: bytes | None = None
    event_time: int = 0
    properties: tuple[tuple[str, str], ...] = ()
    schema_version: bytes | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "value": _text(self.value),
            "key": _text(self.key),
            "key_is_binary": self.key_is_binary,
            "ordering_key": _text(self.ordering_key),
            "event_time": self.event_time,
            "properties": dict(self.properties),
        }

    @classmethod
    def from_json(cls, line: dict[str, Any]) -> Self:
        return cls(
            value=_bytes(line["value"]),
            key=_bytes(line["key"]),
            key_is_binary=line["key_is_binary"],
            ordering_key=_bytes(line["ordering_key"]),
            event_time=line["event_time"],
            properties=tuple(sorted(line["properties"].items())),
            schema_version=_bytes(line["schema_version"]),
        )

    def without_version(self) -> Self:
        return replace(self, schema_version=None)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


class JavaClient:
    """A process of the Java client, which reads commands, one a line."""

    def __init__(self, service_url: str) -> None:
        command = find_java()
        assert command is not None
        jars = maven.pulsar_jars(maven.pulsar_version())[0].parent
        self._process = subprocess.Popen(
            [command, "-cp", f"{jars}/*", str(_MESSAGES), service_url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("ANSWER "):
                return json.loads(line[7:])
        raise AssertionError("the Java client has ended")

    def send(
        self, topic: str, messages: Sequence[Sent], *, batched: bool = True, plain: bool = True
    ) -> None:
        lines = [message.to_json() for message in messages]
        self._ask(do="send", topic=topic, messages=lines, batched=batched, plain=plain)

    def read(self, topic: str, count: int) -> list[Sent]:
        """Return at most ``count`` messages, fewer if no more arrive."""
        return [Sent.from_json(line) for line in self._ask(do="read", topic=topic, count=count)]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


# UTF-8 can't encode lone surrogates of Java's strings.
TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_KEYS: Final = (
    st.tuples(st.none(), st.none())
    | st.tuples(TEXT.map(str.encode) | st.sampled_from([b"k", b"a2V5MA==", b""]), st.just(False))
    | st.tuples(st.binary(max_size=12) | st.sampled_from([b"k", b"key0", b"\xff"]), st.just(True))
)
_EVENT_TIMES: Final = st.just(0) | st.integers(1, MAX_EVENT_TIME) | st.sampled_from([1, 999])
_PROPERTIES: Final = st.dictionaries(TEXT, TEXT, max_size=3)


def sent(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[Sent]:
    """Generate messages of any key, properties and times; some are tombstones."""

    def made(value: bytes | None, key: Any, ordering: Any, time: int, properties: Any) -> Sent:
        return Sent(value, *key, ordering, time, tuple(sorted(properties.items())))

    ordering = st.none() | st.binary(max_size=8)
    wide = st.one_of(values, values, values, st.none())
    return st.builds(made, wide, _KEYS, ordering, _EVENT_TIMES, _PROPERTIES)


def differences(source: Sequence[Sent], copy: Sequence[Sent]) -> list[tuple[Sent, Sent]]:
    """Return the messages of a partition that differ from those in its copy."""
    plain = [(a.without_version(), b.without_version()) for a, b in zip(source, copy, strict=True)]
    return [pair for pair in plain if pair[0] != pair[1]]


Copy = Callable[[str, str], None]
"""Copies one topic to another."""


FIELDS: Final[list[dict[str, Any]]] = [
    {"name": "id", "type": "long"},
    {"name": "__op", "type": ["null", "string"], "default": None},
    {"name": "__deleted", "type": ["null", "boolean"], "default": None},
    {"name": "key", "type": ["null", "string"], "default": None},
    {"name": "value", "type": ["null", "string"], "default": None},
    {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
    {"name": "sizes", "type": ["null", {"type": "map", "values": ["null", "long"]}]},
    {
        "name": "__nested",
        "type": [
            "null",
            {
                "type": "record",
                "name": "Nested",
                "fields": [
                    {"name": "__key", "type": ["null", "string"]},
                    {"name": "__topic", "type": ["null", "long"]},
                ],
            },
        ],
    },
]
ADDED: Final = {"name": "__added", "type": ["null", "string"], "default": None}


def definition(*more: dict[str, Any]) -> str:
    """Return an Avro record with odd names."""
    return json.dumps({"type": "record", "name": "Odd", "fields": [*FIELDS, *more]})


def records(*, is_new: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Generate records of ``definition()``, or with ``ADDED``; nulls at every level."""
    text, long = TEXT, st.integers(-(2**63), 2**63 - 1)
    nested = st.fixed_dictionaries({"__key": st.none() | text, "__topic": st.none() | long})
    fields = {
        "id": long,
        "__op": st.none() | text,
        "__deleted": st.none() | st.booleans(),
        "key": st.none() | text,
        "value": st.none() | text,
        "tags": st.none() | st.lists(st.none() | text, max_size=3),
        "sizes": st.none() | st.dictionaries(text, st.none() | long, max_size=3),
        "__nested": st.none() | nested,
    }
    return st.fixed_dictionaries(fields | ({"__added": st.none() | text} if is_new else {}))
