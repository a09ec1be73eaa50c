"""Reads the files of a streaming query's checkpoint, where Spark's own objects are out of reach.

Source: ``OffsetSeqLog`` of Spark 4.2: ``offsets/N`` has a version, a line of JSON with the time of
the plan, and the sources' offsets. Spark writes it before it runs the epoch, and reads it when it
runs the epoch again. ``StreamMetadata``: ``metadata`` is JSON with the query's id.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Final
from urllib.parse import unquote, urlsplit

from pyarrow import fs

from eos.errors import ConfigurationError

_TIME: Final = "batchTimestampMs"


def planned_at(checkpoint: str, epoch: str) -> datetime:
    """Return when Spark planned which rows are in ``epoch``.

    Args:
        checkpoint: the query's ``checkpointLocation``: a path, or a URL that Arrow can open.

    Raises:
        ConfigurationError: it can't be read here, or has no plan of the epoch.
    """
    try:
        lines = _lines(checkpoint, f"offsets/{epoch}")
        found = next(line for line in lines if _TIME in line)
        return datetime.fromtimestamp(json.loads(found)[_TIME] / 1000, UTC)
    except (OSError, ValueError, KeyError, StopIteration) as error:
        raise ConfigurationError(
            f"Epoch {epoch} is committed, and checkpoint {checkpoint} can't be read to see whether "
            f"it was set back: {type(error).__name__}.",
            hint="Let the driver's Python read it. If the source cuts the same epochs each time, "
            "set on_rewind to 'skip' once.",
        ) from error


def query_id_of(checkpoint: str) -> str:
    """Return the id of the checkpoint's query.

    Raises:
        ConfigurationError: it can't be read here.
    """
    try:
        return str(json.loads("".join(_lines(checkpoint, "metadata")))["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"The query id of checkpoint {checkpoint} can't be read: {type(error).__name__}."
        ) from error


def _lines(checkpoint: str, path: str) -> list[str]:
    system, folder = _opened(checkpoint)
    with system.open_input_stream(f"{folder.rstrip('/')}/{path}") as stream:
        return bytes(stream.read()).decode().splitlines()


def _opened(checkpoint: str) -> tuple[fs.FileSystem, str]:
    parts = urlsplit(checkpoint)
    if parts.scheme in ("", "file"):
        return fs.LocalFileSystem(), unquote(parts.path) if parts.scheme else checkpoint
    url = f"s3://{checkpoint.split('://', 1)[1]}" if parts.scheme == "s3a" else checkpoint
    system, folder = fs.FileSystem.from_uri(url)
    return system, folder
