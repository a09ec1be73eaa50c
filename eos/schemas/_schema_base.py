"""The interface of all schemas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from eos.wire.commands import SchemaInfo


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
