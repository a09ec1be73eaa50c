"""A log that can't be relied on: finding the file to blame, and saying so.

Slow and thorough: it runs only after a read has failed.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from eos.commit_log.location import LOG_FOLDER, Location
from eos.errors import CommitLogError, CommitLogUnreadable

BROKEN_HINT: Final = (
    "Nothing was committed or aborted because of this. Do not edit or delete the log: restore "
    "it from a copy that holds everything up to the last driver's stop, then start again. Is there "
    "none? Move what is left away, and start once with the newest checkpoint and "
    'on_new_query="continue": only the epoch that Spark runs again may then be there twice. Batch '
    "keys are forgotten with their log."
)

NO_LOG: Final = "data without a Delta log"
_EMPTY_HINT: Final = (
    "Somebody has emptied it, or a first start was cut short. Restore it from a copy that holds "
    "everything up to the last driver's stop. If the sink has never written, start its driver: it "
    "makes the log, and refuses where it finds that the sink has written."
)

CHANGED_HINT: Final = (
    "Somebody has changed the properties, features, constraints or columns of the log's table: "
    "take the change back, by the tool that made it."
)

_REFUSALS: Final = (
    "Unsupported table features", "append-only", "Cannot cast schema", "failed validation check",
)  # fmt: skip
"""In Delta's own words (deltalake 1.6)."""

_UNWRITTEN_HINT: Final = (
    "A power failure leaves this, before anybody is told of the commit: `eos recovery log repair "
    "{}` mends it."
)

POINTER: Final = f"{LOG_FOLDER}/_last_checkpoint"
"""Where Delta notes its last checkpoint, to find it faster."""

_COMMIT: Final = re.compile(r"([0-9]{20})\.json")
_CHECKPOINT: Final = re.compile(r"([0-9]{20})\.checkpoint.*\.parquet")


def commit_name(version: int) -> str:
    """The file of one Delta commit, relative to the table's folder."""
    return f"{LOG_FOLDER}/{version:020}.json"


def checkpoint_name(version: int) -> str:
    """The file of one Delta checkpoint, relative to the table's folder."""
    return f"{LOG_FOLDER}/{version:020}.checkpoint.parquet"


def commit_actions(location: Location, version: int) -> dict[str, list[Any]] | None:
    """The actions of one commit by their kind; None when its file is not there.

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
    """The transaction identifiers that a commit carries."""
    return {txn["appId"] for txn in actions.get("txn", ())}


def newest_append(
    location: Location, newest: int, app_id: str, passed: Collection[str]
) -> tuple[int, dict[str, list[Any]]] | None:
    """Version and actions of the newest commit of ``app_id``, passing by those of ``passed``; None
    when there is none, or it is older than the last checkpoint (which holds it).

    Raises:
        ValueError: a commit on the way is broken.
    """
    for version in range(newest, -1, -1):
        actions = commit_actions(location, version)
        if actions is None:
            return None
        if app_id in writers(actions):
            return version, actions
        if writers(actions).intersection(passed):
            continue
        if any(info.get("operation") == "WRITE" for info in actions.get("commitInfo", [])):
            name = commit_name(version)
            raise ValueError(f"{name} is truncated, or another process is writing it")
    return None


def active_files(table: DeltaTable) -> list[tuple[str, int]]:
    """Path, relative to the folder, and bytes of each data file that the table consists of."""
    actions = pa.table(table.get_add_actions()).to_pylist()
    return [(action["path"], action["size_bytes"]) for action in actions]


def file_of(table: DeltaTable, seq: int) -> str | None:
    """The data file that holds ``seq``, by the statistics in the Delta log."""
    for action in pa.table(table.get_add_actions(flatten=True)).to_pylist():
        low, high = action.get("min.seq"), action.get("max.seq")
        if low is not None and high is not None and low <= seq <= high:
            return str(action["path"])
    return None


def find(
    location: Location, table: DeltaTable | None, *, without: Collection[str | None] = ()
) -> str | None:
    """What is broken, with the file's name; None when every file can be read.

    Args:
        table: the table, when its Delta log could be opened: then its data files are read too.
        without: files of the Delta log that are not looked at, as if they were not there.
    """
    for finding in _broken_commits(location, without):
        return finding
    for path, size in active_files(table) if table is not None else []:
        for finding in _unreadable_parquet(location, path, size):
            return finding
    return None


def _broken_commits(location: Location, without: Collection[str | None]) -> Iterator[str]:
    names = [name for name in location.names(LOG_FOLDER) if f"{LOG_FOLDER}/{name}" not in without]
    checkpoints = [match for name in names if (match := _CHECKPOINT.fullmatch(name))]
    newest = max((int(match[1]) for match in checkpoints), default=-1)
    for match in checkpoints:
        if int(match[1]) == newest:
            yield from _unreadable_parquet(location, f"{LOG_FOLDER}/{match[0]}")
    versions = [int(match[1]) for name in names if (match := _COMMIT.fullmatch(name))]
    expected = newest + 1
    for version in sorted(version for version in versions if version > newest):
        if version > expected:
            yield f"{commit_name(expected)} is missing"
        expected = version + 1
        try:
            commit_actions(location, version)
        except ValueError as error:
            yield str(error)
    if not versions and newest < 0:
        yield location.what_is_there() or f"{LOG_FOLDER} holds no commit"


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
    """The version of the checkpoint that the pointer names; -1: none, or the pointer is broken."""
    try:
        return int(json.loads(location.read(POINTER) or b"")["version"])
    except (ValueError, KeyError, TypeError):
        return -1


def lost_checkpoint(location: Location) -> str | None:
    """The checkpoint that the pointer names, when it is not there; or the newest one, when it can't
    be read: Delta opens nothing then.

    A power failure leaves this. The commits are whole all the same, unless ``find`` finds
    something without it.
    """
    version = last_checkpoint(location)  # first: what it names was there before it
    names = location.names(LOG_FOLDER)
    newest = max(_versions(names, _COMMIT), default=-1)
    if version >= 0 and version not in _versions(names, _CHECKPOINT):
        # Where the commits end before, more than the checkpoint is gone.
        return checkpoint_name(version) if newest >= version else None
    name = checkpoint_name(max(_versions(names, _CHECKPOINT), default=-1))
    if name.removeprefix(f"{LOG_FOLDER}/") not in names:
        return None  # none at all, or in several files
    without = name, *unwritten_commits(location)
    is_lost = not is_readable(location, name) and find(location, None, without=without) is None
    return name if is_lost else None


def is_readable(location: Location, name: str) -> bool:
    """Whether a Parquet file is there, and whole."""
    return not any(_unreadable_parquet(location, name))


def unwritten_commits(location: Location) -> list[str]:
    """The files of commits behind the last checkpoint with nothing in them, when the newest one is
    such a file.

    A power failure leaves this where ``deltalake`` has committed, which flushes nothing. Whoever
    appends is told only when the file is on the disk: nobody has been told of these.
    """
    names = location.names(LOG_FOLDER)
    since = max(_versions(names, _CHECKPOINT), default=-1)
    behind = sorted(version for version in _versions(names, _COMMIT) if version > since)
    found = [commit_name(version) for version in behind if is_unwritten(location, version)]
    return found if behind and commit_name(behind[-1]) in found else []


def is_unwritten(location: Location, version: int) -> bool:
    """Whether a commit's file is there, and nothing in it."""
    content = location.read(commit_name(version))
    return content is not None and not content.strip(b"\0")


def _versions(names: Iterable[str], kind: re.Pattern[str]) -> list[int]:
    return [int(match[1]) for name in names if (match := kind.fullmatch(name))]


def has_remains(location: Location, sink_id: str) -> bool:
    """Whether files are there that only a table has.

    Raises:
        CommitLogError: that can't be seen.
    """
    try:
        return is_remains([*location.names(), *location.names(LOG_FOLDER)])
    except OSError as error:
        raise unreadable(location, sink_id, error, None) from None


def is_remains(names: Iterable[str]) -> bool:
    """Whether one of the names is one that only a table's files have."""
    return any(name.endswith((".parquet", ".json")) for name in names)


def empty(location: Location, sink_id: str) -> CommitLogError | None:
    """The error for a place where a log should be and where nothing of one is left; None: the place
    itself is missing, or holds something else.

    Raises:
        CommitLogError: it can't be seen.
    """
    try:
        what = location.what_is_there()
    except OSError as error:
        raise unreadable(location, sink_id, error, None) from None
    if what is None:
        return None
    return CommitLogError(
        f"commit log {location.uri} is broken: {what}.", hint=_EMPTY_HINT, sink_id=sink_id
    )


def broken(location: Location, sink_id: str, what: str, table: DeltaTable | None) -> CommitLogError:
    """The error for a log that can't be relied on, with the file that is to blame."""
    finding, obstacle = _search(location, table)
    about = finding or obstacle
    blame = f" ({about})" if about and about not in what else ""
    unwritten = [] if obstacle else unwritten_commits(location)
    is_mendable = commit_name(0) in unwritten or (
        bool(unwritten) and find(location, table, without=unwritten) is None
    )
    return CommitLogError(
        f"commit log {location.uri} is broken: {what}{blame}.",
        hint=_UNWRITTEN_HINT.format(sink_id) if is_mendable else BROKEN_HINT,
        sink_id=sink_id,
    )


def unreadable(
    location: Location, sink_id: str, error: Exception, table: DeltaTable | None
) -> CommitLogError:
    """For an error of the store: only a file that is found broken makes the log a broken one."""
    finding, obstacle = _search(location, table)
    text = location.clean(error)
    lost = None if obstacle else lost_checkpoint(location)
    if finding and not lost:
        return broken(location, sink_id, finding, table)
    if lost:
        return CommitLogError(
            f"commit log {location.uri} can't be read: {text} ({lost} is missing or broken).",
            hint=f"Every commit is there: `eos recovery log repair {sink_id}` mends it.",
            sink_id=sink_id,
        )
    about = f" ({obstacle})" if obstacle and obstacle not in text else ""
    is_denied = "ermission denied" in f"{text}{about}"
    return CommitLogUnreadable(
        f"commit log {location.uri} can't be read: {text}{about}.",
        hint=(is_denied and location.whose())
        or "Check that the folder or bucket can be reached and read by this user.",
        sink_id=sink_id,
    )


class LostRace(Exception):
    """The table does not stand where an append believed, or others have written to it."""


def is_lost_race(error: Exception) -> bool:
    """Whether trying again may help. Delta has one class for this and for refusals; and what a
    clean-up has deleted between listing and reading is "not found"."""
    is_gone = isinstance(error, DeltaError | CommitLogError) and "not found" in str(error).lower()
    return is_gone or (isinstance(error, CommitFailedError | LostRace) and not is_refusal(error))


def is_refusal(error: Exception) -> bool:
    """Whether Delta refuses what the table, as somebody has changed it, does not take."""
    text = str(error)
    return isinstance(error, DeltaError) and any(sign in text for sign in _REFUSALS)


def _search(location: Location, table: DeltaTable | None) -> tuple[str | None, str | None]:
    """What is broken, if anything; and what kept us from looking, if anything."""
    try:
        with panics_as_errors():
            return find(location, table), None
    except Exception as error:
        return None, location.clean(error)


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """A panic of the Rust library is no ``Exception``, but no reason to stop the process."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            raise RuntimeError(f"deltalake panicked: {error}") from error
        raise
