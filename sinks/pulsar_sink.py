"""``PulsarSink``: exactly-once, all-or-nothing writes of DataFrames to a Pulsar topic."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Unpack

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import DataFrame

from eos.errors import EosError, TopicNotFound
from eos.ids import TxnId
from eos.protocol import History, Part
from eos.pulsar.part import PulsarPart
from eos.pulsar.participant import PulsarParticipant
from eos.pulsar.roll_call import RollCall
from eos.schemas import Schema, changed_fields, coarser_fields
from eos.sinks._progress import warn_of_lost_topic, warn_of_new_topic, wrote_to
from eos.sinks._spark_jvm import tagged_jobs
from eos.sinks._task import SUMMARY_SCHEMA, WriteTask
from eos.sinks.dataframe_columns import Layout, layout_of, select_columns
from eos.sinks.options import PulsarSinkArguments, PulsarSinkOptions
from eos.sinks.output import Begun, ChangedColumns, Output, Write
from eos.sinks.sink import Sink
from eos.task_report import TaskSummary
from eos.wire.batch import Hashing, parse_compression

logger = logging.getLogger(__name__)


class PulsarSink(Sink):
    """Writes DataFrames to Pulsar exactly once: each epoch is one transaction, readable as a whole.

    An instance is the function for ``foreachBatch``; ``write`` is for batch jobs::

        sink = PulsarSink(sink_id="orders", service_url="pulsar://localhost:6650",
                          topic="persistent://public/default/orders", commit_log="/data/eos")
        query = orders.writeStream.foreachBatch(sink).start()
        sink.write(df, epoch="2026-11-20")

    Columns: ``value`` (binary or string, required; null is a tombstone if ``null_values`` is
    "tombstone"), ``key`` (string or binary), ``partition`` (a number from 0 on), ``event_time``
    (timestamp, or milliseconds since 1970), ``properties`` (map of string to string),
    ``ordering_key`` (binary or string), ``topic`` (string: without the option of that name, the
    topic of each row; all are in one transaction). The source's names (``__key``,
    ``__keyIsBinary`` and so on) are accepted for all of them. With a ``schema`` of records, other
    columns are the record's fields. A row goes to the partition that it names, else to that of its
    key, as with the Java client (``hashing``); other rows of a task go to one partition together.

    The options are those of ``PulsarSinkOptions``. The sink connects at the first epoch; then it is
    claimed, and another driver that has claimed it is fenced.

    Raises:
        ConfigurationError: an option is missing, unknown or wrong.
    """

    options: PulsarSinkOptions

    def __init__(self, **options: Unpack[PulsarSinkArguments]) -> None:
        super().__init__(PulsarSinkOptions.parse(options))

    def outputs(self) -> list[Output]:
        """Return the topic."""
        return [PulsarOutput(self.options)]

    def __repr__(self) -> str:
        return f"PulsarSink(sink_id={self.options.sink_id!r}, topic={self.options.topic!r})"


class PulsarOutput(Output):
    """Writes to a topic, or to the topics that rows name."""

    participant: PulsarParticipant

    def __init__(self, options: PulsarSinkOptions) -> None:
        self._options = options
        self._checked_type: pa.DataType | None = None
        self._has_rows = False
        self._keys = None if options.encryption is None else options.encryption.keys
        self.participant = PulsarParticipant(
            options.sink_id,
            options.service_url,
            options.auth,
            rules=options.rules,
            receipt_namespace=options.receipts_in,
            admin_url=options.admin_url,
            ttl_ms=int(options.transaction_ttl_s * 1000),
            timeout_s=options.request_timeout_s,
        )

    def traces(self) -> list[str]:
        """Return the receipt topics of other logs of this sink."""
        return [
            f"{topic} is the receipt topic of its log"
            for topic in self.participant.other_receipt_topics()
        ]

    def is_written_by(self, part: Part) -> bool:
        """Whether ``part`` has rows of the same topic, or of any if rows name their topics."""
        if not isinstance(part, PulsarPart):
            return False
        named = self._options.topic is not None
        return str(self._options.topic_name.base) in part.topics if named else bool(part.topics)

    def on_open(self, history: History, df: DataFrame) -> None:  # noqa: ARG002
        """See ``remember``."""
        self.remember(history)

    def remember(self, history: History) -> None:
        """Warn if the topic has changed; remember partitions that an earlier run may pin."""
        if self._options.topic is None:
            return
        warn_of_new_topic(history, self._options.topic_name)
        self._has_rows = wrote_to(history, self._options.topic_name)
        with contextlib.suppress(EosError):
            self.participant.set_topics(self._partitions())

    def check(self, df: DataFrame) -> None:
        """See ``Output``; also compare the columns with the topic's schema."""
        options = self._options
        if self._keys is not None:
            self._keys.public_keys()  # raises now, before there is a transaction
        kind = layout_of(
            df.schema,
            names_topics=options.topic is None,
            schema=options.schema_of_values,
            metadata=options.metadata,
        ).value_type
        if kind is None or options.topic is None or kind == self._checked_type:
            return
        may_change = options.on_changed_columns == "continue"
        assert options.schema_of_values is not None
        with contextlib.suppress(*([EosError] if may_change else [])):
            changed = ChangedColumns(*self._changed(options.schema_of_values, kind))
            changed.report(f"topic {options.topic}", options)
        self._checked_type = kind

    def _changed(self, schema: Schema, kind: pa.DataType) -> tuple[list[str], list[str]]:
        """Return the fields that the topic lacks, and those that the rows lack."""
        try:
            registered = self.participant.client.schema(str(self._options.topic_name))
        except TopicNotFound:
            registered = None
        if registered is None:
            return [], []
        wanted = schema.writer(kind).info
        if coarser := coarser_fields(registered, wanted):
            text = "sink %s: topic %s has milliseconds: microseconds of %s are cut off"
            logger.warning(text, self._options.sink_id, self._options.topic, ", ".join(coarser))
        return changed_fields(registered, wanted)

    def plan(self, df: DataFrame, context: SparkContext, begun: Begun) -> Write:
        """See ``Output``."""
        options = self._options
        columns = select_columns(
            df,
            names_topics=options.topic is None,
            schema=options.schema_of_values,
            metadata=options.metadata,
        )
        topics = self.topics()
        self.participant.set_topics(topics)
        task = self.task(
            begun(),
            topics,
            columns.layout,
            after=self.participant.committed,
            reuse=self.participant.reuses_handles,
        )
        writing = columns.rows.mapInArrow(task, SUMMARY_SCHEMA)

        def write() -> Sequence[TaskSummary]:
            with tagged_jobs(context):
                summaries = [TaskSummary.from_json(row.summary) for row in writing.collect()]
            if not topics:
                self.participant.set_topics({name for one in summaries for name in one.registered})
            return summaries

        return write

    def task(
        self,
        part: Part,
        topics: tuple[str, ...],
        layout: Layout,
        *,
        after: tuple[TxnId, ...] = (),
        reuse: bool = False,
    ) -> WriteTask:
        """Return the task that writes in the attempt of ``part`` to the partitions ``topics``.

        ``after`` and ``reuse`` (see ``WriteTask``) are not for ``format("pulsar")``, whose tasks
        don't know which transactions are committed.
        """
        assert isinstance(part, PulsarPart)
        assert part.txn is not None
        options = self._options
        return WriteTask(
            client=options.client,
            txn=part.txn,
            call=RollCall.of(part),
            after=after,
            reuse=reuse,
            topics=topics,
            creation=options.creation,
            spread=bool({"key", "message_key", "partition", "topic"} & layout.kinds.keys()),
            max_batch_bytes=options.max_batch_bytes,
            compression=parse_compression(options.compression),
            hashing=Hashing(options.hashing),
            by_key=options.batching == "by_key",
            tombstones=options.null_values == "tombstone",
            schema=options.schema_of_values,
            value_type=layout.value_type,
            own_columns=layout.own,
            public_keys=None if self._keys is None else self._keys.public_keys(),
        )

    def topics(self) -> tuple[str, ...]:
        """Return the exact names of the topic's partitions; empty if rows name their topics.

        Raises:
            EosError: the topic does not exist, or can't be looked up or created.
        """
        if self._options.topic is None:
            return ()
        creation = self._options.creation
        try:
            return self._partitions()
        except TopicNotFound as error:
            if creation is None:
                error.hint = "Create the topic, or set create_topics=True."
                raise
        if self._has_rows:
            warn_of_lost_topic(self._options.sink_id, self._options.topic_name)
            self._has_rows = False
        client, options = self.participant.client, self._options.client
        creation.create(self._options.topic_name, client, options)
        if not creation.partitions:
            # Not looked up: the lookup creates a partitioned topic if the namespace is set so.
            return (str(self._options.topic_name),)
        return self._partitions()

    def _partitions(self) -> tuple[str, ...]:
        name = self._options.topic_name
        count = self.participant.client.partition_count(str(name))
        return tuple(str(partition) for partition in name.partitions(count))
