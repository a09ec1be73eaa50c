"""Converts the values of messages: unchanged bytes, or columns by a schema."""

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
from eos.delta.column_rules import compared
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
from eos.waiting import parallel_map
from eos.wire.commands import SchemaInfo

logger = logging.getLogger(__name__)

BYTES: Final = "bytes"
AUTO: Final = "auto"
MALFORMED_VALUE: Final = "__malformedValue"
MALFORMED_REASON: Final = "__malformedReason"

_WHERE: Final = ("ledger", "entry", "batch_index")
_MODES: Final = (
    "With mode=permissive such values are kept, with the reason, in the columns "
    f"{MALFORMED_VALUE} and {MALFORMED_REASON}; with mode=dropmalformed the messages are left out."
)
# Versions of a topic's schema that are searched for one that the user's can read.
_MOST_VERSIONS: Final = 100

Arrays = Mapping[str, pa.Array]


class Mode(StrEnum):
    """What to do with a message whose value can't be read."""

    FAILFAST = "failfast"
    PERMISSIVE = "permissive"
    DROPMALFORMED = "dropmalformed"


def own_schema(name: str, definition: str | None) -> Schema | None:
    """Return the schema of the options ``schema`` and ``schema_definition``; None for ``bytes`` and
    ``auto``. ConfigurationError if the name is unknown, or the definition is invalid.
    """
    if name in (AUTO, BYTES) or name in PRIMITIVE_NAMES:
        if definition is not None:
            raise ConfigurationError(
                f"schema {name!r} takes no schemaDefinition; only avro and json do."
            )
        return None if name == AUTO else schema_of(name)
    kinds = {"avro": AvroSchema, "json": JsonSchema}
    if name not in kinds:
        known = ", ".join((AUTO, *PRIMITIVE_NAMES, *kinds))
        raise ConfigurationError(
            f"schema {name!r} does not exist for reading; choose one of {known}.",
            hint="auto uses the registered schema, also for pairs and Protobuf.",
        )
    if definition is None:
        raise ConfigurationError(
            f"schema {name!r} needs schemaDefinition, a record in Avro's JSON.",
            hint='To use the registered schema, set schema="auto".',
        )
    return kinds[name](definition)


@dataclass(frozen=True)
class ValueFormat:
    """Converts values to columns; made on the driver, used in tasks.

    ``registered``: None if values stay bytes. ``own``: the user's schema.
    """

    registered: SchemaVersion | None
    own: Schema | None
    mode: Mode

    def __getstate__(self) -> dict[str, Any]:
        """Leave out cached values, which tasks make themselves."""
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
        """Return the columns of ``schema``, and a mask of the rows to keep (None: all).

        Args:
            columns: the client's, by name.
            find: returns the schema that a message of ``topic`` names, or None.

        Raises:
            InputError: a value is malformed; names the message.
            IncompatibleSchema: all messages of its version are; shows both schemas.
        """
        if self.is_raw:
            return {"value": columns["value"]}, None
        values = columns["value"]
        found = self._reader.decode_versions(
            values, columns["key"], columns["schema_version"], find
        )
        decoded = dict(zip(self._reader.schema.names, found.columns.columns, strict=True))
        # Otherwise an unreadable message would silently be a row of nulls.
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
    # NaN becomes null, and a null index a null row: only failures have a value and a reason.
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
    """Return the format for the values of ``topics``: by ``own``, or by the registered schema.

    Raises:
        IncompatibleSchema: their schemas differ, or ``own`` can't read one of them; shows both.
        EosError: the registry can't be queried.
    """
    if own is None and allow_different:
        return ValueFormat(None, None, mode)
    registered = list(newest_versions(client, topics).items())
    if not registered:
        return ValueFormat(None, own, mode)
    if own is not None:
        for topic, version in registered:
            if version is not None and mode is Mode.FAILFAST:
                _check_own(client, topic, version, own)
        return ValueFormat(registered[0][1], own, mode)
    (first, one), *others = registered
    for topic, other in others:
        # One topic's values must not be decoded by the schema of another.
        if _is_other(one, other):
            infos = [SchemaInfo() if found is None else found.info for found in (one, other)]
            both = side_by_side(infos[0], infos[1], (f"{first}:", f"{topic}:"))
            raise IncompatibleSchema(
                f"The topics have different schemas.{both}\n",
                hint="Set allowDifferentTopicSchemas=true to read bytes; or set a "
                "schemaDefinition that can read them all.",
            )
    return ValueFormat(one, None, mode)


def _check_own(client: PulsarClient, topic: TopicName, newest: SchemaVersion, own: Schema) -> None:
    # `own` must read a version of the topic's schema; one is enough, because the schema's type may
    # have changed.
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
        "Correct the definition; or set one that can read the topic's newest schema. With "
        "mode=permissive or mode=dropmalformed all readable values are read."
    )
    raise first


def lost_fields(client: PulsarClient, topic: TopicName, newest: SchemaVersion | None) -> set[str]:
    """Return the paths of fields that messages of earlier versions have, and ``newest`` lacks."""
    now, none = value_reader(newest), pa.array([], pa.binary())
    number, found = (newest and newest.number) or 0, set[str]()
    for older in range(number - 1, -1, -1):
        version = version_of(client, topic, older.to_bytes(8, "big"))
        if version is None or not now.is_record:
            continue
        try:
            now.decode(none, none, writer=version)
        except IncompatibleSchema:  # their values are malformed
            continue
        found.update(compared(now.written(version), now.schema)[0])
    return found


def _is_other(one: SchemaVersion | None, other: SchemaVersion | None) -> bool:
    if one is None or other is None:
        return one is not other
    return not are_same_values(one.info, other.info)


def newest_versions(
    client: PulsarClient, topics: Sequence[TopicName]
) -> dict[TopicName, SchemaVersion | None]:
    """Return the newest version of each topic's schema; None: it has none."""
    found = parallel_map(lambda topic: version_of(client, topic, None), topics)
    return dict(zip(topics, found, strict=True))


def version_of(
    client: PulsarClient, topic: TopicName, version: bytes | None
) -> SchemaVersion | None:
    """Return a version of the schema of ``topic``, or the newest; None if it does not exist."""
    found = client.lookup.schema(topic.base, version)
    if found is None:
        return None
    info, number = found
    return SchemaVersion(info, int.from_bytes(number, "big"))
