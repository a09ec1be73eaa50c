"""``PulsarSink``: exactly-once, all-or-nothing writes of DataFrames to a Pulsar topic."""

from __future__ import annotations

from typing import Unpack

from eos.sinks._pulsar_output import PulsarOutput
from eos.sinks.options import PulsarSinkArguments, PulsarSinkOptions
from eos.sinks.output import Output
from eos.sinks.sink import Sink


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
    one transaction), and what else the source reads, by its names: ``__key``, ``__keyIsBinary``
    and so on. With a ``schema`` of records whole rows go in: other columns are fields. Rows go to
    the partition that they name, else to that of their key, where the Java client would send it
    (``hashing``); the others stay together, one partition for each task.

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
