"""Reads logs: which sinks have one, and the history of one; every rule is checked again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from pathlib import Path

from eos.commit_log._log_table import LogTable
from eos.commit_log.corruption import BROKEN_HINT, includes_table_files
from eos.commit_log.location import LOG_FOLDER, Location
from eos.commit_log.schema import NewerRecord, from_row
from eos.errors import CommitLogError, CommitLogUnreadable, ConfigurationError, named
from eos.ids import check_sink_id
from eos.protocol import History, LogRecord


def read_history(table: LogTable) -> tuple[History, list[LogRecord]]:
    """Read all records in the order of ``seq``; some may have been dropped (``_retention``).

    Raises:
        CommitLogError: a file is broken or missing, or a record breaks a rule or was written by
            a newer release; names the file.
    """
    history, records, horizon = History(table.sink_id), [], table.horizon
    for row in table.read():
        seq = row["seq"]
        try:
            record = from_row(row)
            history.replay(record, horizon=horizon)
        except NewerRecord as error:
            raise CommitLogError(
                f"Commit log {table.location.uri}: seq {seq} in {table.file_of(seq)}: {error}.",
                hint="Use the release of eos that wrote it, or a later one.",
                sink_id=table.sink_id,
            ) from None
        except (ValueError, TypeError, AttributeError) as error:  # a null where none may be
            raise table.broken(f"seq {seq} in {table.file_of(seq)}: {error}") from None
        except CommitLogError as error:
            text = f"{error.message.rstrip('.')}; the record is in {table.file_of(seq)}"
            raise table.broken(text).with_context(**error.context) from None
        except Exception as error:  # of the package that declares a participant
            kinds = ", ".join(repr(one["kind"]) for one in row["participants"] or ())
            raise CommitLogUnreadable(
                f"Commit log {table.location.uri}: seq {seq} can't be read by the package of a "
                f"participant ({kinds}): {named(error)}.",
                hint="Fix or update its package, and run this again.",
                sink_id=table.sink_id,
            ) from error
        records.append(record)
    return history, records


def read_again(
    seen: LogTable, known: LogRecord | None
) -> tuple[LogTable, History, list[LogRecord]]:
    """Open a fresh handle on the table of ``seen``, and read all records.

    Args:
        known: the newest record known of it; the present state must be a later one.

    Raises:
        CommitLogError: the table is missing, replaced, rolled back or broken.
    """
    table = LogTable.open_if_exists(seen.location, seen.sink_id)
    if table is None:
        raise _lost(seen, "it no longer exists")
    if table.id != seen.id:
        raise _lost(seen, "the table was replaced by another one")
    history, records = read_history(table)
    if known is not None and _contradicts(known, records, table):
        raise _lost(
            seen,
            f"the table was rolled back: seq {known.seq} was there ({known.state.value}), now it "
            f"ends at {history.last_seq} or holds another record",
        )
    return table, history, records


def at(records: list[LogRecord], seq: int) -> LogRecord | None:
    """Return the record with that ``seq``; None if it is not among them."""
    index = bisect_left(records, seq, key=lambda record: record.seq)
    found = index < len(records) and records[index].seq == seq
    return records[index] if found else None


def _contradicts(known: LogRecord, records: list[LogRecord], table: LogTable) -> bool:
    if table.position < known.seq:
        return True
    found = at(records, known.seq)
    if found is None:
        return known.seq > table.horizon
    return not found.equals_except_time(known)


def _lost(table: LogTable, what: str) -> CommitLogError:
    return CommitLogError(
        f"Commit log {table.location.uri}: {what}.", hint=BROKEN_HINT, sink_id=table.sink_id
    )


def list_sinks(root: str | Path, *, storage_options: Mapping[str, str] | None = None) -> list[str]:
    """List the ids of the sinks with a log, or parts of one, below ``root``, sorted.

    A folder that can't be listed counts.

    Raises:
        ConfigurationError: a URL with credentials in it.
        CommitLogError: ``root`` can't be listed.
    """
    return _folders(Location(root, storage_options=storage_options), _is_log)


def list_emptied(
    root: str | Path, *, storage_options: Mapping[str, str] | None = None
) -> list[str]:
    """As ``list_sinks``, the empty folders: logs that were emptied, or never completed."""
    return _folders(Location(root, storage_options=storage_options), _is_empty)


def _folders(root: Location, is_wanted: Callable[[Location, str], bool]) -> list[str]:
    try:
        return [name for name in root.names() if _is_sink_id(name) and is_wanted(root, name)]
    except OSError as error:
        raise CommitLogUnreadable(
            f"Commit logs below {root.uri} can't be listed: {root.clean(error)}.",
            hint=(isinstance(error, PermissionError) and root.describe_owner()) or None,
        ) from None


def _is_log(root: Location, name: str) -> bool:
    try:
        return bool(root.names(f"{name}/{LOG_FOLDER}")) or includes_table_files(root.names(name))
    except OSError:
        return True


def _is_empty(root: Location, name: str) -> bool:
    if root.folder is None or not (root.folder / name).is_dir() or _is_log(root, name):
        return False
    return set(root.names(name)) <= {LOG_FOLDER}


def has_log(
    root: str | Path, sink_id: str, *, storage_options: Mapping[str, str] | None = None
) -> bool:
    """Whether a sink has a log below ``root``.

    Raises:
        ConfigurationError: a bad sink id or URL.
        CommitLogError: it exists, and is broken; names the file.
    """
    return LogTable.open_if_exists(Location(root, sink_id, storage_options), sink_id) is not None


def _is_sink_id(name: str) -> bool:
    try:
        check_sink_id(name)
    except ConfigurationError:
        return False
    return True
