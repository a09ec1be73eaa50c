"""The Iceberg participant's part of a record: the attempt's version, and its staged manifest."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Final, Self

from eos.iceberg.table_address import MAIN, TableAddress, may_be_recorded
from eos.participant import VersionedPart
from eos.protocol import Part, Payload, Stage, require, require_carried

KIND: Final = "iceberg"
_MAX_SNAPSHOT_ID: Final = 2**63 - 1
_BEGUN: Final = ("table", "catalog_name", "branch", "app_id", "version", "table_uuid", "attempt_id")
_PREPARED: Final = (
    "snapshot_id", "manifest", "manifest_bytes", "spec_id", "files", "records", "bytes",
)  # fmt: skip


def manifest_name(attempt_id: str) -> str:
    """Return the name of an attempt's manifest."""
    return f"eos-{attempt_id}-m0.avro"


@dataclass(frozen=True, kw_only=True)
class IcebergPart(VersionedPart):
    """One append to an Iceberg table.

    The data files are listed in the staged manifest, so that the log stays small: an entry has
    about 1 kB of bounds and counts.

    Attributes:
        table: ``namespace.name``.
        catalog: the catalog's properties without credentials.
        app_id: this log in the table's properties: the sink and the log's own id.
        table_uuid: Iceberg's id of the table for which the files were staged.
        snapshot_id: id of the snapshot that the commit adds; from PREPARED on, like all below.
        manifest: path of the staged manifest; None without rows.
        manifest_bytes: its size.
        spec_id: the partition spec of its data files.
        files: number of data files in it.
    """

    kind: ClassVar[str] = KIND
    # Staged files stay until they are deleted, by remove_orphan_files after 3 days by default.
    can_expire: ClassVar[bool] = False

    table: str
    catalog_name: str
    branch: str = MAIN
    catalog: Mapping[str, str] = field(default_factory=dict)
    app_id: str
    table_uuid: str | None = None
    snapshot_id: int | None = None
    manifest: str | None = None
    manifest_bytes: int | None = None
    spec_id: int | None = None
    files: int | None = None
    records: int | None = None
    bytes: int | None = None

    @property
    def output(self) -> str:
        """``catalog.namespace.name``; versions are counted for all branches together."""
        return self.address().identity

    @property
    def series(self) -> str:
        """The log's app id."""
        return self.app_id

    def address(self, secrets: Mapping[str, str] | None = None) -> TableAddress:
        """Return the table's address, with properties that are not in the log."""
        properties = {**self.catalog, **(secrets or {})}
        return TableAddress(self.table, self.catalog_name, self.branch, properties)

    def check(self, stage: Stage) -> None:
        """See ``Part``."""
        for name in ("table", "catalog_name", "branch", "app_id"):
            value: object = getattr(self, name)
            is_name = isinstance(value, str) and bool(value) and value.isprintable()
            require(is_name, f"{name} is missing")
        if not all(may_be_recorded(name, value) for name, value in self.catalog.items()):
            raise ValueError("catalog has a property that no log may hold; leave credentials out")
        self.check_attempt(stage, self.table_uuid)
        if self.table_uuid is not None and str(uuid.UUID(self.table_uuid)) != self.table_uuid:
            raise ValueError("table_uuid is not a uuid in canonical form")
        self._check_prepared(stage)

    def _check_prepared(self, stage: Stage) -> None:
        for name in ("snapshot_id", "files", "records", "bytes"):
            number: object = getattr(self, name)
            is_there = number is not None
            require(is_there is (stage is Stage.PREPARED), f"{name} goes with a prepared attempt")
            is_whole = isinstance(number, int) and not isinstance(number, bool)
            require(not is_there or (is_whole and 0 <= int(str(number)) <= _MAX_SNAPSHOT_ID), name)
        staged = (self.manifest is not None, bool(self.manifest_bytes), self.spec_id is not None)
        for is_there in staged:
            require(is_there is bool(self.files), "a manifest goes with its files")
        name = str(self.manifest).rsplit("/", 1)[-1]
        if self.manifest is not None and name != manifest_name(str(self.attempt_id)):
            raise ValueError(f"{self.manifest} is another attempt's")

    def check_follows(self, previous: Part) -> None:
        """See ``Part``."""
        assert isinstance(previous, IcebergPart)
        require_carried(self, previous, _BEGUN if previous.files is None else _BEGUN + _PREPARED)

    def payload(self) -> Payload:
        """See ``Part``."""
        return asdict(self)

    @classmethod
    def parse(cls, payload: Payload, columns: Mapping[str, Any]) -> Self:
        """See ``Part``."""
        found = dict(payload)
        found["catalog"] = {str(name): str(value) for name, value in found["catalog"].items()}
        return cls(**found)
