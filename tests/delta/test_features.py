"""Tables whose requirements for writers an append of files can't meet."""

from __future__ import annotations

import json

import pytest
from deltalake import DeltaTable

from eos.delta.target_table import TargetTable
from eos.errors import ConfigurationError, EosError
from tests.delta.tables import appended, ids, made, numbered

COLUMNS = [
    {"name": "id", "type": "long", "nullable": True, "metadata": {}},
    {"name": "name", "type": "string", "nullable": True, "metadata": {}},
]


def written(folder, protocol, configuration=None, columns=COLUMNS, partition_by=()) -> TargetTable:
    """A table with exactly this first commit."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    metadata = {
        "id": "7",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": columns}),
        "partitionColumns": list(partition_by),
        "configuration": configuration or {},
        "createdTime": 0,
    }
    lines = [json.dumps({"protocol": protocol}), json.dumps({"metaData": metadata})]
    (log / f"{0:020}.json").write_text("\n".join(lines))
    return TargetTable(str(folder))


def plain(version: int) -> dict:
    return {"minReaderVersion": 2 if version >= 5 else 1, "minWriterVersion": version}


def listed(*writer: str, reader=()) -> dict:
    found = {"minReaderVersion": 3 if reader else 1, "minWriterVersion": 7}
    found["writerFeatures"] = [*writer, *reader]
    return {**found, "readerFeatures": list(reader)} if reader else found


def column(**metadata) -> list[dict]:
    return [COLUMNS[0], {**COLUMNS[1], "metadata": metadata}]


def inside(kind) -> list[dict]:
    return [COLUMNS[0], {**COLUMNS[1], "type": kind}]


BINARY = inside("binary")
STRUCT = {"type": "struct", "fields": column(**{"delta.invariants": "{}"})}


@pytest.mark.parametrize(
    ("protocol", "configuration"),
    [
        *((plain(version), {}) for version in (1, 2, 3, 4, 5)),
        (plain(2), {"delta.appendOnly": "true"}),
        (plain(4), {"delta.enableChangeDataFeed": "true"}),
        (plain(2), {"delta.setTransactionRetentionDuration": "interval 30 days"}),
        (plain(2), {"delta.setTransactionRetentionDuration": "interval 4 weeks 3 days"}),
        (listed("appendOnly", "invariants", "checkConstraints", "generatedColumns"), {}),
        (listed(reader=["deletionVectors"]), {"delta.enableDeletionVectors": "true"}),
        (listed(reader=["columnMapping", "v2Checkpoint", "timestampNtz"]), {}),
    ],
    ids=str,
)
def test_a_table_without_requirements_can_be_appended_to(tmp_path, protocol, configuration):
    table = written(tmp_path / "t", protocol, configuration)
    table.check_writable()
    appended(table, numbered(0, 2))
    assert ids(table) == [0, 1]


@pytest.mark.parametrize(
    ("demand", "protocol", "configuration", "columns"),
    [
        ("identity columns", plain(6), {}, COLUMNS),
        ("writer version 8", {"minReaderVersion": 2, "minWriterVersion": 8}, {}, COLUMNS),
        ("table feature rowTracking", listed("rowTracking"), {}, COLUMNS),
        ("table feature icebergCompatV2", listed("icebergCompatV2"), {}, COLUMNS),
        ("table feature identityColumns", listed("identityColumns"), {}, COLUMNS),
        ("table feature ofTomorrow", listed("ofTomorrow"), {}, COLUMNS),
        ("table feature typeWidening", listed(reader=["typeWidening"]), {}, COLUMNS),
        ("check constraint positive", plain(3), {"delta.constraints.positive": "id>0"}, COLUMNS),
        ("generated column name", plain(4), {}, column(**{"delta.generationExpression": "id"})),
        ("invariant of column name", plain(2), {}, column(**{"delta.invariants": "{}"})),
        ("invariant of column name.name", plain(2), {}, inside(STRUCT)),
        (
            "invariant of column name.name",
            plain(2),
            {},
            inside({"type": "array", "elementType": STRUCT, "containsNull": True}),
        ),
        ("variant column name", listed(reader=["variantType"]), {}, inside("variant")),
        (
            "setTransactionRetentionDuration = interval 29 days",
            plain(2),
            {"delta.setTransactionRetentionDuration": "interval 29 days"},
            COLUMNS,
        ),
        (
            "setTransactionRetentionDuration = interval 1 year",
            plain(2),
            {"delta.setTransactionRetentionDuration": "interval 1 year"},
            COLUMNS,
        ),
    ],
)
def test_a_table_with_other_requirements_is_refused_by_the_features_name(
    tmp_path, demand, protocol, configuration, columns
):
    table = written(tmp_path / "t", protocol, configuration, columns)
    with pytest.raises(ConfigurationError, match="can't do") as caught:
        table.check_writable()
    assert demand in str(caught.value)
    assert "DROP" in str(caught.value)


def test_column_mapping_is_refused(tmp_path):
    DeltaTable.create(
        str(tmp_path / "t"),
        schema=made(tmp_path / "other").schema,
        configuration={"delta.columnMapping.mode": "name"},
    )
    with pytest.raises(ConfigurationError, match="column mapping by name"):
        TargetTable(str(tmp_path / "t")).check_writable()


def test_a_partition_column_that_readers_read_differently_is_refused(tmp_path):
    table = written(tmp_path / "t", plain(2), {}, BINARY, ["name"])
    with pytest.raises(ConfigurationError, match="partition column name"):
        table.check_writable()


@pytest.mark.parametrize(
    "protocol",
    [{"minReaderVersion": 9, "minWriterVersion": 9}, listed(reader=["ofTomorrow"])],
    ids=str,
)
def test_an_unreadable_table_is_a_clear_error(tmp_path, protocol):
    with pytest.raises(EosError, match="can't be read"):
        written(tmp_path / "t", protocol).check_writable()


def test_a_constraint_that_was_added_later_is_found(tmp_path):
    table = made(tmp_path / "t")
    table.check_writable()
    DeltaTable(table.folder.uri).alter.add_constraint({"positive": "id > 0"})
    with pytest.raises(ConfigurationError, match="check constraint positive"):
        table.check_writable()
