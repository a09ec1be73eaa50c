"""The options of ``DeltaSink``."""

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
    """The options of a ``DeltaSink``, in addition to those of all sinks.

    Attributes:
        table: absolute path or ``s3://bucket/prefix`` of the table, which is created with the first
            DataFrame's columns if it is missing. ``storage_options`` are used for it, too.
        partition_by: partition columns of a new table; existing tables keep theirs.
        merge_schema: add missing columns to the table, and missing fields to its structs, as by
            Delta's ``mergeSchema``. No type is widened.
        file_bytes: size at which a file is closed and the next one is opened.
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
            raise ValueError(f"must be a list of names: [{value!r}]")
        return value

    @field_validator("table")
    @classmethod
    def _table(cls, value: str) -> str:
        return allowed(lambda uri: Folder(uri).uri, value)

    @model_validator(mode="after")
    def _separate_folders(self) -> Self:
        table, log = _canonical(self.table), _canonical(Location(self.commit_log).uri)
        if _is_within(table, log) or _is_within(log, table):
            # A vacuum of the table would delete the log; recovery would read the table as a log.
            raise ValueError(f"table {table} and commit_log {log} must be in separate folders")
        return self


def _is_within(inner: str, outer: str) -> bool:
    """Whether ``inner`` is ``outer``, or below it."""
    return f"{inner}/".startswith(f"{outer}/")


def _canonical(uri: str) -> str:
    """Return one name for a folder, however it is written."""
    scheme, separator, path = uri.partition("://")
    if not separator:
        return os.path.realpath(uri)
    return f"{'s3' if scheme == 's3a' else scheme}://{path.rstrip('/')}"
