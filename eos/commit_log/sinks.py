"""Which sinks have a log below a root."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from eos.commit_log._table import LogTable
from eos.commit_log.location import LOG_FOLDER, Location
from eos.errors import CommitLogError, ConfigurationError
from eos.ids import check_sink_id


def sinks(root: str | Path, *, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """Ids of the sinks that have a log below ``root``, sorted; [] when there is no ``root``.

    Raises:
        ConfigurationError: a URL with credentials in it.
        CommitLogError: ``root`` can't be listed.
    """
    location = Location(root, storage_options=storage_options)
    try:
        return [
            name
            for name in location.names()
            if _is_sink_id(name) and location.names(f"{name}/{LOG_FOLDER}")
        ]
    except OSError as error:
        text = location.clean(error)
        raise CommitLogError(f"commit logs below {location.uri} can't be listed: {text}.") from None


def has_log(
    root: str | Path, sink_id: str, *, storage_options: Mapping[str, str] | None = None
) -> bool:
    """Whether a sink has a log below ``root``.

    Raises:
        ConfigurationError: a bad sink id or URL.
        CommitLogError: there is one, and it is broken; names the file.
    """
    return LogTable.maybe_open(Location(root, sink_id, storage_options), sink_id) is not None


def _is_sink_id(name: str) -> bool:
    try:
        check_sink_id(name)
    except ConfigurationError:
        return False
    return True
