"""``PulsarSink``: exactly-once, all-or-nothing writes of DataFrames to a Pulsar topic."""

from __future__ import annotations

from typing import Unpack

from eos.sinks._pulsar_output import PulsarOutput
from eos.sinks.options import PulsarSinkArguments, PulsarSinkOptions
from eos.sinks.output import Output
from eos.sinks.sink import Sink


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
