"""Flush local files to disk so that they survive a power failure.

Other libraries leave that to the kernel.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path


class NotDurable(Exception):
    """The disk did not confirm a write."""


def sync(folder: Path, names: Iterable[str]) -> None:
    """Flush the files ``names`` below ``folder``, then each folder that contains one of them.

    Missing files are skipped: a concurrent compaction has replaced them.

    Raises:
        NotDurable: the disk did not confirm.
    """
    folders = {folder}
    for name in names:
        path = folder / name
        folders.add(path.parent)
        _sync_if_present(path)
    for parent in sorted(folders):
        _sync_if_present(parent)


def _sync_if_present(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        sync_file(path)


def sync_file(path: Path) -> None:
    """Flush one file or folder.

    Raises:
        NotDurable: the disk did not confirm.
        FileNotFoundError: it does not exist.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise NotDurable(f"{path}: {error.strerror}") from error
    finally:
        os.close(descriptor)
