"""Values that sink, tasks and participant exchange about rows; without psycopg."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

from eos.participant import Upsert

if TYPE_CHECKING:  # ``eos`` has its sink also where psycopg is not installed
    from eos.postgres.database import Database


@dataclass(frozen=True)
class TargetColumn:
    """A column of the target.

    Attributes:
        type: as PostgreSQL writes it, for example ``numeric(10,2)`` or ``text[]``.
        base: the type below a domain; else the same.
        is_required: it takes no nulls.
        has_default: rows without it get a value.
        is_generated: the database alone writes it.
    """

    name: str
    type: str
    base: str
    is_required: bool
    has_default: bool
    is_generated: bool


@dataclass(frozen=True)
class StagingColumn:
    """A column of the staging table, with its type as PostgreSQL writes it."""

    name: str
    type: str
    is_required: bool = False


@dataclass(frozen=True)
class CopyTarget:
    """The staging table as a task needs it; pickled to executors.

    ``columns``: its columns, without ``run``; ``names``: those that users know.
    """

    database: Database
    schema: str
    table: str
    columns: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True)
class Copied:
    """The result of one task run."""

    run: int
    rows: int
    size_bytes: int

    def to_json(self) -> str:
        """As JSON, for a task's report."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of ``to_json``."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class StagedRows:
    """Result of the writing: all tasks' runs, and how their rows are written."""

    copied: tuple[Copied, ...]
    names: tuple[str, ...]
    upsert: Upsert | None
