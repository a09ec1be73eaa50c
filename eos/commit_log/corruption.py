"""Errors of an unreliable log: finds and names the broken file, slowly, after a failed read."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from eos.commit_log.location import LOG_FOLDER, Location
from eos.errors import CommitLogError, CommitLogUnreadable

T = TypeVar("T")

BROKEN_HINT: Final = (
    "Nothing was committed or aborted because of this. Do not edit or delete the log: restore "
    "it from a copy that holds everything up to the last driver's stop, then start again. Without "
    "such a copy, move the rest away, and start once with the newest checkpoint and "
    'on_new_query="continue": only the epoch that Spark runs again may then be there twice. Batch '
    "keys are forgotten with their log."
)

NO_LOG: Final = "data without a Delta log"
_EMPTY_HINT: Final = (
    "It was emptied, or a first start was interrupted. Restore it from a copy that holds "
    "everything up to the last driver's stop. If the sink has never written, start its driver: it "
    "creates the log, unless it finds that the sink has written."
)

CHANGED_HINT: Final = (
    "The properties, features, constraints or columns of the log's table were changed: "
    "take the change back, by the tool that made it."
)

# As in Delta's messages (deltalake 1.6).
_REFUSALS: Final = (
    "Unsupported table features", "append-only", "Cannot cast schema", "failed validation check",
)  # fmt: skip

_UNWRITTEN_HINT: Final = (
    "A power failure leaves this, before the commit is confirmed: `eos recovery log repair "
    "{}` repairs it."
)

POINTER: Final = f"{LOG_FOLDER}/_last_checkpoint"
"""Where Delta stores its last checkpoint's version, to find it faster."""

_COMMIT: Final = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT: Final = re.compile(r"([0-9]{20})\.checkpoint.*\.parquet")


def commit_name(version: int) -> str:
    """Return the file of one Delta commit, relative to the table's folder."""
    return f"{LOG_FOLDER}/{version:020}.json"


def checkpoint_name(version: int) -> str:
    """Return the file of one Delta checkpoint, relative to the table's folder."""
    return f"{LOG_FOLDER}/{version:020}.checkpoint.parquet"


def commit_actions(location: Location, version: int) -> dict[str, list[Any]] | None:
    """Return the actions of one commit by their kind; None if its file does not exist.

    Raises:
        ValueError: the file is empty or broken; the message names it.
    """
    content = location.read(commit_name(version))
    if content is None:
        return None
    found: dict[str, list[Any]] = {}
    try:
        for line in content.splitlines():
            for kind, action in json.loads(line).items():
                found.setdefault(kind, []).append(action)
    except (ValueError, AttributeError):
        raise ValueError(f"{commit_name(version)} is truncated or garbage") from None
    if not found:
        raise ValueError(f"{commit_name(version)} is empty")
    return found


def writers(actions: Mapping[str, Sequence[Any]]) -> set[str]:
    """Return the transaction identifiers that a commit carries."""
    return {txn["appId"] for txn in actions.get("txn", ())}


def newest_append(
    location: Location, newest: int, app_id: str, passed: Collection[str]
) -> tuple[int, dict[str, list[Any]]] | None:
    """Return version and actions of the newest commit of ``app_id``, skipping those of ``passed``.
    None if there is none, or it is older than the last checkpoint (which includes it).

    Raises:
        ValueError: a commit on the way is broken.
        CommitLogError: a commit on the way is of another sink.
    """
    for version in range(newest, -1, -1):
        actions = commit_actions(location, version)
        if actions is None:
            return None
        if app_id in writers(actions):
            return version, actions
        if writers(actions).intersection(passed):
            continue
        sink_id = app_id.removeprefix("eos/")
        if others := _sinks(actions) - {sink_id}:
            owner = min(others)
            raise CommitLogError(
                f"Commit log {location.uri} is the log of sink {owner}: its folder was copied or "
                "renamed.",
                hint="Move a copy out of the root. A sink's id can't be changed: rename the folder "
                f"back to {owner}, unless that exists.",
                sink_id=sink_id,
            )
        if any(info.get("operation") == "WRITE" for info in actions.get("commitInfo", [])):
            what = "is truncated, or of another tool, or another process is writing it"
            raise ValueError(f"{commit_name(version)} {what}")
    return None


def _sinks(actions: Mapping[str, Sequence[Any]]) -> set[str]:
    return {one.split("/")[1] for one in writers(actions) if one.startswith("eos/")}


def active_files(table: DeltaTable) -> list[tuple[str, int]]:
    """List path, relative to the folder, and bytes of each data file of the table."""
    # ``pa.table`` would import pandas: 0.2 s of a new process.
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions()).read_all()
    names = actions.column("path").to_pylist()
    return list(zip(names, actions.column("size_bytes").to_pylist(), strict=True))


def file_of(table: DeltaTable, seq: int) -> str | None:
    """Return the data file that holds ``seq``, by the statistics in the Delta log."""
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        low, high = action.get("min.seq"), action.get("max.seq")
        if low is not None and high is not None and low <= seq <= high:
            return str(action["path"])
    return None


def find(
    location: Location, table: DeltaTable | None, *, without: Collection[str | None] = ()
) -> str | None:
    """Describe the broken file; None if every file can be read.

    Args:
        table: the table, if its Delta log could be opened: then its data files are read too.
        without: files of the Delta log to ignore.
    """
    for finding in _broken_commits(location, without):
        return finding
    for path, size in active_files(table) if table is not None else []:
        for finding in _unreadable_parquet(location, path, size):
            return finding
    return None


def _broken_commits(location: Location, without: Collection[str | None]) -> Iterator[str]:
    pointed = last_checkpoint(location)  # first: the file that it names existed before it
    names = [name for name in location.names(LOG_FOLDER) if f"{LOG_FOLDER}/{name}" not in without]
    checkpoints = [match for name in names if (match := _CHECKPOINT.fullmatch(name))]
    newest = max((int(match[1]) for match in checkpoints), default=-1)
    for match in checkpoints:
        if int(match[1]) == newest:
            yield from _unreadable_parquet(location, f"{LOG_FOLDER}/{match[0]}")
    versions = [int(match[1]) for name in names if (match := _COMMIT.fullmatch(name))]
    expected = newest + 1
    if pointed > max(newest, *versions, -1):
        yield f"{checkpoint_name(pointed)} is missing"
    for version in sorted(version for version in versions if version > newest):
        if version > expected:
            yield f"{commit_name(expected)} is missing"
        expected = version + 1
        try:
            commit_actions(location, version)
        except ValueError as error:
            yield str(error)
    if not versions and newest < 0:
        yield location.describe_non_table() or f"{LOG_FOLDER} holds no commit"


def _unreadable_parquet(location: Location, path: str, size: int | None = None) -> Iterator[str]:
    content = location.read(path)
    if content is None:
        yield f"{path} is missing"
    elif size is not None and len(content) != size:
        yield f"{path} has {len(content)} bytes instead of {size}"
    else:
        try:
            pq.ParquetFile(io.BytesIO(content)).read(use_threads=False)
        except (pa.ArrowException, OSError, ValueError) as error:
            yield f"{path} can't be read ({location.clean(error)})"


def last_checkpoint(location: Location) -> int:
    """Version of the checkpoint that the pointer names; -1 if it is missing or broken."""
    try:
        return int(json.loads(location.read(POINTER) or b"")["version"])
    except (ValueError, KeyError, TypeError):
        return -1


def lost_checkpoint(location: Location) -> str | None:
    """Return the checkpoint without which Delta can't open the table: missing, or unreadable.

    The commits are intact, unless ``find`` finds damage when it ignores this file.
    """
    version = last_checkpoint(location)  # first: the file that it names existed before it
    names = location.names(LOG_FOLDER)
    newest = max(_versions(names, _COMMIT), default=-1)
    if version >= 0 and version not in _versions(names, _CHECKPOINT):
        # If the commits end earlier, more than the checkpoint is missing.
        return checkpoint_name(version) if newest >= version else None
    name = checkpoint_name(max(_versions(names, _CHECKPOINT), default=-1))
    if name.removeprefix(f"{LOG_FOLDER}/") not in names:
        return None  # no checkpoint, or one in several files
    without = name, *unwritten_commits(location)
    is_lost = not is_readable(location, name) and find(location, None, without=without) is None
    return name if is_lost else None


def is_readable(location: Location, name: str) -> bool:
    """Whether a Parquet file exists and is intact."""
    return not any(_unreadable_parquet(location, name))


def unwritten_commits(location: Location) -> list[str]:
    """List the empty commits after the last checkpoint, if the newest commit is one of them."""
    # A power failure leaves this after a commit by deltalake, which flushes nothing. An append
    # succeeds only when its file is on the disk, so these commits were never confirmed.
    names = location.names(LOG_FOLDER)
    since = max(_versions(names, _CHECKPOINT), default=-1)
    behind = sorted(version for version in _versions(names, _COMMIT) if version > since)
    found = [commit_name(version) for version in behind if is_unwritten(location, version)]
    return found if behind and commit_name(behind[-1]) in found else []


def is_unwritten(location: Location, version: int) -> bool:
    """Whether a commit's file exists and is empty."""
    content = location.read(commit_name(version))
    return content is not None and not content.strip(b"\0")


def _versions(names: Iterable[str], kind: re.Pattern[str]) -> list[int]:
    return [int(match[1]) for name in names if (match := kind.fullmatch(name))]


def has_table_files(location: Location, sink_id: str) -> bool:
    """Whether there are files that only a table has.

    Raises:
        CommitLogError: the folder can't be listed.
    """
    try:
        return includes_table_files([*location.names(), *location.names(LOG_FOLDER)])
    except OSError as error:
        raise unreadable(location, sink_id, error, None) from None


def has_lost_newest_commit(location: Location) -> bool:
    """Whether the newest commit's file is gone, and its checkpoint is there."""
    found, _ = _try(
        lambda: (
            last_checkpoint(location)
            > max(_versions(location.names(LOG_FOLDER), _COMMIT), default=-1)
        )
    )
    return bool(found)


def includes_table_files(names: Iterable[str]) -> bool:
    """Whether one of these names can only belong to a table."""
    return any(name.endswith((".parquet", ".json")) for name in names)


def empty(location: Location, sink_id: str) -> CommitLogError | None:
    """Return the error for a log's folder that is empty, or None.

    Raises:
        CommitLogError: it can't be listed.
    """
    try:
        what = location.describe_non_table()
    except OSError as error:
        raise unreadable(location, sink_id, error, None) from None
    if what is None:
        return None
    return CommitLogError(
        f"Commit log {location.uri} is broken: {what}.", hint=_EMPTY_HINT, sink_id=sink_id
    )


def broken(location: Location, sink_id: str, what: str, table: DeltaTable | None) -> CommitLogError:
    """Return the error for an unreliable log, with the broken file."""
    finding, obstacle = _try(lambda: find(location, table))
    about = finding or (obstacle and location.clean(obstacle))
    blame = f" ({about})" if about and about not in what else ""
    is_repairable, _ = _try(lambda: _is_repairable(location, table))
    return CommitLogError(
        f"Commit log {location.uri} is broken: {what}{blame}.",
        hint=_UNWRITTEN_HINT.format(sink_id) if is_repairable else BROKEN_HINT,
        sink_id=sink_id,
    )


def _is_repairable(location: Location, table: DeltaTable | None) -> bool:
    unwritten = unwritten_commits(location)
    return commit_name(0) in unwritten or (
        bool(unwritten) and find(location, table, without=unwritten) is None
    )


def unreadable(
    location: Location, sink_id: str, error: Exception, table: DeltaTable | None
) -> CommitLogError:
    """Return the error for a failed read: the log is broken only if a broken file is found."""
    finding, obstacle = _try(lambda: find(location, table))
    text = location.clean(error)
    lost, trouble = (None, None) if obstacle else _try(lambda: lost_checkpoint(location))
    if finding and not lost:
        return broken(location, sink_id, finding, table)
    if lost:
        return CommitLogError(
            f"Commit log {location.uri} can't be read: {text} ({lost} is missing or broken).",
            hint=f"Every commit is there: `eos recovery log repair {sink_id}` repairs it.",
            sink_id=sink_id,
        )
    obstacle = obstacle or trouble
    what = location.clean(obstacle) if obstacle else ""
    about = f" ({what})" if what not in text else ""
    is_denied = "ermission denied" in f"{text}{about}"
    named = [one.filename for one in (obstacle, error) if isinstance(one, OSError) and one.filename]
    return CommitLogUnreadable(
        f"Commit log {location.uri} can't be read: {text}{about}.",
        hint=(is_denied and location.describe_owner(named[0] if named else None))
        or "Check that the folder or bucket can be reached and read by this user.",
        sink_id=sink_id,
    )


class LostRace(Exception):
    """The table is not at the version that an append expected, or was changed by other writers."""


def is_lost_race(error: Exception) -> bool:
    """Whether a retry may help. Delta has one class for this and for refusals."""
    # Files that a clean-up has deleted between listing and reading are "not found".
    is_gone = isinstance(error, DeltaError | CommitLogError) and "not found" in str(error).lower()
    return is_gone or (isinstance(error, CommitFailedError | LostRace) and not is_refusal(error))


def is_refusal(error: Exception) -> bool:
    """Whether Delta refuses the write because the table was changed."""
    text = str(error)
    return isinstance(error, DeltaError) and any(sign in text for sign in _REFUSALS)


def _try(look: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """Return what ``look`` finds, and its error, if any."""
    try:
        with panics_as_errors():
            return look(), None
    except Exception as error:
        return None, error


@contextmanager
def errors_as_unreadable(location: Location, sink_id: str) -> Iterator[None]:
    """Turn an error of the file system into the log's own ``CommitLogUnreadable``."""
    try:
        yield
    except OSError as error:
        raise unreadable(location, sink_id, error, None) from location.cause(error)


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Turn a panic of the Rust library, which is no ``Exception``, into a ``RuntimeError``."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise RuntimeError(f"deltalake panicked: {error}") from error
        raise
