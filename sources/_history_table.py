"""A Delta table with the history of topics; a query reads one version of it before the topics."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, NamedTuple, Self
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaProtocolError

from eos.delta.folder import Folder
from eos.delta.opening import open_version_if_exists
from eos.errors import ConfigurationError, DataLost, IncompatibleSchema
from eos.ids import MessageId, TopicName
from eos.sinks import spark_compat
from eos.sources._archive_places import Identifiers
from eos.sources._history_files import (
    ELSEWHERE,
    ID_COLUMN,
    TOPIC_COLUMN,
    HistoryFile,
    HistoryRange,
    batches_of,
    drops_malformed,
    last_messages,
)
from eos.sources._offsets import Ends, HistorySpan
from eos.sources._row_format import RowFormat
from eos.sources._source_options import SourceOptions
from eos.sources._spark_columns import OWN_COLUMNS

_TASK_BYTES: Final = 128 * 1024 * 1024  # Bytes of files in a task; Spark's default.


class SizedFile(NamedTuple):
    """A file of the table. ``rows``: None if the table's log does not have it."""

    file: HistoryFile
    size_bytes: int
    rows: int | None


class HistoryTable:
    """One version of a Delta table; made by ``for_new_query`` or ``for_running_query``."""

    def __init__(self, options: SourceOptions, folder: Folder, table: DeltaTable) -> None:
        self._options = options
        self._folder = folder
        self._table = table

    @classmethod
    def for_new_query(cls, options: SourceOptions) -> Self:
        """Open the version that the options name, else the newest.

        Raises:
            ConfigurationError: the table or the version does not exist.
            Retriable: it can't be read.
        """
        assert options.history is not None
        folder, version = Folder(options.history), options.history_version
        table = open_version_if_exists(folder, version)
        if table is None:
            which = "" if version is None else f" with version {version}"
            raise ConfigurationError(
                f"history: {folder.uri} has no Delta table{which}.",
                hint="Set the option to the folder or URL of the table with the topics' history.",
            )
        return cls(options, folder, table)

    @classmethod
    def for_running_query(cls, options: SourceOptions, span: HistorySpan) -> Self:
        """Open the version that a query began with.

        Raises:
            DataLost: the version no longer exists.
            Retriable: it can't be read.
        """
        folder = Folder(span.table)
        # The version that the epoch was planned with: a rerun must read the same.
        table = open_version_if_exists(folder, span.version)
        found = None if table is None else cls(options, folder, table)
        # A recreated table must not continue where the old one was.
        if found is None or not found._is_version_of(span):
            raise DataLost(
                f"Version {span.version} of the history at {folder.uri} no longer exists. The "
                f"query has not read {span.count - span.last} of its {span.count} files yet."
            )
        return found

    def _is_version_of(self, span: HistorySpan) -> bool:
        # After a table was replaced by an older copy of its files, other versions may have the same
        # numbers.
        return (
            self._table.metadata().id == span.table_id
            and len(self.files) == span.count
            and span.digest in ("", self._digest)
        )

    @cached_property
    def _digest(self) -> str:
        names = "\n".join(one.file.path for one in self.files)
        return hashlib.sha256(names.encode()).hexdigest()[:16]

    @property
    def uri(self) -> str:
        """The table's absolute folder or URL."""
        return self._folder.uri

    @property
    def version(self) -> int:
        """The opened version."""
        return int(self._table.version())

    def span(self) -> HistorySpan:
        """Return the span before its first file."""
        return HistorySpan(
            self._folder.uri, self._table.metadata().id, self._table.version(), 0, 0,
            count=len(self.files), digest=self._digest,
        )  # fmt: skip

    @cached_property
    def files(self) -> tuple[SizedFile, ...]:
        """All its files, the oldest first, always in the same order."""
        actions = pa.table(self._table.get_add_actions(flatten=False))
        names = ("path", "size_bytes", "modification_time", "num_records")
        columns = [actions.column(name).to_pylist() for name in names]
        # Delta's log has paths as in URLs.
        known = {unquote(path): rest for path, *rest in zip(*columns, strict=True)}
        found = [
            (known[one.path], HistoryFile(one.path, one.partition_expression))
            for one in self._dataset.get_fragments()
        ]
        for _, file in found:
            if ELSEWHERE.match(file.path):
                raise ConfigurationError(
                    f"history: {self._folder.uri} is a shallow clone, with files in other folders.",
                    hint="Use the table that it was cloned from, or make a deep clone.",
                )
        # By the time of writing, and by the path: the same in each run, which reads files by
        # number.
        found.sort(key=lambda pair: (pair[0][1], pair[1].path))
        return tuple(SizedFile(file, size, rows) for (size, _, rows), file in found)

    @cached_property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return self._dataset.schema

    @cached_property
    def _dataset(self) -> Any:
        mapping = self._table.metadata().configuration.get("delta.columnMapping.mode", "none")
        try:
            if mapping != "none":
                raise DeltaProtocolError(f"column mapping by {mapping}")
            return self._table.to_pyarrow_dataset()
        except DeltaProtocolError as error:
            raise ConfigurationError(
                f"history: {self._folder.uri} can't be read by this source: {error}.",
                hint="Rewrite the table without deletion vectors (REORG TABLE ... APPLY (PURGE), "
                "and drop the feature) and without column mapping.",
            ) from None

    def check_columns(self, form: RowFormat) -> None:
        """Check that it has the columns of a query.

        Raises:
            ConfigurationError: it lacks one that every message has.
            IncompatibleSchema: one has another type.
        """
        drops_malformed(form.values.mode, self.schema.names)
        have = {field.name: field.dataType for field in spark_compat.spark_schema(self.schema)}
        wanted = {field.name: field.dataType for field in spark_compat.spark_schema(form.schema)}
        wanted |= {name: OWN_COLUMNS[name] for name in (ID_COLUMN, TOPIC_COLUMN)}
        values = list(form.fields)
        needed = [name for name in form.names if name not in values]
        needed += [ID_COLUMN, *([] if self._only else [TOPIC_COLUMN])]
        # An old table may lack columns that were added later, but not all of them.
        needed += [] if any(name in have for name in values) else values[:1]
        in_lower = {name.lower() for name in have}
        needed += [name for name in values if name not in have and name.lower() in in_lower]
        for name in needed:
            if name not in have:
                raise ConfigurationError(
                    f"history: {self._folder.uri} has no column {name}; it has {', '.join(have)}.",
                    hint='Archive topics with option("metadata", True), or leave the column out: '
                    '.schema("value binary, ...").',
                )
        for name, kind in wanted.items():
            if name in have and have[name].simpleString() != kind.simpleString():
                is_value = name in values
                raise IncompatibleSchema(
                    f"history: column {name} of {self._folder.uri} is "
                    f"{have[name].simpleString()}, but that of the topic {kind.simpleString()}.",
                    hint="Cast the table's column"
                    + (", or read the topic with your own schema." if is_value else "."),
                )

    @property
    def _only(self) -> TopicName | None:
        """The topic of all rows, if the table has no column for it."""
        names = self._options.topic_names
        return names[0] if len(names) == 1 and TOPIC_COLUMN not in self.schema.names else None

    def archived_places(self, partitions: Iterable[str]) -> Ends | None:
        """Return up to where it has those of the partitions that it has; None: only its rows tell
        it, because no archive wrote it, or it may have topics that were deleted since.
        """
        if self._options.pattern is not None:
            return None
        found = Identifiers(self._folder).archived(self._table, partitions)
        if found is None:
            return None
        return {name: place for name, place in found.places.items() if place is not None}

    def last_messages(self) -> dict[str, MessageId]:
        """Return the last message of each partition that the query reads, from the column of all
        ids; InputError if a row has none.
        """
        columns = [ID_COLUMN] if self._only else [ID_COLUMN, TOPIC_COLUMN]
        files = [one.file for one in self.files]
        with self._folder.failures("reading it"):
            batches = batches_of(self._folder, files, self.schema, columns)
            return last_messages(batches, self._options.reads, self._only)

    def next_span(self, span: HistorySpan) -> HistorySpan:
        """Return the files after ``span``: as many as an epoch may have, at least one."""
        first, options = span.last, self._options
        last = len(self.files)
        for limit, size_of in (
            (options.max_bytes_per_trigger, lambda one: one.size_bytes),
            (options.max_rows_per_trigger, lambda one: one.rows or 0),
        ):
            if limit is not None:
                last = min(last, first + _fitting(map(size_of, self.files[first:]), limit))
        return span.followed_by(last)

    def ranges(self, span: HistorySpan) -> list[HistoryRange]:
        """Divide the files of ``span`` among tasks, in their order."""
        files = self.files[span.first : span.last]
        total = sum(one.size_bytes for one in files)
        share = min(_TASK_BYTES, total / (self._options.min_partitions or 1))
        return [
            HistoryRange(
                self._folder.uri, [one.file for one in some], self.schema, frozenset(span.topics)
            )
            for some in _grouped(files, share)
        ]


def _fitting(sizes: Iterator[int], limit: int) -> int:
    """Return how many of the first sizes add up to at most ``limit``; at least one."""
    return max(1, sum(total <= limit for total in accumulate(sizes)))


def _grouped(files: Sequence[SizedFile], share: float) -> Iterator[list[SizedFile]]:
    group: list[SizedFile] = []
    size_bytes = 0
    for one in files:
        if group and size_bytes + one.size_bytes > share:
            yield group
            group, size_bytes = [], 0
        group.append(one)
        size_bytes += one.size_bytes
    if group:
        yield group
