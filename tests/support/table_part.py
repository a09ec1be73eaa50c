"""The part of a second participant: a table that adds files at the commit and forgets nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from eos.protocol import Part, Payload, Stage

KIND = "table"


@dataclass(frozen=True)
class TablePart(Part):
    """Part of the table. ``version``: the attempt. ``files``: the number of staged files."""

    table: str = "orders"
    version: int | None = None
    files: int | None = None

    @property
    def kind(self) -> str:
        return KIND

    @property
    def can_expire(self) -> bool:
        return False

    @property
    def output(self) -> str:
        return self.table

    @property
    def label(self) -> str:
        return f"version {self.version} of table {self.table}"

    @property
    def identity(self) -> str:
        return self.table

    @property
    def begun_at(self) -> tuple[int, ...] | None:
        return None if self.version is None else (self.version,)

    @property
    def records(self) -> int | None:
        return self.files

    @property
    def bytes(self) -> int | None:
        return self.files

    @property
    def checksum(self) -> int | None:
        return None if self.files is None else 0

    def check(self, stage: Stage) -> None:
        if (self.version is None) != (stage is Stage.CLAIMED):
            raise ValueError("version")
        if (self.files is None) != (stage is not Stage.PREPARED):
            raise ValueError("files")

    def check_follows(self, previous: Part) -> None:
        assert isinstance(previous, TablePart)
        if self.version != previous.version or previous.files not in (None, self.files):
            raise ValueError("another attempt")

    def payload(self) -> Payload:
        return asdict(self)

    @classmethod
    def parse(cls, payload: Payload, columns: Mapping[str, Any]) -> Self:
        return cls(**payload)
