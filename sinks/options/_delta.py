"""What a ``DeltaSink`` is made of."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Literal, Required, Self

from pydantic import Field, field_validator, model_validator

from eos.commit_log.location import Location
from eos.delta.folder import Folder
from eos.sinks.options._base import SinkArguments, SinkOptions, Text, allowed


class DeltaSinkArguments(SinkArguments, total=False):
    """The options of a ``DeltaSink``; see ``DeltaSinkOptions``."""

    table: Required[str]
    partition_by: Sequence[str]
    merge_schema: bool
    file_bytes: int
    compression: Literal["snappy", "zstd"]


class DeltaSinkOptions(SinkOptions):
    """What a ``DeltaSink`` is made of, besides what every sink has.

    Attributes:
        table: absolute path or ``s3://bucket/prefix`` of the table; made with the first DataFrame's
            columns when it is not there. ``storage_options`` are the table's, too.
        partition_by: columns that a new table is partitioned by; a table that is there has its own.
        merge_schema: columns that the table lacks are added to it, and fields that its structs
            lack, as by Delta's ``mergeSchema``. No type is widened.
        file_bytes: size at which a file is closed, and the next one begun.
        compression: of the Parquet files, snappy or zstd.
    """

    table: Text
    partition_by: tuple[str, ...] = ()
    merge_schema: bool = False
    file_bytes: Annotated[int, Field(ge=1024 * 1024)] = 128 * 1024 * 1024
    compression: Literal["snappy", "zstd"] = "snappy"

    @field_validator("partition_by", mode="before")
    @classmethod
    def _partition_by(cls, value: object) -> object:
        if isinstance(value, str):
            raise ValueError(f"it takes a list of names, [{value!r}]")
        return value

    @field_validator("table")
    @classmethod
    def _table(cls, value: str) -> str:
        return allowed(lambda uri: Folder(uri).uri, value)

    @model_validator(mode="after")
    def _places(self) -> Self:
        table, log = _place(self.table), _place(Location(self.commit_log).uri)
        if _is_within(table, log) or _is_within(log, table):
            # A vacuum of the table would take the log; recovery would take the table for a log.
            raise ValueError(f"table {table} and commit_log {log} must be in separate folders")
        return self


def _is_within(inner: str, outer: str) -> bool:
    """Whether a place is another one, or below it."""
    return f"{inner}/".startswith(f"{outer}/")


def _place(uri: str) -> str:
    """One name for a place, whatever way leads there."""
    scheme, separator, path = uri.partition("://")
    if not separator:
        return os.path.realpath(uri)
    return f"{'s3' if scheme == 's3a' else scheme}://{path.rstrip('/')}"
