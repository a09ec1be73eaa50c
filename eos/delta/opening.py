"""How a table is made and opened, and what the errors of ``deltalake`` mean then."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, TableFeatures
from deltalake.exceptions import TableNotFoundError

from eos._credentials import clean
from eos.commit_log.corruption import panics_as_errors
from eos.commit_log.delta_table import NO_HOOKS
from eos.delta._char_columns import DECLARED, is_kept
from eos.delta.columns import local_times_in_maps
from eos.delta.folder import Folder
from eos.errors import CommitUnconfirmed, ConfigurationError, Fatal, Retriable

SPARK_METADATA: Final = "SPARK::metadata::json"
"""Where PySpark keeps the metadata of a column in Arrow, as one text."""
_DEFAULTS: Final = {"CURRENT_DEFAULT", "EXISTS_DEFAULT"}


def maybe_open(folder: Folder) -> DeltaTable | None:
    """A handle on the table as it is now; None when none is there.

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


def maybe_open_version(folder: Folder, version: int | None) -> DeltaTable | None:
    """A handle on one version of the table, the newest when None; None when it is not there: not
    yet, or not any more.

    Raises:
        ConfigurationError, Retriable: as ``maybe_open``.
    """
    if version is None:
        return maybe_open(folder)
    # By itself: the newest one may need features that this version does not have.
    with suppress(Exception), panics_as_errors():
        return DeltaTable(
            folder.uri, version=version, storage_options=folder.storage_options or None
        )
    newest = maybe_open(folder)
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
    """Make an empty table; of several creators at once one does, and the others find its table.

    Raises:
        ConfigurationError: Delta has no such columns, or ``deltalake`` can't make such a table.
        Retriable: it can't be made.
    """
    for path in local_times_in_maps(schema):
        raise ConfigurationError(
            f"Delta table {folder.uri}: can't be made with a timestamp without time zone inside "
            f"of a map, {path}.",
            hint="Cast it to TIMESTAMP, or make the table by Spark first.",
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
        # Also after an error: somebody else may have been first.
        if maybe_open(folder) is None:
            raise _unreachable(folder, "can't be created", error) from folder.cause(error)


def allow_local_times(table: DeltaTable) -> None:
    """Note, in a commit of its own, that the table has timestamps without time zone; without it a
    table that has some is read by nobody. Nothing where it is noted."""
    if "timestampNtz" not in (table.protocol().writer_features or ()):
        table.alter.add_feature(
            TableFeatures.TimestampWithoutTimezone,
            allow_protocol_versions_increase=True,
            commit_properties=CommitProperties(max_commit_retries=0),
            post_commithook_properties=NO_HOOKS,
        )


@contextmanager
def reading(folder: Folder) -> Iterator[None]:
    """Errors of ``deltalake`` while the table is read, as ``Retriable``."""
    try:
        with panics_as_errors():
            yield
    except Exception as error:
        raise _unreachable(folder, "can't be read", error) from folder.cause(error)


@contextmanager
def committing(folder: Folder, what: str) -> Iterator[None]:
    """Errors while ``what`` is committed, as ``CommitUnconfirmed``: none proves that it failed.

    Not even a conflict does: a put whose answer was lost may be repeated below us, and meet itself.
    """
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
    """The table's columns, as Arrow has them."""
    return pa.schema(table.schema().to_arrow())


def delta_schema(schema: pa.Schema) -> Schema:
    """Columns as Delta has them.

    Raises:
        ConfigurationError: it has no such type.
    """
    try:
        found = Schema.from_arrow(schema)
    except Exception as error:
        wrong = [f"{field.name} ({field.type})" for field in schema if not _has_type(field)]
        raise ConfigurationError(
            f"Delta has no such columns: {', '.join(wrong) or clean(error, {})}.",
            hint="Cast them to a type of Delta's: text, bytes, signed numbers, dates, times.",
        ) from None
    text = str(found.to_json())
    if SPARK_METADATA not in text:
        return found
    return Schema.from_json(json.dumps(json.loads(text, object_hook=_as_spark_has_it)))


def _as_spark_has_it(part: dict[str, Any]) -> dict[str, Any]:
    """A column's metadata as Spark's Delta writer puts it into the table, comments for one; without
    rules that nobody would keep here."""
    hidden = part.pop(SPARK_METADATA, None)
    given = {} if hidden is None else json.loads(hidden)
    return part | {name: value for name, value in given.items() if not _is_rule(name, value)}


def _is_rule(name: str, value: Any) -> bool:
    if name == DECLARED:
        return not is_kept(str(value))
    return name.startswith("delta.") or name in _DEFAULTS


def _has_type(field: pa.Field) -> bool:
    try:
        Schema.from_arrow(pa.schema([field]))
    except Exception:
        return False
    return True


def schema_text(schema: pa.Schema) -> str:
    """Columns as Delta's JSON, for a log."""
    return str(delta_schema(schema).to_json())


def schema_of(text: str) -> pa.Schema:
    """The inverse of ``schema_text``."""
    return pa.schema(Schema.from_json(text).to_arrow())


def _unreachable(folder: Folder, what: str, error: Exception) -> Retriable:
    return Retriable(
        f"Delta table {folder.uri} {what}: {folder.clean(error)}.",
        hint="Check that the folder or bucket can be reached, read and written by this user.",
    )
