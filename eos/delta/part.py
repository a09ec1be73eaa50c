"""The Delta participant's part of a record: the attempt's version, and its staged files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

from eos.delta.files import StagedFile
from eos.participant import Upsert, VersionedPart
from eos.protocol import Part, Payload, Stage, require, require_carried

KIND: Final = "delta"


@dataclass(frozen=True, kw_only=True)
class DeltaPart(VersionedPart):
    """One append to a Delta table.

    Attributes:
        table: absolute path or URL of the table; never with credentials.
        app_id: Delta's transaction identifier of this log: the sink and the log's own id.
        table_id: Delta's id of the table for which the files were staged.
        schema: the table's columns after the commit, as Delta's JSON; from PREPARED on.
        merge: the commit adds columns that the table lacks.
        upsert: how rows change others by key; None: they are appended.
        files: the staged files; None before they are counted.
    """

    kind: ClassVar[str] = KIND
    # Staged files stay until they are deleted, by a vacuum after 7 days at the earliest.
    can_expire: ClassVar[bool] = False

    table: str
    app_id: str
    table_id: str | None = None
    schema: str | None = None
    merge: bool = False
    upsert: Upsert | None = None
    files: tuple[StagedFile, ...] | None = None

    @property
    def output(self) -> str:
        """The table."""
        return self.table

    @property
    def series(self) -> str:
        """The log's identifier."""
        return self.app_id

    @property
    def records(self) -> int | None:
        """Rows, over all files."""
        return None if self.files is None else sum(file.records for file in self.files)

    @property
    def bytes(self) -> int | None:
        """Sizes of all files."""
        return None if self.files is None else sum(file.size_bytes for file in self.files)

    def check(self, stage: Stage) -> None:
        """See ``Part``."""
        require(bool(self.table) and self.table.isprintable(), "table is missing")
        # Of a URL; a local path may have these letters.
        if re.search(r"://([^/]*@|.*[?#])", self.table):
            raise ValueError("table holds a user, a query or a fragment; leave credentials out")
        require(bool(self.app_id), "app_id is missing")
        self.check_attempt(stage, self.table_id)
        for is_there in (self.schema is not None, self.files is not None):
            require(is_there is (stage is Stage.PREPARED), "files go with their schema")
        mine = f"eos-{self.attempt_id}-"
        for file in self.files or ():
            if not file.path.rsplit("/", 1)[-1].startswith(mine):
                raise ValueError(f"{file.path} is another attempt's")

    def check_follows(self, previous: Part) -> None:
        """See ``Part``."""
        assert isinstance(previous, DeltaPart)
        carried = ["table", "app_id", "version", "table_id", "attempt_id"]
        if previous.files is not None:
            carried += ["schema", "merge", "upsert", "files"]
        require_carried(self, previous, carried)

    def payload(self) -> Payload:
        """See ``Part``."""
        files = None if self.files is None else [json.loads(file.to_json()) for file in self.files]
        names = ("table", "app_id", "version", "table_id", "attempt_id", "schema", "merge")
        upsert = None if self.upsert is None else self.upsert.payload()
        return {**{name: getattr(self, name) for name in names}, "upsert": upsert, "files": files}

    @classmethod
    def parse(cls, payload: Payload, columns: Mapping[str, Any]) -> Self:
        """See ``Part``."""
        found = dict(payload)
        files = found.pop("files")
        staged = (
            None if files is None else tuple(StagedFile.from_json(json.dumps(one)) for one in files)
        )
        # Logs of earlier releases have no upserts.
        upsert = Upsert.parse(found.pop("upsert", None))
        return cls(**found, upsert=upsert, files=staged)
