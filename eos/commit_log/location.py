"""Where a sink's log lives: a folder or a URL, and what opens it. Never shows what opens it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow.fs
from deltalake.fs import DeltaStorageHandler

from eos.errors import ConfigurationError
from eos.ids import check_sink_id

_PASSWORD: Final = re.compile(r"://[^/?#]*:[^/?#]*@|[?#]")
_SECRET: Final = re.compile(r"key|secret|token|password|credential|sas", re.IGNORECASE)
LOG_FOLDER: Final = "_delta_log"


class Location:
    """The folder of one sink's table below ``root``, or ``root`` itself.

    Args:
        root: a local path, or a URL that ``deltalake`` knows (``s3://bucket/prefix``).
        sink_id: names the folder; None for the root.
        storage_options: as ``deltalake`` takes them; may hold credentials, and is therefore in
            no ``repr``, message or log line.

    Raises:
        ConfigurationError: a bad sink id, or a URL with credentials in it.
    """

    def __init__(
        self,
        root: str | Path,
        sink_id: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._options = dict(storage_options or {})
        base = _checked_root(root)
        if sink_id is not None:
            base = f"{base.rstrip('/')}/{check_sink_id(sink_id)}"
        self.uri: Final = base
        """Absolute local path, or URL."""
        self.folder: Final = None if "://" in base else Path(base)
        """The local folder; None for a URL."""

    def __repr__(self) -> str:
        return f"Location({self.uri!r})"

    @property
    def storage_options(self) -> dict[str, str] | None:
        """What ``deltalake`` needs to open it."""
        return self._options or None

    def make_folder(self) -> None:
        """Make a local folder, readable and writable by its owner only, when it is missing.

        Raises:
            OSError: it can't be made.
        """
        if self.folder is None:
            return
        for folder in (self.folder.parent, self.folder):
            # Parents of the root are the user's; the root and the sink's folder are ours.
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def names(self, inside: str = "") -> list[str]:
        """Sorted names of files and folders in ``inside``, a folder below; [] when missing."""
        if self.folder is not None:
            folder = self.folder / inside
            return sorted(os.listdir(folder)) if folder.is_dir() else []
        selector = pyarrow.fs.FileSelector(inside, allow_not_found=True, recursive=False)
        found = self._handler().get_file_info_selector(selector)
        return sorted(info.path.rstrip("/").rsplit("/", 1)[-1] for info in found)

    def beside(self, name: str) -> Location:
        """The folder ``name`` in the same root, opened by the same options."""
        root = self.uri.rstrip("/").rsplit("/", 1)[0] or "/"
        return Location(f"{root.rstrip('/')}/{name}", storage_options=self._options)

    def remove(self) -> None:
        """Delete everything in the folder. Only for what was made there a moment ago.

        Raises:
            OSError: it can't be deleted.
        """
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        for inside in (LOG_FOLDER, ""):
            for name in self.names(inside):
                if name != LOG_FOLDER:
                    self._handler().delete_file(f"{inside}/{name}" if inside else name)

    def read(self, name: str) -> bytes | None:
        """The bytes of a file, ``name`` relative to the folder; None when it is missing."""
        try:
            if self.folder is not None:
                return (self.folder / name).read_bytes()
            content: bytes = self._handler().open_input_file(name).read()
            return content
        except FileNotFoundError:
            return None

    def clean(self, error: BaseException) -> str:
        """The first line of an error's text, without any credential of ours in it."""
        lines = str(error).strip().splitlines()
        text = lines[0] if lines else type(error).__name__
        for name, value in self._options.items():
            if value and _SECRET.search(name):
                text = text.replace(value, "***")
        return text[:500]

    def cause(self, error: Exception) -> Exception | None:
        """``error`` as a cause that a traceback may show; None when it might show too much."""
        return None if self._options else error

    def _handler(self) -> Any:
        return DeltaStorageHandler(self.uri, self._options)


def _checked_root(root: str | Path) -> str:
    text = str(root)
    if text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    if not text:
        raise ConfigurationError("commit_log is empty: name a folder or a URL.")
    if "://" not in text:
        return os.path.abspath(text)
    if _PASSWORD.search(text):
        raise ConfigurationError(
            "commit_log: the URL has a password, a query or a fragment in it.",
            hint="Pass credentials in storage_options or in the environment.",
        )
    return text.rstrip("/")
