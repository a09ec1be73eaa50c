"""Commits to a Delta table on a file system directly, on top of a known version.

Nothing is read: the caller knows that the table is at ``version - 1``. The commit has the content
that Delta's own has, and gets its name by a hard link, which fails if the name is taken.
"""

# ``write_deltalake`` plans a query, lists the log's folder, and reads its own commit again: 6 ms of
# a core for a row, 9 with a thousand commits in the folder (measured).

from __future__ import annotations

import io
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from eos import _storage as storage
from eos.commit_log.corruption import commit_name
from eos.commit_log.location import LOG_FOLDER

STAGED: Final = ".staged"
"""Suffix of a file without its final name. Compaction deletes those that killed processes left."""


class NotWritten(Exception):
    """Nothing was committed; the text says why."""


def commit(folder: Path, version: int, row: pa.Table, *, app_id: str, seq: int) -> bool:
    """Commit the one row of ``row`` as ``version`` of the table in ``folder``, durably.

    Args:
        app_id, seq: the transaction identifier that the commit carries.

    Returns:
        False: the version's name is taken, or can't be given. If a reply may be lost (NFS), this
        very commit may have it: read the table.

    Raises:
        NotWritten: a file could not be written durably; nothing was committed.
        NotDurable: it is committed, but the disk does not confirm that it will stay.
    """
    return rewrite(
        folder, version, row, replaced={}, txns={app_id: seq}, may_precede=lambda _: False
    )


def rewrite(
    folder: Path,
    version: int,
    rows: pa.Table,
    *,
    replaced: Mapping[str, int],
    txns: Mapping[str, int],
    may_precede: Callable[[int], bool],
) -> bool:
    """Replace the files ``replaced`` (with their sizes in bytes) by ``rows``, durably, as
    ``version`` or the first free version after it.

    Args:
        txns: the transaction identifiers that the commit carries.
        may_precede: whether the commit that has the name of a version may precede this one.

    Returns, raises: as ``commit``.
    """
    data = _parquet(rows)
    # Without its commit the file is unused, and the next compaction deletes it.
    path = f"part-00000-{uuid.uuid4()}-c000.snappy.parquet"
    try:
        with _staged(folder, data) as file:
            file.rename(folder / path)
        storage.sync(folder, [])
        actions = [*_actions(path, len(data), rows, replaced), *map(_txn, txns.items())]
        with _staged(folder, "".join(map(_line, actions)).encode()) as file:
            while not _link(file, folder / commit_name(version)):
                if not may_precede(version):
                    return False
                version += 1
    except FileNotFoundError:
        return False  # this process has slept, and compaction deleted its files as left over
    except (OSError, storage.NotDurable) as error:
        raise NotWritten(str(error)) from error
    storage.sync(folder / LOG_FOLDER, [])
    return True


def _link(file: Path, name: Path) -> bool:
    """Give ``file`` its ``name``; False if the name is taken, or can't be given."""
    try:
        os.link(file, name)
    except OSError:
        return False
    return True


@contextmanager
def _staged(folder: Path, content: bytes) -> Iterator[Path]:
    """A complete file, flushed to the disk, before it gets its final name."""
    # In the other order, a power failure left an empty commit, and a log that could not be opened
    # (seen on ext4).
    file = folder / f"{uuid.uuid4()}{STAGED}"
    try:
        file.write_bytes(content)
        storage.sync_file(file)
        yield file
    finally:
        file.unlink(missing_ok=True)


def _parquet(rows: pa.Table) -> bytes:
    file = io.BytesIO()
    # One row needs no dictionaries, and the table's statistics are in its commits.
    several = rows.num_rows > 1
    pq.write_table(rows, file, use_dictionary=several, write_statistics=False, store_schema=False)
    return file.getvalue()


def _actions(
    path: str, size: int, rows: pa.Table, replaced: Mapping[str, int]
) -> list[dict[str, Any]]:
    now_ms = time.time_ns() // 1_000_000
    seqs = rows["seq"].to_pylist()
    stats = {
        "numRecords": len(seqs),
        "minValues": {"seq": min(seqs)},
        "maxValues": {"seq": max(seqs)},
        "nullCount": {"seq": 0},
    }
    removed: list[dict[str, Any]] = [
        {
            "remove": {
                "path": quote(old),
                "deletionTimestamp": now_ms,
                "dataChange": True,
                "extendedFileMetadata": True,
                "partitionValues": {},
                "size": old_size,
            }
        }
        for old, old_size in replaced.items()
    ]
    return [
        {
            "commitInfo": {
                "timestamp": now_ms,
                "operation": "WRITE",
                "operationParameters": {"mode": "Overwrite" if replaced else "Append"},
                "engineInfo": "eos",
            }
        },
        {
            "add": {
                "path": path,
                "partitionValues": {},
                "size": size,
                "modificationTime": now_ms,
                "dataChange": True,
                "stats": json.dumps(stats),
            }
        },
        *removed,
    ]


def _txn(identifier: tuple[str, int]) -> dict[str, Any]:
    app_id, number = identifier
    return {"txn": {"appId": app_id, "version": number}}


def _line(action: dict[str, Any]) -> str:
    return json.dumps(action) + "\n"
