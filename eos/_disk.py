"""Making local files survive a power failure: other libraries leave that to the kernel."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path


class NotDurable(Exception):
    """The disk did not confirm that it holds what was written."""


def sync(folder: Path, names: Iterable[str]) -> None:
    """Flush the files ``names`` below ``folder``, then every folder that holds one of them.

    A name that is gone meanwhile is left out: compaction of somebody else replaced it.

    Raises:
        NotDurable: the disk did not confirm.
    """
    folders = {folder}
    for name in names:
        path = folder / name
        folders.add(path.parent)
        _sync_if_there(path)
    for parent in sorted(folders):
        _sync_if_there(parent)


def _sync_if_there(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        sync_file(path)


def sync_file(path: Path) -> None:
    """Flush one file, or folder.

    Raises:
        NotDurable: the disk did not confirm.
        FileNotFoundError: it is gone.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise NotDurable(f"{path}: {error.strerror}") from error
    finally:
        os.close(descriptor)
