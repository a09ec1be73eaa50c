"""Files in a table's folder: local, or in S3; opened with the same options as the table.

Needs only ``pyarrow``, so executors can use it. Its options are in no ``repr`` and no message.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow.fs

from eos import _storage as storage
from eos.errors import ConfigurationError, Retriable

_PASSWORD: Final = re.compile(r"://[^/?#]*@|[?#]")
_S3: Final = ("s3", "s3a")
_GOOGLE_RETRIES: Final = timedelta(seconds=60)
_GOOGLE: Final = re.compile(r"gs://[a-z0-9][a-z0-9_.-]+/?")
_AZURE: Final = re.compile(r"abfss://([a-z0-9$][a-z0-9-]+)@([a-z0-9]+)\.dfs\.core\.windows\.net/?")

# Synonyms of ``deltalake``'s options; the first one is the environment variable in lower case.
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
        storage_options: as for ``deltalake``; missing ones come from the environment.

    Raises:
        ConfigurationError: it is none of these, or has credentials in it.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._options = dict(storage_options or {})
        self.uri: Final = self._checked(uri)
        """Absolute local path, or URL."""
        self.local: Final = None if "://" in self.uri else Path(self.uri)
        """The local folder; None for a URL."""
        self._root = self.uri.partition("://")[2] or self.uri
        self._system: Any = None

    def __repr__(self) -> str:
        return f"Folder({self.uri!r})"

    @property
    def storage_options(self) -> dict[str, str]:
        """The options that ``deltalake`` needs to open it."""
        return dict(self._options)

    def create(self, path: str) -> Any:
        """Open a new file for writing, with the folders that it needs.

        Raises:
            OSError: it can't be created.
        """
        full = f"{self._root}/{path}"
        if self.local is not None:
            Path(full).parent.mkdir(parents=True, exist_ok=True)
        return self._files().open_output_stream(full)

    def file_system(self) -> Any:
        """The file system with which ``pyarrow`` reads the files, by the same paths."""
        return pyarrow.fs.SubTreeFileSystem(self._root, self._files())

    def delete(self, path: str) -> None:
        """Delete a file; a missing one is ignored.

        Raises:
            OSError: it can't be deleted.
        """
        with suppress(FileNotFoundError):
            self._files().delete_file(f"{self._root}/{path}")

    def size_bytes(self, paths: Sequence[str]) -> list[int | None]:
        """Return the size of each file; None if it is missing, or not a file.

        Raises:
            OSError: the storage does not answer.
        """
        infos = self._files().get_file_info([f"{self._root}/{path}" for path in paths])
        return [info.size if info.is_file else None for info in infos]

    def all_sizes(self) -> dict[str, int]:
        """Return the size of each file, by one listing.

        Raises:
            OSError: the storage does not answer.
        """
        selector = pyarrow.fs.FileSelector(self._root, recursive=True)
        skipped = len(self._root) + 1
        infos = self._files().get_file_info(selector)
        return {info.path[skipped:]: info.size for info in infos if info.is_file}

    def read_text(self, path: str) -> str:
        """Return a file's text.

        Raises:
            OSError: it can't be read.
            UnicodeDecodeError: it is not UTF-8.
        """
        return self.read(path).decode()

    def read(self, path: str) -> bytes:
        """Return a file's bytes; OSError if it can't be read."""
        with self._files().open_input_stream(f"{self._root}/{path}") as stream:
            return bytes(stream.read())

    def make_durable(self, paths: Iterable[str]) -> None:
        """Flush files and their folders to the disk. S3 does so itself.

        Raises:
            NotDurable: the disk did not confirm it.
        """
        if self.local is None:
            return
        names = list(paths)
        storage.sync(
            self.local, [*names, *{str(up) for name in names for up in Path(name).parents}]
        )

    def clean(self, error: BaseException) -> str:
        """The first line of an error's text, without the credentials in the options."""
        return storage.clean(error, self._options)

    def cause(self, error: Exception) -> Exception | None:
        """``error`` as a cause that a traceback may show; None if it might show too much."""
        return None if self._options else error

    @contextmanager
    def failures(self, doing: str) -> Iterator[None]:
        """Turn errors of the storage into ``Retriable`` ones that say what was being done."""
        try:
            yield
        except (OSError, storage.NotDurable) as error:
            raise Retriable(
                f"Delta table {self.uri}: {doing} failed: {self.clean(error)}.",
                hint="Check that the storage can be reached and written to, and its free space.",
            ) from self.cause(error)

    def _files(self) -> Any:
        if self._system is None:
            self._system = self._open()
        return self._system

    def _open(self) -> Any:
        return pyarrow.fs.LocalFileSystem() if self.local is not None else _s3(self._options)

    def _checked(self, uri: str) -> str:
        return _checked(uri)


class Bucket(Folder):
    """Objects to read: those of a ``Folder``, or ``gs://bucket`` and
    ``abfss://container@account.dfs.core.windows.net``.

    Credentials come from the environment: the machine's own, or for Azure
    ``AZURE_STORAGE_ACCOUNT_KEY``.

    Raises:
        ConfigurationError: it is none of these.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self._azure = _AZURE.fullmatch(self.uri)
        if self._azure is not None:
            self._root = self._azure[1]

    def _checked(self, uri: str) -> str:
        # Without a prefix: the brokers' offloader has none.
        if _GOOGLE.fullmatch(uri) or _AZURE.fullmatch(uri):
            return uri.rstrip("/")
        try:
            return super()._checked(uri)
        except ConfigurationError:
            raise ConfigurationError(
                "tieredStorage names no bucket, and no folder.",
                hint="Write s3://bucket, gs://bucket, a folder's absolute path, or "
                "abfss://container@account.dfs.core.windows.net; no prefix and no credentials.",
            ) from None

    def _open(self) -> Any:
        if self._azure is not None:
            return _azure(self._azure[2])
        return _google() if self.uri.startswith("gs://") else super()._open()


def _google() -> Any:
    where: dict[str, Any] = {}
    # An emulator's address, in the variable of Google's own libraries.
    if url := os.environ.get("STORAGE_EMULATOR_HOST"):
        scheme, _, host = url.rpartition("://")
        where = {"endpoint_override": host, "scheme": scheme or "http", "anonymous": True}
    # By default it tries for a quarter of an hour.
    return pyarrow.fs.GcsFileSystem(retry_time_limit=_GOOGLE_RETRIES, **where)


def _azure(account: str) -> Any:
    where: dict[str, str] = {}
    # Azure's emulator has another address; the variable is that of `deltalake`.
    if url := os.environ.get("AZURITE_BLOB_STORAGE_URL"):
        scheme, _, host = url.partition("://")
        for api in ("blob", "dfs"):
            where |= {f"{api}_storage_authority": host, f"{api}_storage_scheme": scheme}
    key = os.environ.get("AZURE_STORAGE_ACCOUNT_KEY")
    return pyarrow.fs.AzureFileSystem(account, account_key=key, **where)


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
                hint="Write /data/table or s3://bucket/table: all machines must find the same one.",
            )
        misread = "%" if "%" in uri else storage.misread_by_delta(uri)
        if misread is not None:
            raise ConfigurationError(
                f"Delta table {uri[:200]!r}: the path contains {misread!r}, which Delta interprets "
                "as something else.",
                hint="Use another name.",
            )
        # Links are resolved: two names of one table are one table.
        return os.path.realpath(uri)
    if _PASSWORD.search(uri):
        raise ConfigurationError(
            "Delta table: the URL contains a user, a password, a query or a fragment.",
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
