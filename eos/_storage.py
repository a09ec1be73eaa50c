"""Storage of Delta tables: durable local files, misread names, error texts without credentials."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

NOT_SHARED: Final = "The table's folder must be the same one for the driver and all executors."

_MISREAD: Final = re.compile(r"%[0-9A-Fa-f]{2}|[\\\[\]\x00-\x1f\x7f]")
_SECRET: Final = re.compile(r"key|secret|token|password|credential|sas", re.IGNORECASE)
_COLOUR: Final = re.compile(r"\x1b\[\d*m")
_OF_SYSTEM: Final = re.compile(r"[\w ,'-]+\(os error \d+\)")


class NotDurable(Exception):
    """The disk did not confirm a write."""


def sync(folder: Path, names: Iterable[str]) -> None:
    """Flush the files ``names`` below ``folder``, then each folder that contains one of them.

    Other libraries leave that to the kernel, and a power failure would undo it.

    Raises:
        NotDurable: the disk did not confirm.
    """
    files = [folder / name for name in names]
    for path in (*files, *sorted({folder, *(file.parent for file in files)})):
        _sync_if_present(path)


def _sync_if_present(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):  # a concurrent compaction has replaced it
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


def misread_by_delta(path: str) -> str | None:
    """Return the part of a local ``path`` that Delta's libraries misread, or None."""
    # deltalake 1.6 lists the folder `a%20b` and opens files in `a b`; it reads a backslash as a
    # slash, panics on brackets, and finds nothing after a control character (measured).
    found = _MISREAD.search(path)
    return found[0] if found else None


def clean(error: BaseException, options: Mapping[str, str]) -> str:
    """Return the first line of an error's text with every credential of ``options`` masked."""
    lines = _COLOUR.sub("", str(error)).strip().splitlines()
    text = lines[0] if lines else type(error).__name__
    # The system's own reason: Delta's library puts it after several lines.
    reason = _OF_SYSTEM.search("\n".join(lines[1:]))
    if reason is not None:
        text = f"{text}: {reason[0].strip()}"
    for name, value in options.items():
        if value and _SECRET.search(name):
            text = text.replace(value, "***")
    return text[:500]
