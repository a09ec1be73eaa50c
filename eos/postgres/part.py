"""The PostgreSQL participant's part of a record: the attempt, and its staged rows."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Final, Self

from eos.participant import Upsert, VersionedPart
from eos.protocol import Part, Payload, Stage, require, require_carried

KIND: Final = "postgres"
# In libpq's conninfo; a database may be called "password".
_PASSWORD: Final = re.compile(r"(^|\s)(ssl)?password\s*=")
_QUOTED: Final = re.compile(r"'(\\.|[^'\\])*'")


@dataclass(frozen=True, kw_only=True)
class PostgresPart(VersionedPart):
    """One attempt to write to a table.

    Attributes:
        place: where the database is, as libpq's conninfo; never with a user or a password.
        schema, table: the target.
        staging_schema: of the sink's own tables.
        log: id of the commit log.
        names: the columns that are written; those after it: from PREPARED on.
        upsert: how rows change others by key; None: they are appended.
        runs: the task runs whose rows count.
        rows, size_bytes: of these.
    """

    kind: ClassVar[str] = KIND
    # Staging tables stay until they are dropped.
    can_expire: ClassVar[bool] = False

    place: str
    schema: str
    table: str
    staging_schema: str
    log: str
    names: tuple[str, ...] | None = None
    upsert: Upsert | None = None
    runs: tuple[int, ...] | None = None
    rows: int | None = None
    size_bytes: int | None = None

    @property
    def target(self) -> str:
        """Schema and table."""
        return f"{self.schema}.{self.table}"

    @property
    def output(self) -> str:
        """The table, and the database's place."""
        return f"{self.target} ({self.place})"

    @property
    def label(self) -> str:
        """``version 7 of table public.orders``."""
        return f"version {self.version} of table {self.target}"

    @property
    def series(self) -> str:
        """The log on this target, at all places where the database has been."""
        return f"{self.log} {self.target}"

    @property
    def records(self) -> int | None:
        """Rows that the attempt has staged."""
        return self.rows

    @property
    def bytes(self) -> int | None:
        """Their bytes, as they were sent to the server."""
        return self.size_bytes

    @property
    def staging_prefix(self) -> str:
        """The beginning of the names of all staging tables of this log and target."""
        # Of the log and the target: a sink never touches the tables of another.
        return f"eos_{hashlib.sha256(self.series.encode()).hexdigest()[:12]}_"

    @property
    def staging(self) -> str:
        """The attempt's staging table; at most 63 characters, PostgreSQL's limit."""
        return self.staging_prefix + uuid.UUID(self.attempt_id).hex

    def check(self, stage: Stage) -> None:
        """See ``Part``."""
        for name in ("schema", "table", "staging_schema", "log", "place"):
            text = getattr(self, name)
            require(bool(text) and text.isprintable(), f"{name} is missing")
        require(not _PASSWORD.search(_QUOTED.sub("''", self.place)), "place has a password")
        self.check_attempt(stage)
        for counted in (self.names, self.runs, self.rows, self.size_bytes):
            require((counted is not None) is (stage is Stage.PREPARED), "rows are counted whole")
        require((self.rows or 0) >= 0 and (self.size_bytes or 0) >= 0, "a negative figure")
        if self.upsert is not None:
            require(set(self.upsert.on) <= set(self.names or ()), "a key is not written")

    def check_follows(self, previous: Part) -> None:
        """See ``Part``."""
        assert isinstance(previous, PostgresPart)
        carried = ["place", "schema", "table", "staging_schema", "log", "version", "attempt_id"]
        if previous.rows is not None:
            carried += ["names", "upsert", "runs", "rows", "size_bytes"]
        require_carried(self, previous, carried)

    def payload(self) -> Payload:
        """See ``Part``."""
        upsert = None if self.upsert is None else self.upsert.payload()
        return {**asdict(self), "upsert": upsert}

    @classmethod
    def parse(cls, payload: Payload, columns: Mapping[str, Any]) -> Self:
        """See ``Part``."""
        found = dict(payload)
        for name in ("names", "runs"):
            found[name] = None if found[name] is None else tuple(found[name])
        return cls(**{**found, "upsert": Upsert.parse(found["upsert"])})
