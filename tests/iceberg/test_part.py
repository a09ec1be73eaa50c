"""The Iceberg participant's part of a record: a log may be damaged, or come from outside."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from eos._kinds import IcebergKind
from eos.iceberg.part import IcebergPart, manifest_name
from eos.participant import Access
from eos.protocol import Stage

ATTEMPT = "6f1d2f0a-2d5f-4f6e-8a55-0d0a4c1f5b11"
PREPARED = IcebergPart(
    table="shop.orders",
    catalog_name="lake",
    catalog={"type": "rest", "uri": "https://catalog.example.com"},
    app_id="orders/1",
    version=3,
    table_uuid="2f5a7b52-5dd5-4a43-8f6c-8d2a0f9d7c10",
    attempt_id=ATTEMPT,
    snapshot_id=2**62,
    manifest=f"s3://lake/shop/orders/metadata/{manifest_name(ATTEMPT)}",
    manifest_bytes=7000,
    spec_id=0,
    files=2,
    records=10,
    bytes=2000,
)


def test_it_survives_json_and_is_named_by_catalog_and_table():
    PREPARED.check(Stage.PREPARED)
    through = json.loads(json.dumps(PREPARED.payload()))
    assert IcebergPart.parse(through, {}) == PREPARED
    assert PREPARED.label == "version 3 of table lake.shop.orders"
    assert PREPARED.identity == replace(PREPARED, branch="audit").identity
    assert len(json.dumps(through)) < 1000


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"table": ""}, "table is missing"),
        ({"branch": "a\x1b[2J"}, "branch is missing"),
        ({"catalog": {"uri": "postgresql://eos:secret@host/db"}}, "leave credentials out"),
        ({"catalog": {"uri": "sqlite:///a.db?key=1"}}, "leave credentials out"),
        ({"catalog": {"token": "secret"}}, "leave credentials out"),
        ({"catalog": {"py-catalog-impl": "os.system"}}, "leave credentials out"),
        ({"version": 0}, "version 0"),
        ({"version": None}, "named whole"),
        ({"attempt_id": "../../etc"}, r"uuid|hexadecimal"),
        ({"table_uuid": "x"}, r"uuid|hexadecimal"),
        ({"manifest": "s3://lake/shop/orders/metadata/snap-1.avro"}, "another attempt's"),
        ({"attempt_id": "00000000-0000-4000-8000-000000000000"}, "another attempt's"),
        ({"manifest": None}, "goes with its files"),
        ({"spec_id": None}, "goes with its files"),
        ({"files": 0}, "goes with its files"),
        ({"records": -1}, "records"),
        ({"records": True}, "records"),
        ({"snapshot_id": 2**63}, "snapshot_id"),
        ({"snapshot_id": None}, "snapshot_id"),
    ],
)
def test_an_impossible_part_is_refused(change, why):
    with pytest.raises(ValueError, match=why):
        replace(PREPARED, **change).check(Stage.PREPARED)


def test_catalog_properties_come_from_options_then_the_environment_then_the_log(monkeypatch):
    """A log must not choose the server that gets this machine's credentials."""
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", "https://ours.example.com")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TOKEN", "from the environment")
    options = {"iceberg.token": "from the options", "aws_region": "eu-west-1"}
    participant = IcebergKind().open("orders", PREPARED, Access(storage_options=options))
    assert dict(participant.table.address.properties) == {
        "type": "rest",
        "uri": "https://ours.example.com",
        "token": "from the options",
    }
    assert "options" not in repr(participant.table.address)
