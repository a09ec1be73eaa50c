"""Connections that a server refuses: what to do about it."""

from __future__ import annotations

import psycopg
import pytest

from eos.errors import ConfigurationError, ConnectionLost, EosError
from eos.postgres.database import Database
from tests.support.postgres import Shop


@pytest.mark.parametrize(
    ("setting", "kind", "says"),
    [
        ("SET default_transaction_read_only = on", ConnectionLost, "The server is a replica, or"),
        ("CONNECTION LIMIT 0", ConnectionLost, r"max_connections"),
        ("NOLOGIN", ConfigurationError, "Check host, database, user and password"),
    ],
)
def test_a_role_that_may_not_write_is_told_why(
    shop: Shop, setting: str, kind: type[EosError], says: str
) -> None:
    role = f"clerk_of_{shop.schema}"
    shop.execute(f"CREATE ROLE {role} LOGIN")
    try:
        shop.execute(f"ALTER ROLE {role} {setting}")
        conninfo = psycopg.conninfo.make_conninfo(shop.conninfo, user=role)
        with pytest.raises(kind) as refused:
            Database(conninfo).connect("test")
        assert says in str(refused.value)
    finally:
        shop.execute(f"DROP ROLE {role}")
