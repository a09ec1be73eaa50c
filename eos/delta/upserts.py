"""Upserts: staged rows replace or delete the table's rows with their key, by ``deltalake``.

Staged files have the columns that the rows have, and one that says which rows delete their key.
They are the source of the merge, never files of the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset

from eos.delta.column_rules import check_key
from eos.delta.open_files import leaves
from eos.delta.rows import conform, has_folders, split
from eos.errors import Fatal, InputError
from eos.participant import Upsert

if TYPE_CHECKING:  # executors have no deltalake
    from deltalake import DeltaTable

# Texts that need no escape in SQL.
_PLAIN: Final = re.compile(r"[\w .:/@+-]*", re.ASCII)
# Of ``deltalake``'s dates, in days from 1970.
_MAX_DAYS: Final = 95_000_000
DELETE: Final = "__eos_delete"
"""The staged column of rows that delete their key."""


def check_names(schema: pa.Schema, upsert: Upsert) -> None:
    """Check the names and types of the columns of an upsert.

    Raises:
        InputError: a merge can't name or compare one of them.
    """
    for name in schema.names:
        # A merge takes names as text of SQL, and has no escape for this character.
        if "`" in name or name == DELETE:
            raise InputError(f"Column {name!r} can't be in an upsert.", hint="Rename it.")
    for name in upsert.on:
        if name not in schema.names or pa.types.is_nested(schema.field(name).type):
            raise InputError(
                f"Column {name!r} of merge_on is no plain column of the table.",
                hint="Name columns of text, numbers, booleans, dates or times.",
            )


def staged_schema(schema: pa.Schema, upsert: Upsert) -> pa.Schema:
    """Return the columns of staged files. Rows that delete their key may lack all others."""
    may_lack = upsert.deletes
    fields = [
        field.with_nullable(field.name not in upsert.on and (may_lack or field.nullable))
        for field in schema
    ]
    return pa.schema([*fields, pa.field(DELETE, pa.bool_(), nullable=False)])


def conform_upserts(
    batch: pa.RecordBatch, schema: pa.Schema, upsert: Upsert, partition_columns: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of ``batch`` as staged files have them.

    Args:
        schema: the table's columns that the rows have.

    Raises:
        InputError: rows don't fit; or a key, or a required column of a row that stays, has a null;
            or two keys may become one; or a merge can't write a partition's value.
    """
    staged = staged_schema(schema, upsert)
    keyed = pa.schema(
        [field.with_nullable(field.nullable and field.name not in upsert.on) for field in schema]
    )
    relaxed = pa.schema([staged.field(name) for name in schema.names])
    deletes = batch.column(DELETE) if upsert.deletes else pa.array([False] * batch.num_rows)
    rows = batch.drop_columns([DELETE]) if upsert.deletes else batch
    given = {name.lower(): at for at, name in enumerate(rows.schema.names)}
    # In two parts: only rows that stay have to have values in required columns.
    for is_delete, wanted in ((False, keyed), (True, relaxed)):
        part = rows.filter(deletes if is_delete else pc.invert(deletes))
        if part.num_rows:
            conformed = conform(part, wanted)
            _check_values(conformed)
            for name in upsert.on:
                check_key(part.column(given[name.lower()]), wanted.field(name))
            flags = pa.repeat(pa.scalar(is_delete), part.num_rows)
            there = [name for name in partition_columns if name in schema.names]
            flagged = conformed.select(there).append_column(DELETE, flags)
            for values, _ in split(flagged, tuple(there)):
                if not has_folders(values):
                    raise InputError(
                        f"An upsert can't write so long values of partitions: {', '.join(there)}.",
                        hint="URL-encoded, each has 255 bytes with its column's name, and all have "
                        "600. Shorten them, or partition by other columns.",
                    )
            yield pa.RecordBatch.from_arrays([*conformed.columns, flags], schema=staged)


def _check_values(rows: pa.RecordBatch) -> None:
    # An append may have them. A merge reads its rows, and fails.
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        for path, values in leaves(name, column):
            if not _is_readable(values):
                raise InputError(
                    f"Column {path!r} has a value that an upsert can't write: text that is not "
                    "UTF-8, or a date after the year 260,000."
                )


def _is_readable(values: pa.Array) -> bool:
    if pa.types.is_date(values.type):
        days = pc.min_max(values.cast(pa.int32())).as_py()
        return all(abs(day or 0) <= _MAX_DAYS for day in days.values())
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def merge(
    table: DeltaTable,
    file_system: Any,
    paths: Sequence[str],
    upsert: Upsert,
    identifiers: Mapping[str, int],
) -> bool:
    """Merge staged files into the table, in one commit; return whether it changed a row.

    The driver reads them, and rewrites each file of the table that has one of the keys. A commit in
    between makes it fail, unless it only added files outside the keys' range. If no row is changed,
    as by a delete of unknown keys, ``deltalake`` commits nothing.

    Raises:
        Fatal: it can't read the table's rows; nothing was committed.
    """
    from eos.commit_log.delta_table import NO_HOOKS
    from eos.delta.opening import commit_properties

    # Read as a stream: the driver does not hold all rows of the epoch.
    source = pyarrow.dataset.dataset(list(paths), filesystem=file_system, format="parquet")
    merging = table.merge(
        source.scanner().to_reader(),
        " AND ".join(
            [*(f"t.`{name}` = s.`{name}`" for name in upsert.on), *_ranges(source, upsert)]
        ),
        source_alias="s",
        target_alias="t",
        commit_properties=commit_properties(identifiers),
        post_commithook_properties=NO_HOOKS,
    )
    if upsert.deletes:
        merging = merging.when_matched_delete(f"s.{DELETE}")
    merging = merging.when_matched_update_all(except_cols=[DELETE])
    only_new = f"NOT s.{DELETE}"
    merging = merging.when_not_matched_insert_all(only_new, except_cols=[DELETE])
    try:
        done = merging.execute()
    except Exception as error:
        # Not looked for before the decision: it would read as much as the merge.
        if "non UTF-8" in str(error):
            raise _unreadable(pa.schema(table.schema().to_arrow())) from error
        raise
    return any(done[f"num_target_rows_{what}"] for what in ("inserted", "updated", "deleted"))


def _unreadable(schema: pa.Schema) -> Fatal:
    texts = [field.name for field in schema if "string" in str(field.type)]
    return Fatal(
        "The table has rows with text that is not UTF-8, which an upsert can't read; nothing was "
        f"written. Columns with text: {', '.join(texts)}.",
        hint="Rewrite these rows, and the epoch can be committed. With Spark 4, for each column c: "
        "UPDATE the table SET c = make_valid_utf8(c) WHERE NOT is_valid_utf8(c).",
    )


def _ranges(source: pyarrow.dataset.Dataset, upsert: Upsert) -> Iterator[str]:
    """Yield conditions on the table alone: deltalake skips files by them, and compares them with
    the statistics of files that others add meanwhile. Without them any append is a conflict."""
    for name in upsert.on:
        kind = source.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_string(kind)):
            continue
        batches = source.scanner(columns=[name]).to_batches()
        ends = [pc.min_max(batch.column(0)).as_py() for batch in batches if batch.num_rows]
        least, most = (f(one[f.__name__] for one in ends) for f in (min, max))
        if isinstance(least, int):
            yield f"t.`{name}` >= {least} AND t.`{name}` <= {most}"
        elif _PLAIN.fullmatch(least + most):
            yield f"t.`{name}` >= '{least}' AND t.`{name}` <= '{most}'"
