"""Creates and opens tables, checks what they require, translates errors of ``deltalake``."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, TableFeatures, Transaction
from deltalake.exceptions import TableNotFoundError

from eos._storage import clean
from eos.commit_log.corruption import panics_as_errors
from eos.commit_log.delta_table import NO_HOOKS
from eos.delta.column_rules import (
    DECLARED,
    SPARK_METADATA,
    is_enforced,
    local_times_in_maps,
    unsupported_length,
)
from eos.delta.folder import Folder
from eos.delta.rows import can_partition, has_folders, merges_alike
from eos.errors import CommitUnconfirmed, ConfigurationError, Fatal, Retriable

_DEFAULTS: Final = {"CURRENT_DEFAULT", "EXISTS_DEFAULT"}
# Features that ``deltalake`` commits to, and those that matter to an append only if a column or a
# property uses them: these are checked one by one.
_KNOWN: Final = {
    "appendOnly", "changeDataFeed", "checkConstraints", "columnMapping", "deletionVectors",
    "generatedColumns", "invariants", "timestampNtz", "v2Checkpoint", "variantType",
    "variantType-preview",
}  # fmt: skip
_IDENTITY_VERSION: Final = 6
# ``minWriterVersion`` with identity columns, and the one that lists features by name.
_FEATURES_VERSION: Final = 7
_COLUMN_RULES: Final = {
    "delta.generationExpression": "generated column",
    "delta.invariants": "invariant of column",
    "delta.identity.start": "identity column",
}
TXN_RETENTION: Final = "delta.setTransactionRetentionDuration"
MIN_TXN_RETENTION_DAYS: Final = 30
"""How long an epoch may be in doubt. An expired identifier looks like a commit that never happened,
and would be committed again."""
_UNIT_DAYS: Final = {"second": 1 / 86_400, "minute": 1 / 1440, "hour": 1 / 24, "day": 1, "week": 7}


def open_if_exists(folder: Folder) -> DeltaTable | None:
    """Open a handle on the table's newest version; None if the table does not exist.

    Raises:
        ConfigurationError: it is a file.
        Retriable: it can't be read.
    """
    if folder.local is not None and folder.local.is_file():
        raise ConfigurationError(
            f"Delta table {folder.uri}: it is a file.", hint="A table is a folder."
        )
    with reading(folder):
        try:
            return DeltaTable(folder.uri, storage_options=folder.storage_options or None)
        except TableNotFoundError:
            return None


def open_version_if_exists(folder: Folder, version: int | None) -> DeltaTable | None:
    """As ``open_if_exists``, one version of the table, the newest if None.

    Raises:
        ConfigurationError, Retriable: as ``open_if_exists``.
    """
    if version is None:
        return open_if_exists(folder)
    # Directly: the newest version may need features that this version does not have.
    with suppress(Exception), panics_as_errors():
        return DeltaTable(
            folder.uri, version=version, storage_options=folder.storage_options or None
        )
    newest = open_if_exists(folder)
    if newest is None or version > newest.version():
        return None
    with reading(folder):
        try:
            return DeltaTable(
                folder.uri, version=version, storage_options=folder.storage_options or None
            )
        except TableNotFoundError:  # its log was cleaned up (deltalake 1.6)
            return None


def create(folder: Folder, schema: pa.Schema, partition_by: Sequence[str]) -> None:
    """Create an empty table; of several concurrent creators one succeeds, and the others find it.

    Raises:
        ConfigurationError: Delta does not support these columns, or ``deltalake`` can't create
            such a table.
        Retriable: it can't be created.
    """
    for path in local_times_in_maps(schema):
        raise ConfigurationError(
            f"Delta table {folder.uri}: can't be created with a timestamp without time zone inside "
            f"a map, {path}.",
            hint="Cast it to TIMESTAMP, or create the table with Spark first.",
        )
    wanted = delta_schema(schema)
    try:
        with panics_as_errors():
            DeltaTable.create(
                folder.uri,
                schema=wanted,
                mode="error",
                partition_by=list(partition_by),
                storage_options=folder.storage_options or None,
                # With retries two creators may succeed, and the second replaces the first.
                commit_properties=CommitProperties(max_commit_retries=0),
                post_commithook_properties=NO_HOOKS,
            )
    except Exception as error:
        # Also after an error: another process may have created it.
        if open_if_exists(folder) is None:
            raise _unreachable(folder, "can't be created", error) from folder.cause(error)


def allow_local_times(table: DeltaTable) -> None:
    """Declare that the table has timestamps without time zone: readers need to know."""
    if "timestampNtz" not in (table.protocol().writer_features or ()):
        table.alter.add_feature(
            TableFeatures.TimestampWithoutTimezone,
            allow_protocol_versions_increase=True,
            commit_properties=CommitProperties(max_commit_retries=0),
            post_commithook_properties=NO_HOOKS,
        )


@contextmanager
def reading(folder: Folder) -> Iterator[None]:
    """Turn errors of ``deltalake`` while the table is read into ``Retriable``."""
    try:
        with panics_as_errors():
            yield
    except Exception as error:
        raise _unreachable(folder, "can't be read", error) from folder.cause(error)


def commit_properties(
    identifiers: Mapping[str, int], max_commit_retries: int | None = None
) -> CommitProperties:
    """Return properties with these transaction identifiers and versions."""
    # Where identifiers expire, Spark drops one without a time immediately.
    now_ms = time.time_ns() // 1_000_000
    transactions = [Transaction(app_id, n, now_ms) for app_id, n in identifiers.items()]
    return CommitProperties(app_transactions=transactions, max_commit_retries=max_commit_retries)


@contextmanager
def committing(folder: Folder, what: str) -> Iterator[None]:
    """Turn errors while ``what`` is committed into ``CommitUnconfirmed``: none proves a failure."""
    # Not even a conflict: a put whose answer was lost may be repeated by the client, and conflict
    # with itself.
    try:
        with panics_as_errors():
            yield
    except Fatal:
        raise
    except Exception as error:
        raise CommitUnconfirmed(
            f"Delta table {folder.uri}: the commit of {what} was not confirmed: "
            f"{folder.clean(error)}."
        ) from folder.cause(error)


def arrow_schema(table: DeltaTable) -> pa.Schema:
    """Return the table's columns as an Arrow schema."""
    return pa.schema(table.schema().to_arrow())


def delta_schema(schema: pa.Schema) -> Schema:
    """Return columns as a Delta schema.

    Raises:
        ConfigurationError: Delta has no such type.
    """
    try:
        found = Schema.from_arrow(schema)
    except Exception as error:
        wrong = [f"{field.name} ({field.type})" for field in schema if not _has_type(field)]
        raise ConfigurationError(
            f"Delta has no such columns: {', '.join(wrong) or clean(error, {})}.",
            hint="Cast them to one of Delta's types: text, bytes, signed numbers, dates, times.",
        ) from None
    text = str(found.to_json())
    if SPARK_METADATA not in text:
        return found
    return Schema.from_json(json.dumps(json.loads(text, object_hook=_spark_metadata)))


def _spark_metadata(part: dict[str, Any]) -> dict[str, Any]:
    """A column's metadata as Spark's Delta writer stores it, without rules not enforced here."""
    hidden = part.pop(SPARK_METADATA, None)
    given = {} if hidden is None else json.loads(hidden)
    return part | {name: value for name, value in given.items() if not _is_rule(name, value)}


def _is_rule(name: str, value: Any) -> bool:
    if name == DECLARED:
        return not is_enforced(str(value))
    return name.startswith("delta.") or name in _DEFAULTS


def _has_type(field: pa.Field) -> bool:
    try:
        Schema.from_arrow(pa.schema([field]))
    except Exception:
        return False
    return True


def schema_to_json(schema: pa.Schema) -> str:
    """Return columns as Delta's JSON, for a log."""
    return str(delta_schema(schema).to_json())


def schema_from_json(text: str) -> pa.Schema:
    """The inverse of ``schema_to_json``."""
    return pa.schema(Schema.from_json(text).to_arrow())


def _unreachable(folder: Folder, what: str, error: Exception) -> Retriable:
    return Retriable(
        f"Delta table {folder.uri} {what}: {folder.clean(error)}.",
        hint="Check that the folder or bucket can be reached, read and written by this user.",
    )


def unsupported_features(
    table: DeltaTable, *, upsert: bool = False, is_decided: bool = False
) -> list[str]:
    """List the table's requirements that an append of files, or an upsert, can't meet.

    ``is_decided``: without those that may not matter to the rows of this upsert.
    """
    # deltalake 1.6 refuses the commit for a feature that it does not know: too late, the epoch is
    # decided. And it silently commits files that violate a constraint, an invariant, a generated
    # column or a column mapping: it leaves these checks to its callers (measured, docs/facts.md).
    protocol, metadata = table.protocol(), table.metadata()
    found = find_unsupported(
        protocol.min_writer_version,
        [*(protocol.writer_features or ()), *(protocol.reader_features or ())],
        metadata.configuration,
        table.schema().to_json(),
    )
    if upsert:
        found += _forbids_upserts(table)
    if upsert and not is_decided:
        found += _unmerged_partitions(table)
    if found:
        return found
    schema = arrow_schema(table)
    return [
        f"partition column {name} ({schema.field(name).type})"
        for name in metadata.partition_columns
        if not can_partition(schema.field(name).type)
    ]


def _unmerged_partitions(table: DeltaTable) -> list[str]:
    """List the partitions that an append can write, and a merge can't."""
    schema = arrow_schema(table)
    kinds = {name: schema.field(name).type for name in table.metadata().partition_columns}
    found = [
        f"upserts with the partition column {name} ({kind})"
        for name, kind in kinds.items()
        # A folder with a colon in its name is a URL to ``deltalake``, when it merges.
        if not merges_alike(kind) or ":" in name
    ]
    # A merge rewrites files of any partition. Only texts can be too long.
    has_text = any(pa.types.is_string(kind) for kind in kinds.values())
    if has_text and not all(map(has_folders, table.partitions())):
        found.append(f"upserts with so long values in the partition columns {', '.join(kinds)}")
    return found


def _forbids_upserts(table: DeltaTable) -> list[str]:
    # An append can do with each of these. Merges were tested with none of them: they might bring
    # deleted rows back, or leave changes out of the feed.
    configuration = table.metadata().configuration
    on = {name for name, value in configuration.items() if str(value).lower() == "true"}
    has_vectors = "deletionVectors" in (table.protocol().reader_features or ())
    found = {
        "appends only (delta.appendOnly)": "delta.appendOnly" in on,
        "a change data feed (delta.enableChangeDataFeed)": "delta.enableChangeDataFeed" in on,
        "deletion vectors": has_vectors or "delta.enableDeletionVectors" in on,
    }
    return [text for text, is_there in found.items() if is_there]


def find_unsupported(
    writer_version: int,
    features: Collection[str],
    configuration: Mapping[str, str],
    schema_json: str,
) -> list[str]:
    """As ``unsupported_features``, from the table's protocol, properties, and schema in its log."""
    found = [f"table feature {name}" for name in sorted(set(features) - _KNOWN)]
    if writer_version == _IDENTITY_VERSION:
        found.append("identity columns (writer version 6)")
    elif writer_version > _FEATURES_VERSION:
        found.append(f"writer version {writer_version}")
    mode = configuration.get("delta.columnMapping.mode", "none")
    if mode != "none":
        found.append(f"column mapping by {mode}")
    for name in sorted(configuration):
        if name.startswith("delta.constraints."):
            found.append(f"check constraint {name.removeprefix('delta.constraints.')}")
    kept = configuration.get(TXN_RETENTION)
    if kept is not None and (_days(kept) or 0) < MIN_TXN_RETENTION_DAYS:
        found.append(f"{TXN_RETENTION} = {kept} (at least {MIN_TXN_RETENTION_DAYS} days, or unset)")
    found += _of_columns(json.loads(schema_json), "")
    return found


def _days(interval: str) -> float | None:
    """The length of ``interval 2 weeks 1 day``; None if it is not understood."""
    parts = interval.lower().removeprefix("interval").split()
    total = 0.0
    for number, unit in zip(parts[::2], parts[1::2], strict=False):
        days = _UNIT_DAYS.get(unit.removesuffix("s"))
        if days is None or not number.isdigit():
            return None
        total += int(number) * days
    return total if len(parts) % 2 == 0 else None


def _of_columns(struct: Mapping[str, Any], above: str) -> Iterator[str]:
    for column in struct["fields"]:
        name = above + column["name"]
        for rule, what in _COLUMN_RULES.items():
            if rule in column["metadata"]:
                yield f"{what} {name}"
        declared = unsupported_length(column, name)
        if declared is not None:
            yield declared
        yield from _of_type(column["type"], name)


def _of_type(kind: Any, name: str) -> Iterator[str]:
    if kind == "variant":
        yield f"variant column {name}"
    elif isinstance(kind, Mapping):
        if kind["type"] == "struct":
            yield from _of_columns(kind, f"{name}.")
        for inside in ("elementType", "keyType", "valueType"):
            if inside in kind:
                yield from _of_type(kind[inside], name)
