"""What a streaming query's checkpoint says, where only its files can be asked.

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
    """When Spark decided which rows are in ``epoch``.

    Args:
        checkpoint: the query's ``checkpointLocation``: a path, or a URL that Arrow can open.

    Raises:
        ConfigurationError: it can't be read here, or says nothing of the epoch.
    """
    try:
        lines = _lines(checkpoint, f"offsets/{epoch}")
        found = next(line for line in lines if _TIME in line)
        return datetime.fromtimestamp(json.loads(found)[_TIME] / 1000, UTC)
    except (OSError, ValueError, KeyError, StopIteration) as error:
        raise ConfigurationError(
            f"Epoch {epoch} is committed, and whether the checkpoint was set back can't be seen in "
            f"{checkpoint}: {type(error).__name__}.",
            hint="The driver's Python has to be able to read it. With a source that cuts the same "
            "epochs each time, set on_rewind to 'skip' once.",
        ) from error


def query_id_of(checkpoint: str) -> str:
    """The id of the query that the checkpoint is of.

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
