"""What the values of messages become: bytes as they are, or columns by a schema."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from eos.client import PulsarClient
from eos.errors import ConfigurationError, IncompatibleSchema, InputError
from eos.ids import TopicName
from eos.schemas import PRIMITIVE_NAMES, AvroSchema, JsonSchema, Schema, schema_of, side_by_side
from eos.schemas.reading import (
    DecodedValues,
    SchemaVersion,
    ValueReader,
    are_same_values,
    check_readable,
    value_reader,
)
from eos.wire.commands import SchemaInfo

logger = logging.getLogger(__name__)

BYTES: Final = "bytes"
AUTO: Final = "auto"
MALFORMED_VALUE: Final = "__malformedValue"
MALFORMED_REASON: Final = "__malformedReason"

_WHERE: Final = ("ledger", "entry", "batch_index")
_MODES: Final = (
    "With mode=permissive such messages are kept as they are, with the reason, in columns "
    f"{MALFORMED_VALUE} and {MALFORMED_REASON}; with mode=dropmalformed they are left out."
)
_MOST_VERSIONS: Final = 100
"""How many versions of a topic's schema are looked at for one that can be read."""

Arrays = Mapping[str, pa.Array]


class Mode(StrEnum):
    """What becomes of a message whose value can't be read."""

    FAILFAST = "failfast"
    PERMISSIVE = "permissive"
    DROPMALFORMED = "dropmalformed"


def own_schema(name: str, definition: str | None) -> Schema | None:
    """The schema that the options ``schema`` and ``schema_definition`` say; None for ``bytes`` and
    ``auto``.

    Raises:
        ConfigurationError: there is no such schema for reading, or the definition is none.
    """
    if name in (AUTO, BYTES) or name in PRIMITIVE_NAMES:
        if definition is not None:
            raise ConfigurationError(f"schema {name!r} has no definition: choose avro or json.")
        return None if name == AUTO else schema_of(name)
    kinds = {"avro": AvroSchema, "json": JsonSchema}
    if name not in kinds:
        known = ", ".join((AUTO, *PRIMITIVE_NAMES, *kinds))
        raise ConfigurationError(
            f"There is no schema {name!r} for reading; there are: {known}.",
            hint="auto reads what the registry has, pairs and Protobuf too.",
        )
    if definition is None:
        raise ConfigurationError(
            f"schema {name!r} needs schemaDefinition, a record in Avro's language.",
            hint='With "auto" the registry\'s is taken.',
        )
    return kinds[name](definition)


@dataclass(frozen=True)
class ValueFormat:
    """How values become columns; made on the driver, used in tasks.

    ``registered``: None when values are bytes as they are. ``own``: a schema of the user's.
    """

    registered: SchemaVersion | None
    own: Schema | None
    mode: Mode

    def __getstate__(self) -> dict[str, Any]:
        """Without what tasks make of it themselves."""
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @property
    def is_raw(self) -> bool:
        """Whether values stay bytes."""
        return self.registered is None and self.own is None

    @property
    def is_record(self) -> bool:
        """Whether columns are the fields of records."""
        return not self.is_raw and self._reader.is_record and not self._reader.is_pair

    @cached_property
    def _reader(self) -> ValueReader:
        return value_reader(self.registered, as_schema=self.own)

    @property
    def schema(self) -> pa.Schema:
        """The columns that values become."""
        if self.is_raw:
            return pa.schema([("value", pa.binary())])
        columns = list(self._reader.schema)
        if self.mode is Mode.PERMISSIVE:
            columns += [
                pa.field(MALFORMED_VALUE, pa.binary()),
                pa.field(MALFORMED_REASON, pa.string()),
            ]
        return pa.schema(columns)

    @property
    def needs(self) -> tuple[str, ...]:
        """The client's columns that ``decode`` takes."""
        return ("value",) if self.is_raw else ("value", "key", "schema_version", *_WHERE)

    def decode(
        self, topic: TopicName, columns: Arrays, find: Callable[[bytes], SchemaVersion | None]
    ) -> tuple[dict[str, pa.Array], pa.Array | None]:
        """The columns of ``schema``, and which rows are to be kept (None: all).

        Args:
            columns: the client's, by name.
            find: the schema that a message of ``topic`` names; None: the registry has none.

        Raises:
            InputError: a value is malformed; it names the message.
            IncompatibleSchema: so are all messages of its version; it shows both schemas.
        """
        if self.is_raw:
            return {"value": columns["value"]}, None
        values = columns["value"]
        found = self._reader.decode_versions(
            values, columns["key"], columns["schema_version"], find
        )
        decoded = dict(zip(self._reader.schema.names, found.columns.columns, strict=True))
        if self.mode is Mode.FAILFAST and len(found.failures):
            raise _malformed(topic, columns, found)
        if self.mode is Mode.PERMISSIVE:
            return decoded | _kept(values, found), None
        if not len(found.failures):
            return decoded, None
        logger.warning(
            "%s: %d messages with unreadable values are left out. %s",
            topic,
            len(found.failures),
            found.failures.reasons[0],
            extra={"topic": str(topic), "malformed": len(found.failures)},
        )
        keep = pa.array([True] * len(values)).to_numpy(zero_copy_only=False).copy()
        keep[found.failures.rows] = False
        return decoded, pa.array(keep)


def _malformed(
    topic: TopicName, columns: Arrays, found: DecodedValues
) -> InputError | IncompatibleSchema:
    row, reason = int(found.failures.rows[0]), found.failures.reasons[0]
    where = ":".join(str(columns[name][row]) for name in _WHERE)
    named = f"The message {where} of {topic} can't be read: "
    refusal = found.refused.get(reason)
    if refusal is None:
        return InputError(named + reason, hint=_MODES)
    return IncompatibleSchema(
        named + refusal.message, hint=f"{refusal.hint or ''} {_MODES}".strip()
    )


def _kept(values: pa.Array, found: DecodedValues) -> dict[str, pa.Array]:
    rows = pa.array(found.failures.rows)
    places = pa.nulls(len(values), pa.int64()).to_numpy(zero_copy_only=False)
    places[found.failures.rows] = range(len(rows))
    at = pa.array(places, pa.int64(), from_pandas=True)
    return {
        MALFORMED_VALUE: values.cast(pa.binary()).take(rows).take(at),
        MALFORMED_REASON: pa.array(found.failures.reasons, pa.string()).take(at),
    }


def value_format(
    client: PulsarClient,
    topics: Sequence[TopicName],
    *,
    own: Schema | None,
    mode: Mode,
    allow_different: bool,
) -> ValueFormat:
    """How the values of ``topics`` are read: by ``own``, or as the registry says.

    Raises:
        IncompatibleSchema: their schemas differ, or ``own`` can't read what one has; shows both.
        EosError: the registry can't be asked.
    """
    if own is None and allow_different:
        return ValueFormat(None, None, mode)
    registered = [(topic, _newest(client, topic)) for topic in topics]
    if not registered:
        return ValueFormat(None, own, mode)
    if own is not None:
        for topic, version in registered:
            if version is not None and mode is Mode.FAILFAST:
                _check_own(client, topic, version, own)
        return ValueFormat(registered[0][1], own, mode)
    (first, one), *others = registered
    for topic, other in others:
        if _is_other(one, other):
            infos = [SchemaInfo() if found is None else found.info for found in (one, other)]
            both = side_by_side(infos[0], infos[1], (f"{first}:", f"{topic}:"))
            raise IncompatibleSchema(
                f"The topics have different schemas.{both}\n",
                hint="With allowDifferentTopicSchemas=true values stay bytes; or give a schema of "
                "your own that can read them all.",
            )
    return ValueFormat(one, None, mode)


def _check_own(client: PulsarClient, topic: TopicName, newest: SchemaVersion, own: Schema) -> None:
    """Raise ``IncompatibleSchema`` when ``own`` can read no version of the topic's schema: some
    would be enough, as its type may have changed."""
    try:
        return check_readable(own, newest)
    except IncompatibleSchema as error:
        first = error
    number = newest.number or 0
    for older in range(number - 1, max(-1, number - _MOST_VERSIONS), -1):
        version = version_of(client, topic, older.to_bytes(8, "big"))
        with suppress(IncompatibleSchema):
            if version is not None:
                return check_readable(own, version)
    first.hint = (
        "Correct the definition; or give one that can read the topic's newest schema. With "
        "mode=permissive or mode=dropmalformed what can be read is read."
    )
    raise first


def _is_other(one: SchemaVersion | None, other: SchemaVersion | None) -> bool:
    if one is None or other is None:
        return one is not other
    return not are_same_values(one.info, other.info)


def _newest(client: PulsarClient, topic: TopicName) -> SchemaVersion | None:
    return version_of(client, topic, None)


def version_of(
    client: PulsarClient, topic: TopicName, version: bytes | None
) -> SchemaVersion | None:
    """A version of the schema of ``topic``, or the newest; None: it is not there.

    Raises:
        EosError: the registry can't be asked.
    """
    found = client.lookup.schema(topic.base, version)
    if found is None:
        return None
    info, number = found
    return SchemaVersion(info, int.from_bytes(number, "big"))
