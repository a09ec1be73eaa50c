"""An Iceberg table in a SQLite catalog, read by pyiceberg's own scan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from eos._kinds import IcebergKind
from eos.iceberg._iceberg_table import IcebergTable
from eos.iceberg.data_files import stage
from eos.iceberg.part import IcebergPart
from eos.iceberg.participant import IcebergParticipant
from eos.iceberg.table_address import TableAddress
from eos.participant import Access, Participant
from eos.protocol import Part

SCHEMA = pa.schema([("value", pa.string())])
NAME = "shop.orders"


def catalog_of(folder: Path) -> dict[str, str]:
    """The properties of a catalog in a folder."""
    return {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }


class IcebergOutput:
    """A table with one column."""

    kind = IcebergKind()
    access = Access()

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema = SCHEMA,
        branch: str = "main",
        catalog: dict[str, str] | None = None,
        name: str = NAME,
    ) -> None:
        self.schema = schema
        properties = catalog or catalog_of(folder)
        self.address = TableAddress(name, branch=branch, properties=properties)
        table = IcebergTable(self.address)
        if table.find() is None:
            table.create(schema)

    def participant(self) -> Participant:
        return IcebergParticipant("contract", self.address)

    def write(self, part: Part, rows: Sequence[str]) -> Sequence[Any]:
        assert isinstance(part, IcebergPart)
        target = IcebergTable(self.address).load().target(1024 * 1024, "zstd")
        batch = pa.record_batch([pa.array(rows, pa.string())], schema=SCHEMA)
        return stage([batch], target, attempt_id=str(part.attempt_id), spark_partition=0)

    def catalog(self) -> Catalog:
        return load_catalog("default", **self.address.properties)

    def table(self) -> Table:
        """As another application opens it."""
        return self.catalog().load_table(self.address.table)

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Under another name, as if the catalog were another one."""
        elsewhere = f"{self.address.table}_elsewhere"
        self.catalog().rename_table(self.address.table, elsewhere)
        yield
        self.catalog().rename_table(elsewhere, self.address.table)

    def read(self) -> list[str]:
        return self.table().scan().to_arrow()["value"].to_pylist()
