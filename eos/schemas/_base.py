"""The interface of all schemas."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from eos.wire.commands import SchemaInfo


@dataclass(frozen=True)
class SchemaWriter:
    """How the values of one topic are written.

    Attributes:
        info: what producers are opened with.
        encode: a column of values -> their bytes; a null stays null. Raises ``InputError`` for a
            value that the schema does not allow.
    """

    info: SchemaInfo
    encode: Callable[[pa.Array], pa.Array]


class Schema(ABC):
    """What values are: chosen once for a sink, and sent to the tasks."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are encoded: of more than one, ``writer`` and ``encode`` take a
        struct."""
        return ("value",)

    @property
    def json_columns(self) -> tuple[str, ...]:
        """Those of ``columns`` that ``encode`` takes as JSON text, made by Spark."""
        return ()

    def encode_columns(
        self, rows: dict[str, pa.Array], encode: Callable[[pa.Array], pa.Array]
    ) -> dict[str, pa.Array]:
        """The columns of messages, those of ``columns`` as bytes by a writer's ``encode``."""
        return {**rows, "value": encode(rows["value"])}

    @abstractmethod
    def writer(self, column: pa.DataType, registered: SchemaInfo | None = None) -> SchemaWriter:
        """How a column of that type is written to a topic whose newest schema is ``registered``.

        Raises:
            InputError: such a column can't be written; the field is named.
            IncompatibleSchema: it can't be written by what is registered.
            ConfigurationError: the schema itself is wrong.
        """
