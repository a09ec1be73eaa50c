"""Errors of catalogs and storages as those of eos, without credentials in their texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitFailedException,
    ForbiddenError,
    NoSuchPropertyException,
    NotInstalledError,
    OAuthError,
    SignError,
    UnauthorizedError,
)

from eos import _storage as storage
from eos.errors import CommitUnconfirmed, ConfigurationError, EosError, Retriable, pip_install
from eos.iceberg.table_address import TableAddress

# Errors of requests, SQLAlchemy, botocore and thrift have no common class, and these packages are
# optional: what is not listed here is taken for a failure that may pass.
_REFUSED: Final = (
    AuthorizationExpiredError, ForbiddenError, OAuthError, PermissionError, SignError,
    UnauthorizedError,
)  # fmt: skip
_INSTALL: Final = (NotInstalledError, ImportError)
_USER: Final = re.compile(r"://[^/\s@]*(?::\S*)?@")
# Of a URL, or of a path as urllib3 has it: a signature or token may be in it.
_QUERY: Final = re.compile(r"\?[^\s?=]+=[^\s'\")>]*")


@contextmanager
def failures(address: TableAddress, doing: str, *, configuring: bool = False) -> Iterator[None]:
    """Translate the errors of ``pyiceberg`` and what it calls: HTTP, SQL and storage libraries.

    Args:
        configuring: a wrong value is the configuration's fault.

    Raises:
        ConfigurationError: a package or property is missing, or access is refused.
        Retriable: any other error; nothing is known of libraries that are optional here.
    """
    try:
        yield
    except EosError:
        raise
    except Exception as error:
        raise _translated(error, address, doing, configuring) from None


def _translated(error: Exception, address: TableAddress, doing: str, configuring: bool) -> EosError:
    said = f"Iceberg table {address.identity}: {doing} failed: {text_of(error, address.properties)}"
    if isinstance(error, _INSTALL):
        return ConfigurationError(
            f"{said}.",
            hint=f"Install what this catalog needs, for example {pip_install('iceberg')} for "
            "SQLite, 'pyiceberg[glue]' for Glue, 'pyiceberg[sql-postgres]' for PostgreSQL.",
        )
    if isinstance(error, _REFUSED):
        return ConfigurationError(
            f"{said}.", hint="Check the catalog's credentials, and the permissions of its role."
        )
    if configuring and isinstance(error, ValueError | NoSuchPropertyException):
        return ConfigurationError(
            f"{said}.",
            hint="Set the option catalog; for eos recovery, storage options iceberg.uri and so "
            f"on, or PYICEBERG_CATALOG__{address.catalog_name.upper()}__URI.",
        )
    return Retriable(f"{said}.", hint="Check that the catalog and the storage can be reached.")


@contextmanager
def committing(address: TableAddress, doing: str) -> Iterator[None]:
    """Translate the errors of a commit.

    Raises:
        Retriable: another commit came first; nothing was committed.
        CommitUnconfirmed: it may have taken effect.
    """
    try:
        yield
    # Usually it excludes a commit; the next look at the table shows it. A server may have committed
    # before its answer was lost; and a ValueError of pyiceberg may mean that the snapshot is there,
    # or that a commit on another branch took its sequence number.
    except CommitFailedException as error:
        raise Retriable(
            f"Iceberg table {address.identity}: {doing}: another commit came first: "
            f"{text_of(error, address.properties)}."
        ) from None
    except Exception as error:
        raise CommitUnconfirmed(
            f"Iceberg table {address.identity}: {doing} was not confirmed: "
            f"{text_of(error, address.properties)}.",
            hint="The table's properties and snapshots show the outcome; a retry adds no rows.",
        ) from None


def text_of(error: BaseException, properties: Mapping[str, str]) -> str:
    """Return the first line of an error's text without credentials."""
    text = _USER.sub("://***@", storage.clean(error, properties))
    return _QUERY.sub("?***", text).rstrip(".")
