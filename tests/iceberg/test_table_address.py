"""A table's address, checked before anything connects."""

from __future__ import annotations

import re

import pytest

from eos.errors import ConfigurationError
from eos.iceberg._catalog_errors import text_of
from eos.iceberg.table_address import TableAddress, check_table_name, parse_partition_field


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("id", ("identity", "id")),
        ("identity(id)", ("identity", "id")),
        ("day(ts)", ("day", "ts")),
        (" hour( ts )", ("hour", "ts")),
        ("bucket(16, id)", ("bucket[16]", "id")),
        ("truncate(4,a.b)", ("truncate[4]", "a.b")),
        ("odd name", ("identity", "odd name")),
    ],
)
def test_transforms_are_parsed(text, parsed):
    assert parse_partition_field(text) == parsed


@pytest.mark.parametrize(
    "text", ["", "days(ts)", "bucket(id)", "bucket(0, id)", "day(ts", "day()", "bucket(16, )"]
)
def test_other_texts_are_refused(text):
    with pytest.raises(ConfigurationError, match="not a transform"):
        parse_partition_field(text)


@pytest.mark.parametrize("name", ["orders", "a..b", ".a", "a b.c", "a.b\n"])
def test_a_name_without_a_namespace_is_refused(name):
    with pytest.raises(ConfigurationError, match="namespace"):
        check_table_name(name)


@pytest.mark.parametrize(
    ("uri", "is_recorded"),
    [
        ("postgresql+psycopg2://writer:Zx/9@Kq@db.example.com:5432/catalog", False),
        ("postgresql://token@host/db", False),
        ("https://host/catalog?token=secret", False),
        ("https://host:8181/catalog", True),
        ("sqlite:////data/a@b/catalog.db", True),
    ],
)
def test_a_password_of_any_form_is_not_recorded(uri, is_recorded):
    assert ("uri" in TableAddress("a.b", properties={"uri": uri}).recorded) is is_recorded
    shown = text_of(ValueError(f"no answer of {uri}"), {})
    assert not {"Zx", "9@Kq", "Kq@", "token@", "secret"} & set(re.split(r"[:/=]", shown))


def test_credentials_are_not_recorded():
    address = TableAddress(
        "a.b",
        properties={
            "type": "sql",
            "uri": "postgresql://eos:secret@host/db",
            "warehouse": "s3://bucket/lake",
            "s3.secret-access-key": "secret",
            "token": "secret",
        },
    )
    assert address.recorded == {"type": "sql", "warehouse": "s3://bucket/lake"}
    assert "secret" not in repr(address)
