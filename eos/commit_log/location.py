"""The location of a sink's log: a folder or a URL, and its storage options, which stay secret."""

from __future__ import annotations

import logging
import os
import pwd
import re
import shlex
import shutil
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow.fs
from deltalake.fs import DeltaStorageHandler

from eos import _storage as storage
from eos.errors import ConfigurationError
from eos.ids import check_sink_id

_log = logging.getLogger(__name__)
_PASSWORD: Final = re.compile(r"://[^/?#]*:[^/?#]*@|[?#]")
LOG_FOLDER: Final = "_delta_log"
# Schemes that ``deltalake`` opens and that several machines share.
_SCHEMES: Final = (
    "s3", "s3a", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss", "hdfs",
)  # fmt: skip
_MAX_PART_BYTES: Final = 255
# Limits of file systems, minus the space for a sink's folder and a file of Delta's.
_MAX_PATH_BYTES: Final = 3_800


class Location:
    """The folder of one sink's table below ``root``, or ``root`` itself.

    Args:
        root: an absolute path, with ``~`` at its beginning, or a URL that ``deltalake`` knows
            (``s3://bucket/prefix``).
        sink_id: names the folder; None for the root.
        storage_options: passed to ``deltalake``; may hold credentials, and is therefore in no
            ``repr``, message or log line.

    Raises:
        ConfigurationError: a bad sink id, a relative or too long path, a URL that can't be opened
            or has credentials in it.
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
        """The options that ``deltalake`` needs to open it."""
        return self._options or None

    def make_folder(self) -> None:
        """Create a local folder, readable and writable only by its owner, if it does not exist.

        Raises:
            OSError: it can't be created.
        """
        if self.folder is None:
            return
        for folder in (self.folder.parent, self.folder):
            # Parents of the root are the user's; the root and the sink's folder belong to eos.
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def warn_if_open_to_others(self) -> None:
        """Warn if every user may write to a local folder, or to the root that it is in."""
        if self.folder is None:
            return
        for folder in (self.folder.parent, self.folder):
            with suppress(OSError):
                if folder.stat().st_mode & stat.S_IWOTH:
                    _log.warning(
                        "Every user may write to the commit log's folder %s, and so lose or "
                        "duplicate data. Close it: chmod o-w %s",
                        folder,
                        shlex.quote(str(folder)),
                    )

    def names(self, inside: str = "") -> list[str]:
        """Sorted names of files and folders in the subfolder ``inside``; [] if it is missing."""
        if self.folder is not None:
            folder = self.folder / inside
            return sorted(os.listdir(folder)) if folder.is_dir() else []
        selector = pyarrow.fs.FileSelector(inside, allow_not_found=True, recursive=False)
        found = self._handler().get_file_info_selector(selector)
        return sorted(info.path.rstrip("/").rsplit("/", 1)[-1] for info in found)

    def describe_non_table(self) -> str | None:
        """Describe a local folder that is empty, or a file; None for any other.

        Raises:
            OSError: it can't be listed.
        """
        if self.folder is None or not os.path.lexists(self.folder):
            return None
        if not self.folder.is_dir():
            return "it is not a folder"
        is_empty = set(os.listdir(self.folder)) <= {LOG_FOLDER} and not self.names(LOG_FOLDER)
        return "its folder is empty" if is_empty else None

    def describe_owner(self, file: str | None = None) -> str:
        """Describe the owner of ``file``, or of the local folder, or its nearest visible parent."""
        first = Path(file or self.folder) if self.folder else None
        for path in (first, *first.parents) if first else ():
            with suppress(OSError):
                about, me = path.stat(), os.geteuid()
                owner = _user(about.st_uid)
                if about.st_uid == me:
                    return f"{path} has the mode {stat.S_IMODE(about.st_mode):04o}."
                return (
                    f"{path} belongs to {owner} (mode {stat.S_IMODE(about.st_mode):04o}), and "
                    f"this is {_user(me)}: run it as the drivers' user, sudo -u {owner} ..."
                )
        return ""

    def sibling(self, name: str) -> Location:
        """The folder ``name`` in the same root, with the same options."""
        root = self.uri.rstrip("/").rsplit("/", 1)[0] or "/"
        return Location(f"{root.rstrip('/')}/{name}", storage_options=self._options)

    def remove(self) -> None:
        """Delete everything in the folder. Only for files that were just created there.

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

    def delete(self, name: str) -> None:
        """Delete one file, ``name`` relative to the folder, if it exists.

        Raises:
            OSError: it can't be deleted.
        """
        if self.folder is not None:
            (self.folder / name).unlink(missing_ok=True)
            return
        with suppress(FileNotFoundError):
            self._handler().delete_file(name)

    def read(self, name: str) -> bytes | None:
        """Read a file, ``name`` relative to the folder; None if it does not exist."""
        try:
            if self.folder is not None:
                return (self.folder / name).read_bytes()
            content: bytes = self._handler().open_input_file(name).read()
            return content
        except (FileNotFoundError, NotADirectoryError):
            return None

    def clean(self, error: BaseException) -> str:
        """The first line of an error's text, without the credentials in the options."""
        return storage.clean(error, self._options)

    def cause(self, error: Exception) -> Exception | None:
        """``error`` as a cause that a traceback may show; None if it might show too much."""
        return None if self._options else error

    def _handler(self) -> Any:
        return DeltaStorageHandler(self.uri, self._options)


def _checked_root(root: str | Path) -> str:
    """An absolute local path, or a URL that ``deltalake`` opens."""
    text = str(root)
    if not text:
        raise ConfigurationError("commit_log is empty: name a folder or a URL.")
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _checked_folder(text)
    if _PASSWORD.search(text):
        raise ConfigurationError(
            "commit_log: the URL contains a password, a query or a fragment.",
            hint="Pass credentials in storage_options or in the environment.",
        )
    if scheme == "file":
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost") or not slash:
            raise ConfigurationError(
                f"commit_log {text!r}: a file:// URL must name a folder of this machine.",
                hint="Write file:///data/eos, or the path alone.",
            )
        return _checked_folder(f"/{unquote(path)}")
    if scheme == "dbfs":
        raise _refused(text, f"Write {_fuse_path(rest)}.")
    if scheme not in _SCHEMES:
        lower = scheme.lower()
        known = lower in _SCHEMES or lower == "file"
        raise _refused(
            text,
            f"Write {lower}://{rest}." if known else f"Known schemes: {', '.join(_SCHEMES)}, file.",
        )
    if scheme != "hdfs" and not rest.partition("/")[0]:
        raise _refused(text, f"Name the bucket: {scheme}://bucket/prefix.")
    return text.rstrip("/")


def _checked_folder(text: str) -> str:
    if text.startswith("~"):
        text = os.path.expanduser(text)
    if not os.path.isabs(text):
        # A job that is started elsewhere would begin another log there, and write all rows again.
        scheme, colon, rest = text.partition(":")
        if colon and scheme.lower() == "dbfs":
            raise _refused(text, f"Write {_fuse_path(rest)}.")
        if colon and rest.startswith("/"):
            lower, rest = scheme.lower(), rest.lstrip("/")
            shown = f"/{rest}" if lower == "file" else f"{lower}://{rest}, as text"
            raise _refused(text, f"Write {shown}.")
        raise _refused(text, f"Write the absolute path: {os.path.abspath(text)}.")
    misread = storage.misread_by_delta(text)
    if misread is not None:
        raise ConfigurationError(
            f"commit_log {text[:200]!r}: the path contains {misread!r}, which Delta interprets as "
            "something else.",
            hint="Use another name.",
        )
    longest = max(len(os.fsencode(part)) for part in text.split("/"))
    if longest > _MAX_PART_BYTES or len(os.fsencode(text)) > _MAX_PATH_BYTES:
        raise ConfigurationError(
            f"commit_log {text[:80]!r}...: the path is too long.",
            hint=f"At most {_MAX_PART_BYTES} bytes between two slashes, {_MAX_PATH_BYTES} in all.",
        )
    return os.path.abspath(text)


def _user(number: int) -> str:
    """The name of a user, or its number if it has no name (for example in a container)."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _fuse_path(rest: str) -> str:
    return f"/dbfs/{rest.lstrip('/')}"


def _refused(text: str, hint: str) -> ConfigurationError:
    return ConfigurationError(
        f"commit_log {text[:200]!r} is neither an absolute path nor a URL that can be opened.",
        hint=hint,
    )
