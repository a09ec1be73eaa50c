"""What the message's own columns are called, in a DataFrame that a sink gets.

Exact names only: a topic's records may have fields of any other name, ``__op`` and ``__deleted``
among them. Where a topic has fields of these very names, ``metadata=False`` makes all columns
fields.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql.types import BinaryType, StructField

from eos.errors import InputError

OF_SOURCE: Final = {
    "key": "__key",
    "key_is_binary": "__keyIsBinary",
    "ordering_key": "__orderingKey",
    "event_time": "__eventTime",
    "properties": "__messageProperties",
    "partition": "__partition",
    "topic": "__topic",
    "is_tombstone": "__isTombstone",
}
"""Column of the messages -> what ``format("pulsar")`` calls it when it reads."""

NOT_KEPT: Final = ("__messageId", "__publishTime", "__sequenceId", "__schemaVersion")
"""Columns of the source that a message gets from its producer and its broker: left out."""

DELAYED: Final = ("deliver_at", "deliver_after")
_OF_MALFORMED: Final = ("__malformedValue", "__malformedReason")

ORIGIN: Final = "pulsar"
"""Key in the metadata of a column that the source has read: Spark keeps it through selections and
renames. Its value is the name of a message's own column, or ``FIELD`` for a field of a record."""
FIELD: Final = "field"

ALL_FIELDS: Final = "Set metadata=False, which makes all columns fields of the value"

_OURS: Final = (*OF_SOURCE, *DELAYED)
_IN_ROWS: Final = {f"__{name}": name for name in _OURS} | {
    theirs: ours for ours, theirs in OF_SOURCE.items()
}
_BESIDE_VALUE: Final = {"value": "value"} | {name: name for name in _OURS} | _IN_ROWS


def message_names(
    columns: Sequence[StructField],
    *,
    whole_rows: bool,
    is_pair: bool = False,
    otherwise: str = ALL_FIELDS,
) -> dict[str, str]:
    """Column of the messages -> the DataFrame's, for those that are the message's own.

    Args:
        whole_rows: other columns are the record's fields; else there is a column ``value``.
        is_pair: ``key`` and ``value`` are a pair's; the message's own key is ``message_key``.
        otherwise: what to do where one of two columns of a name is a field of the value.

    Raises:
        InputError: one thing comes by two names, a name differs from one of these by case alone, or
            nobody says of which kind the keys are.
    """
    known = _IN_ROWS if whole_rows else _BESIDE_VALUE
    if is_pair:
        known = known | {"__key": "message_key"}
    in_lower = {name.lower(): name for name in (*known, *NOT_KEPT, *_OF_MALFORMED)}
    found: dict[str, str] = {}
    for field in columns:
        name = field.name
        if name.startswith("__") and origin_of(field) == FIELD and name.lower() in in_lower:
            raise InputError(
                f"Column {name!r} is a field of the records that were read, and would be taken for "
                "the message's own.",
                hint=f"{ALL_FIELDS}; or rename it.",
            )
        if name in _OF_MALFORMED:
            raise InputError(
                f"Column {name!r} is what the source says of values that it can't read: no message "
                "has that.",
                hint=f"Leave such rows out, and drop it. {ALL_FIELDS}.",
            )
        ours = known.get(name)
        if ours is None:
            meant = in_lower.get(name.lower())
            if meant is not None and meant != name and whole_rows:
                raise InputError(
                    f"Column {name!r} differs from the message's own {meant!r} by case alone.",
                    hint=f"Rename it. {ALL_FIELDS}.",
                )
        elif ours in found:
            raise InputError(
                f"A message's {ours} comes twice, as {found[ours]!r} and as {name!r}.",
                hint=f"Drop one of them. {otherwise}.",
            )
        else:
            found[ours] = name
    _check_kind_of_keys(columns, found)
    return found


def _check_kind_of_keys(columns: Sequence[StructField], names: dict[str, str]) -> None:
    """A binary key that was read is text or bytes: taken for the wrong one, it is another key."""
    if "key_is_binary" in names:
        return
    fields = {field.name: field for field in columns}
    for name in (names.get("key"), names.get("message_key")):
        field = None if name is None else fields[name]
        if field is None or not isinstance(field.dataType, BinaryType):
            continue
        if "__key" in (field.name, origin_of(field)):
            raise InputError(
                f"Column {name!r} holds keys that a topic has, as binary, and nothing says which "
                "of them are text.",
                hint="Add the column __keyIsBinary of the source, which says it of each row; or, "
                "where all keys are text, CAST(__key AS STRING).",
            )


def check_all_are_fields(columns: Sequence[StructField]) -> None:
    """Without the message's own columns: of those that were read as such, none is a field.

    Raises:
        InputError: some are.
    """
    own = [field.name for field in columns if origin_of(field) == field.name]
    if own:
        raise InputError(
            f"Columns {', '.join(own)} were read as the messages' own, and metadata=False would "
            "make them fields of the value.",
            hint="Drop them, or read without metadata. Leave metadata=False out to write them as "
            "the new messages' own. Rename those that are to be fields.",
        )


def as_value(columns: Sequence[StructField]) -> str:
    """The selection that makes a record of all fields the value, with the message's own columns
    beside it; and, where these may be fields as well, the other way."""
    names = [field.name for field in columns]
    own = [field.name for field in columns if field.name in _IN_ROWS and origin_of(field) != FIELD]
    left_out = {*own, *NOT_KEPT, *_OF_MALFORMED}
    fields = ", ".join(json.dumps(name) for name in names if name not in left_out)
    beside = "".join(f", {json.dumps(name)}" for name in own)
    shown = f"df.select(struct({fields}).alias('value'){beside})"
    were_read = any(origin_of(field) == field.name for field in columns)
    return shown if were_read else f"{shown}. Or: {ALL_FIELDS}"


def origin_of(field: StructField) -> Any:
    """What the source has said of a column: ``__key``, ``FIELD``, or nothing."""
    return (field.metadata or {}).get(ORIGIN)


def record_fields(columns: Sequence[StructField], names: dict[str, str]) -> tuple[str, ...]:
    """The columns that are a record's fields: all but those of the message, and those that are not
    kept."""
    taken = {*names.values(), *NOT_KEPT}
    return tuple(field.name for field in columns if field.name not in taken)
