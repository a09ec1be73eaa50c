"""A staged file: a Parquet file in a table's folder that no commit of the table names yet.

Executors send it to the driver, and a log keeps it until the commit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

_FOLDER: Final = r"[A-Za-z0-9_.~%-]+=[A-Za-z0-9_.~%-]+"
_NAME: Final = (
    r"eos-[A-Za-z0-9][A-Za-z0-9_.-]{0,99}-[0-9]{5,10}-[0-9a-f]{32}\.(?:snappy|zstd)\.parquet"
)
_PATH: Final = re.compile(rf"(?:{_FOLDER}/)*{_NAME}")
_ATTEMPT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_MAX_PATH_CHARS: Final = 2_000


@dataclass(frozen=True)
class StagedFile:
    """One Parquet file that is not committed yet.

    Raises:
        ValueError: a field holds a value that staging never writes.
    """

    path: str
    """Relative to the table's folder, as in the storage (not URL-encoded)."""
    size_bytes: int
    partition_values: Mapping[str, str | None]
    """Each partition column's value in Delta's format; None is null."""
    records: int
    stats: str
    """Delta's statistics as JSON: numRecords, minValues, maxValues, nullCount."""
    written_at_ms: int
    """When it was closed: milliseconds since 1970, by the executor's clock."""

    def __post_init__(self) -> None:
        # A record of a log may come from outside. Acting on a name that staging could have written
        # never touches a file outside the table's folder, or another writer's file in it.
        path: object = self.path
        if not isinstance(path, str) or len(path) > _MAX_PATH_CHARS or not _PATH.fullmatch(path):
            raise ValueError(f"path {str(path)[:200]!r}: not a file that staging writes")
        for name in ("size_bytes", "records", "written_at_ms"):
            number: object = getattr(self, name)
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise ValueError(f"{name} {str(number)[:40]!r}: not a whole number from 0")
        values: object = self.partition_values
        if not isinstance(values, Mapping) or not all(
            isinstance(key, str) and (value is None or isinstance(value, str))
            for key, value in values.items()
        ):
            raise ValueError("partition_values: not text, or null, by column")
        if len(values) != self.path.count("/"):
            raise ValueError("partition_values: not one for each folder of the path")
        stats = _json_object(self.stats, "stats")
        if stats.get("numRecords") != self.records:
            raise ValueError("stats: numRecords is not the file's number of records")

    def to_json(self) -> str:
        """Return one line of JSON, for a log."""
        return json.dumps({**asdict(self), "partition_values": dict(self.partition_values)})

    @classmethod
    def from_json(cls, text: str) -> StagedFile:
        """The inverse of ``to_json``.

        Raises:
            ValueError: ``text`` is not a staged file; it must not be acted on.
        """
        found = _json_object(text, "a staged file")
        names = {field.name for field in fields(cls)}
        if found.keys() != names:
            raise ValueError(f"a staged file has the fields {', '.join(sorted(names))}")
        return cls(**found)


def file_name(attempt_id: str, spark_partition: int, unique: str, compression: str) -> str:
    """Return the name of a staged file, unique over runs, tasks and files.

    Args:
        unique: 32 hexadecimal digits, new for each file.

    Raises:
        ValueError: ``attempt_id`` is not 1 to 100 letters, digits, ``_``, ``-`` and ``.``.
    """
    if not _ATTEMPT.fullmatch(attempt_id):
        raise ValueError(f"attempt_id {attempt_id[:120]!r}: use 1 to 100 of A-Z a-z 0-9 _ - .")
    return f"eos-{attempt_id}-{spark_partition:05}-{unique}.{compression}.parquet"


def _json_object(text: object, what: str) -> dict[str, Any]:
    try:
        found = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ValueError(f"{what}: not a JSON object")
    return found
