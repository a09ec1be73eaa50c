"""Errors of catalogs and storages: what to do, and no credentials."""

from __future__ import annotations

import pytest
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NotInstalledError,
    ServiceUnavailableError,
)

from eos.errors import CommitUnconfirmed, ConfigurationError, EosError, Retriable
from eos.iceberg._catalog_errors import committing, failures
from eos.iceberg._iceberg_table import IcebergTable
from eos.iceberg.table_address import TableAddress

ADDRESS = TableAddress("a.b", properties={"token": "hunter2", "uri": "postgresql://u:pw1@h/db"})


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (ServiceUnavailableError("503"), Retriable, "can be reached"),
        (OSError("no route"), Retriable, "can be reached"),
        (PermissionError("denied"), ConfigurationError, "permissions"),
        (ForbiddenError("with hunter2"), ConfigurationError, r"with \*\*\*"),
        (NotInstalledError("pyarrow"), ConfigurationError, "pip install"),
        (ValueError("at postgresql://u:pw1@h/db"), Retriable, r"postgresql://\*\*\*@h/db"),
        (OSError("of http://h/v1?a=pw1&b=pw1: no"), Retriable, r"http://h/v1\?\*\*\*"),
        (OSError("url: /v1/config?sig=pw1%2F (Caused by x)"), Retriable, r"config\?\*\*\* \(Ca"),
    ],
    ids=lambda one: type(one).__name__,
)
def test_errors_say_what_to_do_and_hide_credentials(error, kind, says):
    with pytest.raises(EosError, match=says) as caught, failures(ADDRESS, "reading it"):
        raise error
    assert type(caught.value) is kind
    assert "default.a.b: reading it failed" in caught.value.message
    for secret in ("hunter2", "pw1"):
        assert secret not in str(caught.value)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CommitFailedException("changed"), Retriable),
        (CommitStateUnknownException("504"), CommitUnconfirmed),
        (OSError("reset"), CommitUnconfirmed),
        (ValueError("Snapshot with id 5 already exists"), CommitUnconfirmed),
    ],
)
def test_only_a_conflict_says_that_nothing_was_committed(error, kind):
    with pytest.raises(kind), committing(ADDRESS, "version 1"):
        raise error


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        ({}, "URI missing.*PYICEBERG_CATALOG__DEFAULT__URI"),
        ({"type": "foo"}, "not a valid CatalogType"),
        ({"type": "sql", "uri": "nonsense"}, "opening its catalog failed"),
        ({"type": "sql", "uri": "sqlite:////nonexistent/x.db"}, "unable to open database"),
        ({"type": "rest", "uri": "http://127.0.0.1:1"}, "can be reached"),
    ],
)
def test_a_wrong_catalog_is_named(properties, says):
    table = IcebergTable(TableAddress("a.b", properties=properties))
    with pytest.raises((ConfigurationError, Retriable), match=says):
        table.find()
