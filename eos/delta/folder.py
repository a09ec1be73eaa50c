"""A table's folder as a place for files: local, or in S3; opened as ``deltalake`` opens the table.

Needs ``pyarrow`` only, so executors can use it. What opens it is in no ``repr`` and no message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow.fs

from eos import _credentials as credentials
from eos import _disk as disk
from eos._local_paths import misread_by_delta
from eos.errors import ConfigurationError, Retriable

_PASSWORD: Final = re.compile(r"://[^/?#]*@|[?#]")
_S3: Final = ("s3", "s3a")

# Names that ``deltalake`` takes for one thing, the first being the environment's in lower case.
_KEY: Final = ("aws_access_key_id", "access_key_id")
_SECRET_KEY: Final = ("aws_secret_access_key", "secret_access_key")
_TOKEN: Final = ("aws_session_token", "aws_token", "session_token", "token")
_REGION: Final = ("aws_region", "aws_default_region", "region", "default_region")
_ENDPOINT: Final = ("aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint")
_VIRTUAL: Final = ("aws_virtual_hosted_style_request", "virtual_hosted_style_request")
_UNSIGNED: Final = ("aws_skip_signature", "skip_signature")


class Folder:
    """Files below one table's folder, by paths relative to it.

    Args:
        uri: an absolute path, ``file:///path`` or ``s3://bucket/prefix``.
        storage_options: as ``deltalake`` takes them; what is missing comes from the environment.

    Raises:
        ConfigurationError: it is none of these, or has credentials in it.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._options = dict(storage_options or {})
        self.uri: Final = _checked(uri)
        """Absolute local path, or URL."""
        self.local: Final = None if "://" in self.uri else Path(self.uri)
        """The local folder; None for a URL."""
        self._root = self.uri.partition("://")[2] or self.uri
        self._system: Any = None

    def __repr__(self) -> str:
        return f"Folder({self.uri!r})"

    @property
    def storage_options(self) -> dict[str, str]:
        """What ``deltalake`` needs to open it."""
        return dict(self._options)

    def create(self, path: str) -> Any:
        """A new file to write to, as ``pyarrow`` takes it, with the folders that it needs.

        Raises:
            OSError: it can't be made.
        """
        full = f"{self._root}/{path}"
        if self.local is not None:
            Path(full).parent.mkdir(parents=True, exist_ok=True)
        return self._files().open_output_stream(full)

    def file_system(self) -> Any:
        """What ``pyarrow`` reads its files by, by the same paths."""
        return pyarrow.fs.SubTreeFileSystem(self._root, self._files())

    def delete(self, path: str) -> None:
        """Delete a file; one that is gone already is fine.

        Raises:
            OSError: it can't be deleted.
        """
        with suppress(FileNotFoundError):
            self._files().delete_file(f"{self._root}/{path}")

    def size_bytes(self, paths: Sequence[str]) -> list[int | None]:
        """The size of each file; None for what is not there, or no file.

        Raises:
            OSError: the storage does not tell.
        """
        infos = self._files().get_file_info([f"{self._root}/{path}" for path in paths])
        return [info.size if info.is_file else None for info in infos]

    def all_sizes(self) -> dict[str, int]:
        """The size of each file that is there, by one listing.

        Raises:
            OSError: the storage does not tell.
        """
        selector = pyarrow.fs.FileSelector(self._root, recursive=True)
        skipped = len(self._root) + 1
        infos = self._files().get_file_info(selector)
        return {info.path[skipped:]: info.size for info in infos if info.is_file}

    def read_text(self, path: str) -> str:
        """A file's text.

        Raises:
            OSError: it can't be read.
            UnicodeDecodeError: it is no UTF-8.
        """
        with self._files().open_input_stream(f"{self._root}/{path}") as stream:
            return bytes(stream.read()).decode()

    def make_durable(self, paths: Iterable[str]) -> None:
        """Make files and their folders survive a power failure. S3 does that by itself.

        Raises:
            NotDurable: the disk did not confirm it.
        """
        if self.local is None:
            return
        names = list(paths)
        disk.sync(self.local, [*names, *{str(up) for name in names for up in Path(name).parents}])

    def clean(self, error: BaseException) -> str:
        """The first line of an error's text, without any credential of ours in it."""
        return credentials.clean(error, self._options)

    def cause(self, error: Exception) -> Exception | None:
        """``error`` as a cause that a traceback may show; None when it might show too much."""
        return None if self._options else error

    @contextmanager
    def failures(self, doing: str) -> Iterator[None]:
        """Errors of the storage, as ``Retriable`` ones that say what was being done."""
        try:
            yield
        except (OSError, disk.NotDurable) as error:
            raise Retriable(
                f"Delta table {self.uri}: {doing} failed: {self.clean(error)}.",
                hint="Check that the storage can be reached and written to, and its free space.",
            ) from self.cause(error)

    def _files(self) -> Any:
        if self._system is None:
            local = self.local is not None
            self._system = pyarrow.fs.LocalFileSystem() if local else _s3(self._options)
        return self._system


def _s3(options: Mapping[str, str]) -> Any:
    given = {name.lower(): value for name, value in options.items()}

    def option(names: Sequence[str]) -> str | None:
        found = [given[name] for name in names if name in given]
        return found[0] if found else os.environ.get(names[0].upper())

    def is_on(names: Sequence[str]) -> bool:
        return (option(names) or "").lower() in ("true", "1", "yes", "on", "t", "y")

    scheme, _, host = (option(_ENDPOINT) or "").rpartition("://")
    return pyarrow.fs.S3FileSystem(
        access_key=option(_KEY),
        secret_key=option(_SECRET_KEY),
        session_token=option(_TOKEN),
        anonymous=is_on(_UNSIGNED),
        region=option(_REGION) or "us-east-1",
        scheme=scheme or "https",
        endpoint_override=host.rstrip("/") or None,
        force_virtual_addressing=is_on(_VIRTUAL),
    )


def _checked(uri: str) -> str:
    scheme, separator, rest = uri.partition("://")
    if not separator:
        if not os.path.isabs(uri) or "\0" in uri:
            raise ConfigurationError(
                f"Delta table {uri[:200]!r}: not an absolute path.",
                hint="Write /data/table or s3://bucket/table: every machine has to find the same.",
            )
        misread = "%" if "%" in uri else misread_by_delta(uri)
        if misread is not None:
            raise ConfigurationError(
                f"Delta table {uri[:200]!r}: a path with {misread!r} in it, which Delta takes for "
                "something else.",
                hint="Use another name.",
            )
        # By whatever links it is reached: two names of one table are one table.
        return os.path.realpath(uri)
    if _PASSWORD.search(uri):
        raise ConfigurationError(
            "Delta table: the URL has a user, a password, a query or a fragment in it.",
            hint="Pass credentials in storage_options or in the environment.",
        )
    if scheme == "file" and rest.startswith("/"):
        return _checked(unquote(rest))
    if scheme not in _S3 or not rest.partition("/")[0]:
        raise ConfigurationError(
            f"Delta table {uri[:200]!r}: neither a local path nor in S3.",
            hint="Write /data/table or s3://bucket/table.",
        )
    return uri.rstrip("/")
