"""The interface of all schemas, and the names of columns that they allow."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from eos.errors import IncompatibleSchema, InputError
from eos.wire.commands import SchemaInfo
from eos.wire.spark_text import sql_name

# Names must "start with [A-Za-z_]" and "subsequently contain only [A-Za-z0-9_]" (Avro 1.12,
# "Names").
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"


@dataclass(frozen=True)
class SchemaWriter:
    """Encodes the values of one topic.

    Attributes:
        info: the schema to open producers with.
        encode: a column of values -> their bytes; a null stays null. Raises ``InputError`` for a
            value that the schema does not allow.
    """

    info: SchemaInfo
    encode: Callable[[pa.Array], pa.Array]


class Schema(ABC):
    """The schema of a sink's values."""

    # Schemas are frozen dataclasses: they are chosen once, and pickled for the tasks.

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are encoded. If there are several, ``writer`` and ``encode`` take a
        struct of them."""
        return ("value",)

    @property
    def json_columns(self) -> tuple[str, ...]:
        """Those of ``columns`` that ``encode`` takes as JSON text, written by Spark."""
        return ()

    def encode_columns(
        self, rows: dict[str, pa.Array], encode: Callable[[pa.Array], pa.Array]
    ) -> dict[str, pa.Array]:
        """Return the columns of messages, with ``columns`` encoded by a writer's ``encode``."""
        return {**rows, "value": encode(rows["value"])}

    @abstractmethod
    def writer(self, column: pa.DataType, registered: SchemaInfo | None = None) -> SchemaWriter:
        """Return the writer for a column of that type and a topic whose newest schema is
        ``registered``.

        Raises:
            InputError: the column can't be written; the error names the field.
            IncompatibleSchema: the column can't be written with the registered schema.
            ConfigurationError: the schema itself is invalid.
        """


def check_is_record(column: pa.DataType) -> None:
    """Raise ``InputError`` if values of that type are not records."""
    if not pa.types.is_struct(column):
        raise InputError(
            f"The value is {sql_name(column)}, but a schema of records needs a struct.",
            hint="Leave out the column 'value' to write whole rows, or make it a struct: "
            "struct(a, b) AS value.",
        )


def check_names(column: pa.StructType, path: str) -> None:
    """Raise ``InputError`` for a name that Avro and Protobuf don't allow, or a duplicate (Spark
    ignores case)."""
    names = [field.name for field in column]
    for name in names:
        if not re.fullmatch(_NAME, name):
            raise InputError(
                f"Column {at(path, name)!r} has a name that no schema allows.",
                hint="Rename it: a name has letters, digits and _, and does not begin with a "
                "digit.",
            )
    lower = [name.lower() for name in names]
    twice = next((name for name in lower if lower.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"Two columns are called {at(path, twice)!r}.", hint="Drop or rename one of them."
        )


def check_new_names(new: Iterable[pa.Field], known: Iterable[str], path: str) -> None:
    """Raise ``IncompatibleSchema`` if one of the new fields differs from a known one by case only:
    consumers would miss its values there, and Spark can't tell the two apart."""
    lower = {name.lower(): name for name in known}
    for field in new:
        if field.name.lower() in lower:
            theirs = lower[field.name.lower()]
            raise IncompatibleSchema(
                f"Column {at(path, field.name)!r}: the topic's field is called {theirs!r}.",
                hint="Rename the column to it, or give it another name.",
            )


def at(path: str, name: str) -> str:
    """Return the path of a field."""
    return f"{path}.{name}" if path else name
