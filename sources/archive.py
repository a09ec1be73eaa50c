"""The past of topics as a Delta table, exactly once, without Spark.

Each commit has rows, and up to where it has each partition: a strict prefix, which ends before the
first open transaction. An archive that is killed continues from its last commit.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc

from eos import failpoints
from eos.delta.column_rules import relaxed
from eos.delta.opening import TXN_RETENTION, open_if_exists
from eos.delta.staging import StagingTarget, stage
from eos.delta.target_table import TargetTable
from eos.errors import (
    ConfigurationError,
    Fenced,
    IncompatibleSchema,
    Indeterminate,
    Retriable,
    TopicNotFound,
)
from eos.ids import EntryPlace, TopicName
from eos.sources._archive_check import (
    Problem,
    changed_by_others,
    missing_files,
    noted,
    unkept,
    waiting,
)
from eos.sources._archive_places import (
    COMMITS,
    Archived,
    Identifiers,
    after,
    identifiers,
    of_entry,
    place_of,
)
from eos.sources._epoch_planner import EpochPlanner
from eos.sources._offsets import Offset
from eos.sources._range_reader import EntryRange, check_not_deleted, read_range
from eos.sources._row_format import (
    METADATA,
    PLACE,
    RowFormat,
    check_names,
    check_storable,
    value_columns,
)
from eos.sources._source_options import SourceOptions
from eos.steps import ArchiveStep
from eos.transport.auth import Auth

logger = logging.getLogger(__name__)

_SUBSCRIPTION: Final = "eos-archive-"  # Prefix of the names; the rest is the table's id.


@dataclass(frozen=True, kw_only=True)
class ArchivedPart:
    """What one commit has added. ``newest``: the latest publish time of a row, or None."""

    rows: int
    bytes: int
    newest: datetime | None


class PlannedPart(NamedTuple):
    """The part of one partition that would be added, up to ``end``.

    ``entries``, ``stored_bytes``: of the topic, about so many; None without the admin API.
    """

    end: EntryPlace | None
    entries: int | None = None
    stored_bytes: int | None = None


@dataclass
class _Chunk:
    """The rows of one commit, counted while they are staged."""

    places: dict[str, EntryPlace] = field(default_factory=dict)
    rows: int = 0
    newest: datetime | None = None

    def count(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.rows += batch.num_rows
        latest = pc.max(batch.column("__publishTime")).as_py()
        self.newest = max((one for one in (latest, self.newest) if one is not None), default=None)
        return batch


class Archive:
    """Copies topics into one table; for one thread.

    Columns: those of the values by the topics' schema, ``METADATA``, and ``__ledger`` and
    ``__entry``. Fields that the schema gets later are added.

    Args:
        options: of the source; its ``ending_offsets`` or ``ending_time`` end the archive, too.
        table: an absolute path, ``file:///path`` or ``s3://bucket/prefix``; created if missing.
        auth: replaces the options of authentication.
        part_bytes: about how many bytes of rows in memory one commit adds.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        table: str,
        *,
        auth: Auth | None = None,
        part_bytes: int = 2**29,
    ) -> None:
        self.table: Final = TargetTable(table)
        self._known: Final = Identifiers(self.table.folder)
        self._options = SourceOptions.parse(options, auth)
        self._part_bytes = part_bytes
        self._planner = EpochPlanner(self._options, None, exclusive=True)
        self._attempt_id = str(uuid.uuid4())

    def limit(self) -> None:
        """Archive only the messages that exist now.

        Raises:
            TopicNotFound: no topic matches the pattern.
            EosError: a topic can't be queried.
        """
        if not self._planner.partitions():
            raise TopicNotFound(f"No topic matches {self._options.topics_pattern}.")
        self._planner.set_target()

    def plan(self) -> dict[str, PlannedPart]:
        """Return what would be archived of each partition now. Nothing is changed.

        Raises:
            ConfigurationError, IncompatibleSchema, InputError: the table can't have the rows.
            DataLost: entries were deleted before they were archived.
            EosError: a topic or the table can't be read.
        """
        if self.table.exists():
            self._check_table()
        self._check_columns()
        following = self._planner.next_offset(Offset.starting(self.places(), None))
        if self._options.admin_url is None:
            return {name: PlannedPart(end) for name, end in following.ends.items()}
        plan = {name: PlannedPart(end, 0, 0) for name, end in following.ends.items()}
        for name, one in self._planner.contents(following).items():
            plan[name] = PlannedPart(following.ends[name], one.entries, round(one.bytes))
        return plan

    def places(self) -> dict[str, EntryPlace | None]:
        """Return up to where the table has each partition; None: from its first entry on.

        Raises:
            ConfigurationError: rows are in the table that no archive has written.
            EosError: a topic or the table can't be read.
        """
        return self._archived().places

    def _archived(self) -> Archived:
        names = self._planner.partitions()
        table = open_if_exists(self.table.folder)
        found = None if table is None else self._known.archived(table, names)
        if found is not None:
            return found
        # A table that lost its places would get all rows again.
        if table is not None and table.file_uris():
            raise ConfigurationError(
                f"Delta table {self.table.folder.uri} has rows that no archive has written.",
                hint="Archive into another folder; what wrote the rows can go on here.",
            )
        return Archived(0, dict.fromkeys(names))

    def blocked(self) -> dict[str, EntryPlace]:
        """Return where an open transaction begins in each partition that has one.

        Raises:
            EosError: a topic can't be queried.
        """
        return self._planner.undecided()

    def check(self) -> list[Problem]:
        """Return what keeps the archive from being made, or from being complete.

        Raises:
            Retriable: a server or the storage does not answer.
        """
        found: list[Problem] = []
        places: Mapping[str, EntryPlace | None] = {}
        with noted(found):
            if self.table.exists():
                self._check_table()
            places = self.places()
            self._check_columns()
            self._planner.next_offset(Offset.starting(places, None))
        if self.table.exists():
            found += missing_files(self.table)
            with noted(found):
                found += changed_by_others(self.table)
        else:
            what = f"There is no Delta table at {self.table.folder.uri} yet."
            hint = "Archiving makes one. If there should be one, check the name."
            found.append(Problem(what, hint, is_urgent=False))
        found += waiting(self.blocked())
        if self._options.admin_url is None:
            what = "The subscription and policies were not looked at."
            return [*found, Problem(what, "Name the cluster's --admin-url.", is_urgent=False)]
        if self.table.exists():
            subscription = self._subscription(self.table.table_id)
            found += unkept(self._options.admin(), places, subscription)
        hint = "The namespace's operators can change that; until then archive with --follow."
        return found + [Problem(f"{one}.", hint) for one in self._planner.expiry_reasons()]

    def _check_columns(self) -> tuple[RowFormat, pa.Schema]:
        """Return how messages are read now, and the columns that the table then has."""
        form, uri = self._form(), self.table.folder.uri
        check_storable(form.schema)
        if self.table.exists():
            # One forgotten option would be enough for a table of two kinds.
            hint = "Archive with the schema of before, or into another table."
            value_columns(self.table.schema.names, form.values.schema.names, uri, hint)
        if lost := sorted(self._planner.lost_fields()):
            raise IncompatibleSchema(
                f"The topic's newest schema lacks {', '.join(lost)}: messages of earlier versions "
                f"would lose it in Delta table {uri}.",
                hint='Set schema="avro" or "json" with a schemaDefinition of all fields, those '
                'with defaults; or archive into another table with schema="bytes".',
            )
        if not self.table.exists():
            return form, relaxed(form.schema)
        return form, self.table.check_schema(relaxed(form.schema), merge=True)

    def _warn_of_new_columns(self, schema: pa.Schema, *, is_first: bool) -> None:
        new = [name for name in schema.names if name not in self.table.schema.names]
        if new and not is_first:
            # Readers of the topic get the new schema's defaults in all messages.
            logger.warning(
                "%s gets %s. Rows that it has keep null there, also if the schema has a default: "
                "to fill one in, UPDATE the table where it is null.",
                self.table.folder.uri,
                ", ".join(new),
            )

    def _check_table(self) -> None:
        if self.table.forgets_transactions:
            raise ConfigurationError(
                f"Delta table {self.table.folder.uri} forgets up to where it has each partition.",
                hint=f"Unset its property {TXN_RETENTION}.",
            )
        self.table.check_writable()

    def _subscription(self, table_id: str) -> str:
        return self._options.rules.subscription(f"{_SUBSCRIPTION}{table_id}")

    def add(self) -> ArchivedPart | None:
        """Commit the next rows to the table; None: there is nothing to add.

        Raises:
            ConfigurationError: no archive can use the table.
            DataLost: entries were deleted before they were archived.
            Fenced: another archive writes to the table.
            InputError, IncompatibleSchema: a value can't be read, or does not fit the table.
            CommitUnconfirmed: the next call shows whether the rows were added.
            EosError: a topic or the table can't be used.
        """
        is_new = not self.table.exists()
        if is_new:
            self.table.create(self._check_columns()[1])
        table_id = self.table.table_id
        self._check_table()
        commits, places = self._archived()
        if not is_new and not any(places.values()):
            self._check_columns()  # a topic that does not fit gets no subscription
        subscription = self._subscription(table_id)
        before = Offset.starting(places, subscription)
        following = self._planner.next_offset(before)
        if following is before:
            return None
        # Read after the end is known: no message before it has a schema that is not registered yet.
        form, schema = self._check_columns()
        self._warn_of_new_columns(schema, is_first=not commits)
        work = self._planner.ranges(following)
        chunk = _Chunk()
        files = stage(
            self._rows(work, form, chunk),
            StagingTarget(self.table.folder.uri, schema, self.table.partition_columns),
            attempt_id=self._attempt_id,
            spark_partition=0,
        )
        if chunk.places.items() <= places.items():
            return None  # no entry is before the end
        failpoints.reached(ArchiveStep.STAGE)
        self.table.commit(
            files,
            COMMITS,
            commits + 1,
            table_id=table_id,
            schema=schema,
            merge=True,
            more=lambda table: self._known.next(table, places, chunk.places),
        )
        failpoints.reached(ArchiveStep.COMMIT)
        self._check_own(identifiers(chunk.places))
        self.table.checkpoint_when_due()
        self._planner.commit(Offset.starting(chunk.places, subscription))
        failpoints.reached(ArchiveStep.MOVE)
        return ArchivedPart(
            rows=chunk.rows, bytes=sum(one.size_bytes for one in files), newest=chunk.newest
        )

    def trim(self) -> bool:
        """Let the broker delete what is archived, as far as no other subscription and no retention
        keeps it. False if it can't in some partition; a warning is logged.

        Raises:
            ConfigurationError: the options have no ``admin_url``.
            Unauthorized: the role may not do this.
        """
        if self._options.admin_url is None:
            raise ConfigurationError("To trim topics, the admin API is needed: set adminUrl.")
        admin, is_trimmed = self._options.admin(), True
        for name in self._planner.partitions():
            try:
                admin.trim(TopicName.parse(name))
            except (Retriable, Indeterminate) as error:
                is_trimmed = False
                logger.warning("%s could not be trimmed: %s", name, error)
        return is_trimmed

    def _form(self) -> RowFormat:
        values = self._planner.values()
        own = (*METADATA, *PLACE)
        check_names(values.schema.names, own)
        return RowFormat(values, (*values.schema.names, *own))

    def _rows(
        self, work: Sequence[EntryRange], form: RowFormat, chunk: _Chunk
    ) -> Iterator[pa.RecordBatch]:
        """Yield rows up to the chunk's size, and note up to where it has each partition."""
        left = self._part_bytes
        for one in work:
            last: EntryPlace | None = None  # the entry of the last row
            for batch in self._sliced(read_range(self._options, form, one)):
                # An entry belongs to one commit: a place is between two entries.
                rows = batch if left > 0 or last is None else of_entry(batch, last)
                yield chunk.count(rows)
                left -= rows.nbytes
                if rows.num_rows < batch.num_rows:
                    check_not_deleted(self._options, one)
                    assert last is not None
                    chunk.places[one.topic] = after(last)
                    return
                last = place_of(batch, batch.num_rows - 1)
            end = one.span.end
            assert end is not None
            if end[1] == 0:  # a loss of the entry there could not be seen, see LossGuard
                end = one.span.start if last is None else after(last)
            if end is not None:
                chunk.places[one.topic] = end
            if left <= 0:
                return

    def _sliced(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            share = self._part_bytes / max(1, batch.nbytes)
            most = max(1, min(batch.num_rows, int(batch.num_rows * share)))
            for start in range(0, batch.num_rows, most):
                yield batch.slice(start, most)

    def _check_own(self, ids: Mapping[str, int]) -> None:
        # A commit does nothing if its number was used before.
        table = open_if_exists(self.table.folder)
        if table is None or self._known.of(table, ids) != ids:
            raise Fenced(
                f"Another archive writes to {self.table.folder.uri} at the same time.",
                hint="Nothing is lost or doubled. Stop one of them.",
            )

    def close(self) -> None:
        """Close all connections. The subscription stays."""
        self._planner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
