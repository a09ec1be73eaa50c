"""The names of the message's own columns in a DataFrame that a sink writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from pyspark.sql.types import BinaryType, StructField

from eos.errors import InputError

# Column of the messages -> its name in the source, `format("pulsar")`.
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

# Columns of the source that producer and broker set: sinks leave them out.
NOT_KEPT: Final = ("__messageId", "__publishTime", "__sequenceId", "__schemaVersion")

DELAYED: Final = ("deliver_at", "deliver_after")
_OF_MALFORMED: Final = ("__malformedValue", "__malformedReason")

# Key in the metadata of the source's columns, which Spark keeps through selections and renames. Its
# value is the name of a message's own column, or `FIELD` for a field of a record.
ORIGIN: Final = "pulsar"
FIELD: Final = "field"

ALL_FIELDS: Final = "Set metadata=False, which makes all columns fields of the value"

_SHORT: Final = (*OF_SOURCE, *DELAYED)
_IN_ROWS: Final = {f"__{name}": name for name in _SHORT} | {
    of_source: short for short, of_source in OF_SOURCE.items()
}
_NEXT_TO_VALUE: Final = {"value": "value"} | {name: name for name in _SHORT} | _IN_ROWS


def message_names(
    columns: Sequence[StructField],
    *,
    whole_rows: bool,
    is_pair: bool = False,
    otherwise: str = ALL_FIELDS,
) -> dict[str, str]:
    """Return column of the messages -> the DataFrame's column, for the message's own columns.

    Args:
        whole_rows: other columns are the record's fields; else there is a column ``value``.
        is_pair: ``key`` and ``value`` belong to a pair; the message's own key is ``message_key``.
        otherwise: the hint for a column that may be a field as well.

    Raises:
        InputError: two columns have the same meaning, a name differs from one of these by case
            alone, or it is unknown whether keys are text or bytes.
    """
    known = _IN_ROWS if whole_rows else _NEXT_TO_VALUE
    if is_pair:
        known = known | {"__key": "message_key"}
    in_lower = {name.lower(): name for name in (*known, *NOT_KEPT, *_OF_MALFORMED)}
    found: dict[str, str] = {}
    for field in columns:
        name = field.name
        if name.startswith("__") and origin_of(field) == FIELD and name.lower() in in_lower:
            raise InputError(
                f"Column {name!r} is a field of the records that were read, but its name is that "
                "of a message's own column.",
                hint=f"Rename it. {otherwise}.",
            )
        if name in _OF_MALFORMED:
            raise InputError(
                f"Column {name!r} is the source's, for values that it can't read, and can't be "
                "written to a message.",
                hint=f"Filter such rows out, and drop the column. {ALL_FIELDS}.",
            )
        short = known.get(name)
        if short is None:
            meant = in_lower.get(name.lower())
            if meant is not None and meant != name and whole_rows:
                raise InputError(
                    f"Column {name!r} differs from the message's column {meant!r} by case alone.",
                    hint=f"Rename it. {ALL_FIELDS}.",
                )
        elif short in found:
            raise InputError(
                f"Columns {found[short]!r} and {name!r} are both the message's {short}.",
                hint=f"Drop one of them. {otherwise}.",
            )
        else:
            found[short] = name
    _check_kind_of_keys(columns, found)
    return found


def _check_kind_of_keys(columns: Sequence[StructField], names: dict[str, str]) -> None:
    # Whether binary keys that were read are text or bytes: written as the wrong kind, a key is a
    # different one.
    if "key_is_binary" in names:
        return
    fields = {field.name: field for field in columns}
    for name in (names.get("key"), names.get("message_key")):
        field = None if name is None else fields[name]
        if field is None or not isinstance(field.dataType, BinaryType):
            continue
        # A text key that was read as binary would be written as bytes: another key.
        if "__key" in (field.name, origin_of(field)):
            raise InputError(
                f"Column {name!r} has keys of a topic as binary, and no column says which of them "
                "are text.",
                hint="Add the source's column __keyIsBinary; or, if all keys are text, use "
                "CAST(__key AS STRING).",
            )


def check_all_are_fields(columns: Sequence[StructField]) -> None:
    """Raise InputError if a column was read as one of the message's own, for ``metadata=False``."""
    own = [field.name for field in columns if origin_of(field) == field.name]
    if own:
        raise InputError(
            f"Columns {', '.join(own)} were read as the messages' own columns, and metadata=False "
            "would make them fields of the value.",
            hint="Drop them, or read without metadata. To write them as the new messages' own "
            "columns, remove metadata=False. To make one a field, rename it.",
        )


def as_value(columns: Sequence[StructField]) -> str:
    """Return the code that makes a record of all fields the value; if the message's own columns may
    be fields as well, also the alternative.
    """
    names = [field.name for field in columns]
    own = [field.name for field in columns if field.name in _IN_ROWS and origin_of(field) != FIELD]
    left_out = {*own, *NOT_KEPT, *_OF_MALFORMED}
    fields = ", ".join(json.dumps(name) for name in names if name not in left_out)
    more = "".join(f", {json.dumps(name)}" for name in own)
    shown = f"df.select(struct({fields}).alias('value'){more})"
    were_read = any(origin_of(field) == field.name for field in columns)
    return shown if were_read else f"{shown}. Or: {ALL_FIELDS}"


def origin_of(field: StructField) -> Any:
    """Return the source's mark of a column: a name such as ``__key``, ``FIELD``, or None."""
    return (field.metadata or {}).get(ORIGIN)


def record_fields(columns: Sequence[StructField], names: dict[str, str]) -> tuple[str, ...]:
    """Return the columns that are a record's fields: all but the message's own."""
    taken = {*names.values(), *NOT_KEPT}
    # By name, not by two underscores: a record's own fields may begin with them.
    return tuple(field.name for field in columns if field.name not in taken)
