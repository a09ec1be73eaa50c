"""``PulsarSink``: exactly-once, all-or-nothing writes of DataFrames to a Pulsar topic."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Unpack

from pyspark import SparkContext
from pyspark.sql import DataFrame

from eos.errors import EosError, TopicNotFound
from eos.protocol import History, Part
from eos.pulsar.part import PulsarPart
from eos.pulsar.participant import PulsarParticipant
from eos.summary import TaskSummary
from eos.wire.batch import Compression, Hashing
from sinks._jobs import tagged_jobs
from sinks._progress import warn_of_new_topic
from sinks._task import SUMMARY_SCHEMA, WriteTask
from sinks.columns import select_columns
from sinks.options import PulsarSinkArguments, PulsarSinkOptions
from sinks.output import Output, Write
from sinks.sink import Sink


class PulsarSink(Sink):
    """One output of Spark, in Pulsar: each epoch is one transaction, readable whole or not at all.

    An instance is the function that ``foreachBatch`` takes; ``write`` serves batch jobs::

        sink = PulsarSink(sink_id="orders", service_url="pulsar://localhost:6650",
                          topic="persistent://public/default/orders", commit_log="/data/eos")
        query = orders.writeStream.foreachBatch(sink).start()
        sink.write(df, epoch="2026-11-20")

    Columns: ``value`` (binary or string, required; null is a tombstone, where ``null_values`` says
    so), ``key`` (string or binary), ``partition`` (a number from 0 on), ``event_time`` (timestamp,
    or milliseconds since 1970), ``properties`` (map of string to string), ``ordering_key`` (binary
    or string), ``topic`` (string: without the option of that name, rows go where they say, all in
    one transaction). With a ``schema`` of records whole rows go in, and the message's own columns
    begin with two underscores: ``__key``. Rows go to the partition that they name, else to that of
    their key, where the Java client would send it (``hashing``); the others stay together, one
    partition for each task.

    The options are those of ``PulsarSinkOptions``. Nothing is connected before the first epoch;
    then the sink is claimed, and a driver that holds it elsewhere is fenced.

    Raises:
        ConfigurationError: an option is missing, unknown or wrong.
    """

    options: PulsarSinkOptions

    def __init__(self, **options: Unpack[PulsarSinkArguments]) -> None:
        super().__init__(PulsarSinkOptions.parse(options))

    def outputs(self) -> list[Output]:
        """The topic."""
        return [PulsarOutput(self.options)]

    def __repr__(self) -> str:
        return f"PulsarSink(sink_id={self.options.sink_id!r}, topic={self.options.topic!r})"


class PulsarOutput(Output):
    """A topic, and how Spark's tasks write to it."""

    participant: PulsarParticipant

    def __init__(self, options: PulsarSinkOptions) -> None:
        self._options = options
        self.participant = PulsarParticipant(
            options.sink_id,
            options.service_url,
            options.security,
            receipt_namespace=options.receipts_in,
            admin_url=options.admin_url,
            ttl_ms=int(options.transaction_ttl_s * 1000),
            timeout_s=options.request_timeout_s,
        )

    def traces(self) -> list[str]:
        """Receipt topics of other logs of this sink."""
        return [
            f"{topic} is the receipt topic of its log"
            for topic in self.participant.other_receipt_topics()
        ]

    def on_open(self, history: History, df: DataFrame) -> None:  # noqa: ARG002
        """Say when the topic has changed; remember what an earlier run may have pinned."""
        if self._options.topic is None:
            return
        warn_of_new_topic(history, self._options.topic_name)
        with contextlib.suppress(EosError):
            self.participant.touches(self._partitions())

    def plan(self, df: DataFrame, context: SparkContext, part: Part) -> Write:
        """See ``Output``."""
        assert isinstance(part, PulsarPart)
        assert part.txn is not None
        schema = self._options.schema_of_values
        columns = select_columns(df, names_topics=self._options.topic is None, schema=schema)
        topics = () if self._options.topic is None else self._topics()
        self.participant.touches(topics)
        task = WriteTask(
            client=self._options.client,
            txn=part.txn,
            call=part.call,
            topics=topics,
            creation=self._options.creation,
            spread=bool({"key", "partition", "topic"}.intersection(columns.rows.columns)),
            max_batch_bytes=self._options.max_batch_bytes,
            compression=Compression.parse(self._options.compression),
            hashing=Hashing(self._options.hashing),
            by_key=self._options.batching == "by_key",
            tombstones=self._options.null_values == "tombstone",
            schema=schema,
            value_type=columns.value_type,
        )
        writing = columns.rows.mapInArrow(task, SUMMARY_SCHEMA)

        def write() -> Sequence[TaskSummary]:
            with tagged_jobs(context):
                summaries = [TaskSummary.from_json(row.summary) for row in writing.collect()]
            if not topics:
                self.participant.touches({name for one in summaries for name in one.registered})
            return summaries

        return write

    def _topics(self) -> tuple[str, ...]:
        """The exact names of the topic's partitions, fixed here for the whole epoch."""
        creation = self._options.creation
        try:
            return self._partitions()
        except TopicNotFound as error:
            if creation is None:
                error.hint = "Create the topic, or set create_topics=True."
                raise
        client, options = self.participant.client, self._options.client
        creation.create(self._options.topic_name, client, options)
        if not creation.partitions:
            # Not asked: the question creates a partitioned topic where namespaces make such.
            return (str(self._options.topic_name),)
        return self._partitions()

    def _partitions(self) -> tuple[str, ...]:
        name = self._options.topic_name
        count = self.participant.client.partition_count(str(name))
        return tuple(str(partition) for partition in name.partitions(count))
