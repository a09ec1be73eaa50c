"""Upserts: the last change of each key in an epoch, and rows that delete their key.

Spark finds them, before a task stages rows: the rows of a key meet in one task, and each output
gets a key once.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructField,
    StructType,
)

from eos.errors import ConfigurationError, InputError
from eos.sinks._table_columns import EXACT_JSON

if TYPE_CHECKING:  # executors have no pydantic
    from eos.sinks.options import TableSinkOptions

IS_DELETE: Final = "is_delete"
IS_AMBIGUOUS: Final = "is_ambiguous"


@dataclass(frozen=True)
class Upserts:
    """The options ``merge_on``, ``latest_by`` and ``delete_when``; pickled to executors."""

    merge_on: tuple[str, ...] = ()
    latest_by: tuple[str, ...] = ()
    delete_when: str | None = None

    @classmethod
    def of(cls, options: TableSinkOptions) -> Self:
        """Those of ``options``."""
        return cls(options.merge_on, options.latest_by, options.delete_when)

    def left_out(self, df: DataFrame) -> frozenset[str]:
        """Return the columns that only say which rows delete: a new table does not have them.

        Raises:
            ConfigurationError: ``delete_when`` is no condition on the columns of ``df``.
        """
        if self.delete_when is None:
            return frozenset()
        from eos.sinks._spark_jvm import referenced_columns  # executors can't import it

        # By Spark's analysis: a word of the condition may be a value.
        referenced = referenced_columns(_analyzed(df, self.delete_when))
        # Named as the condition writes them, which may differ in case.
        by_case = {name.lower(): name for name in df.columns}
        by_case |= {name: name for name in df.columns}
        found = frozenset(by_case.get(one, by_case.get(one.lower(), one)) for one in referenced)
        return found - {*self.merge_on, *self.latest_by}

    def optional(self, df: DataFrame) -> frozenset[str]:
        """Return the columns that also say how rows are written, and need not be in the table."""
        return self.left_out(df) | frozenset(self.latest_by) - frozenset(self.merge_on)

    def numbered(self, df: DataFrame, written: Collection[str]) -> DataFrame:
        """Return ``df`` with the columns c0, c1, ...; for upserts only the last change of each key,
        with the columns that ``checked`` takes away, and ``is_delete`` with ``delete_when``.

        Args:
            written: the columns that go to the output, chosen by ``optional``.

        Raises:
            InputError: a column of ``merge_on`` or ``latest_by`` is missing.
        """
        # Spark looks columns up by name, and does not find one with a dot in it.
        names = [f"c{n}" for n in range(len(df.columns))]
        # An append needs no shuffle.
        if not self.merge_on:
            return df.toDF(*names)
        for field in df.schema.fields:
            if field.name in self.merge_on:
                _check_key(field)
        key = [f.col(_numbered(df, name, "merge_on")) for name in self.merge_on]
        order = [f.col(_numbered(df, name, "latest_by")) for name in self.latest_by]
        compared = [
            _comparable(f.col(name), field.dataType)
            for name, field in zip(names, df.schema.fields, strict=True)
            if field.name in written
        ]
        if self.delete_when is not None:
            df = df.select("*", f.coalesce(f.expr(self.delete_when), f.lit(False)))
            names.append(IS_DELETE)
            stays = ~f.col(IS_DELETE)
            compared = [f.when(stays, column) for column in compared] + [stays]
        # Not Spark's number for shuffles, 200 by default: too many for a small epoch.
        tasks = max(df.sparkSession.sparkContext.defaultParallelism, 1)
        rows = df.toDF(*names).repartition(tasks, *key)
        newest_first = Window.partitionBy(*key).orderBy(
            *([column.desc_nulls_last() for column in order] or [f.lit(0)])
        )
        # Equal rows that came twice, as Debezium sends them, are one change.
        same = (
            column.eqNullSafe(f.first(column).over(newest_first.rowsBetween(_BEGIN, 0)))
            for column in compared
        )
        is_last = f.rank().over(newest_first) == 1
        rows = rows.select(
            *names,
            (is_last & ~reduce(Column.__and__, same)).alias(IS_AMBIGUOUS),
            (f.row_number().over(newest_first) == 1).alias("is_first"),
        )
        return rows.where(f.col("is_first") | f.col(IS_AMBIGUOUS)).drop("is_first")

    def checked(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield a task's batches with the columns of the output, and ``is_delete``.

        Raises:
            InputError: a key has several last changes, which differ.
        """
        for batch in batches:
            if not self.merge_on:
                yield batch
                continue
            if pc.any(batch.column(IS_AMBIGUOUS)).as_py():
                ordered = "differ in no column of latest_by" if self.latest_by else "differ"
                raise InputError(
                    f"Keys ({', '.join(self.merge_on)}) have several rows in the epoch that "
                    f"{ordered}.",
                    hint="Name the columns by which the last change of a key is found: latest_by. "
                    "Or write one row for each key.",
                )
            yield batch.drop_columns([IS_AMBIGUOUS])


NO_UPSERTS: Final = Upserts()
_COLLATED: Final = "string collate"
_BEGIN: Final = Window.unboundedPreceding


def _numbered(df: DataFrame, name: str, option: str) -> str:
    if name not in df.columns:
        raise InputError(f"The rows have no column {name!r}, which {option} names.")
    return f"c{df.columns.index(name)}"


def _check_key(field: StructField) -> None:
    # Of numbers with fractions, Spark, Delta and PostgreSQL call different ones equal (-0.0, NaN);
    # of texts with a collation, Spark alone does.
    kind = field.dataType.simpleString()
    is_odd = isinstance(field.dataType, FloatType | DoubleType | ArrayType | StructType | MapType)
    if is_odd or _COLLATED in kind:
        raise InputError(
            f"Column {field.name!r} of merge_on is {kind.upper()}, which can't be a key.",
            hint="Cast it to a decimal or a string.",
        )


def _comparable(column: Column, kind: DataType) -> Column:
    # Spark compares no maps and variants, and texts by their collation.
    is_plain = not re.search(f"map<|variant|{_COLLATED}", kind.simpleString())
    return column if is_plain else f.to_json(f.struct(column), EXACT_JSON)


def _analyzed(df: DataFrame, delete_when: str) -> DataFrame:
    """Return ``df`` with the condition as its only column."""
    try:
        analyzed = df.select(f.expr(delete_when))
    except AnalysisException as error:
        reason = str(error).partition("\n")[0]
        raise ConfigurationError(f"delete_when can't be evaluated: {reason}") from None
    (found,) = analyzed.schema.fields
    if not isinstance(found.dataType, BooleanType):
        raise ConfigurationError(
            f"delete_when is {found.dataType.simpleString()}, not a condition.",
            hint="Write one, for example delete_when=\"op = 'd'\".",
        )
    return analyzed
