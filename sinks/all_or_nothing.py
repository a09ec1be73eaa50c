"""``all_or_nothing``: a sink with several outputs; each epoch is in all of them, or in none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import DataFrame

from eos.commit_log.location import Location
from eos.committer import PartsBegun, Reports
from eos.errors import ConfigurationError, Retriable
from eos.sinks import spark_compat
from eos.sinks._arguments import check_dataframe
from eos.sinks._spark_jvm import drop_checkpoint, tagged_jobs
from eos.sinks.options import SinkOptions
from eos.sinks.output import Output
from eos.sinks.sink import Sink

Frames = Callable[[DataFrame], Sequence[DataFrame]]
"""Makes each output's DataFrame from the epoch's, in the order of the sinks."""

# Of CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND; PySpark 3.5 does not name the class.
_LOST: Final = "originally checkpointed this partition is no longer alive"

_MAY_DIFFER: Final = ("storage_options", "listeners")
_SHARED = tuple(name for name in SinkOptions.model_fields if name not in _MAY_DIFFER)


def all_or_nothing(*sinks: Sink, frames: Frames | None = None) -> Sink:
    """Make one sink of several: each epoch is written to the outputs of all ``sinks``, or to none.

    ::

        both = all_or_nothing(
            PulsarSink(sink_id="orders", topic=..., service_url=..., commit_log="/data/eos"),
            DeltaSink(sink_id="orders", table="/data/orders", commit_log="/data/eos"),
            frames=lambda df: [df.select(to_json(struct("*")).alias("value")), df],
        )
        query = orders.writeStream.foreachBatch(both).start()

    The commit log decides for all of them: once it has PREPARED, every output is committed, by this
    driver or a later process. Between the first output's commit and the last one's, a reader may
    see one and not yet the other.

    Args:
        sinks: with the same ``sink_id``, ``commit_log`` and other options that all sinks have; the
            listeners of all are notified. At most one may be a ``PulsarSink``: of two prepared
            transactions, one could expire after the other is committed.
        frames: makes each sink's DataFrame from the epoch's; None: all get the epoch's. It is
            called more than once for an epoch, so it must not have side effects. The epoch's
            DataFrame is computed once, and kept until all outputs have it (Spark's local
            checkpoint). If an executor that has a part of it is lost, the epoch runs again, because
            rows that are computed twice may differ.

    Raises:
        ConfigurationError: the sinks can't be written together.
    """
    if len(sinks) < 2:
        raise ConfigurationError("all_or_nothing takes two sinks or more.")
    if any(isinstance(sink, _AllOrNothing) for sink in sinks):
        raise ConfigurationError(
            "all_or_nothing can't be nested.",
            hint="Pass all sinks at once: all_or_nothing(a, b, c).",
        )
    first = sinks[0]
    for other in sinks[1:]:
        for name in _SHARED:
            if _shared_value(other, name) != _shared_value(first, name):
                raise ConfigurationError(
                    f"The sinks have different values for {name!r}, but they share one commit log.",
                    hint=f"Set {name} to the same value in all of them.",
                    sink_id=first.options.sink_id,
                )
    expiring = [
        sink for sink in sinks for output in sink.outputs() if output.participant.can_expire
    ]
    if len(expiring) > 1:
        raise ConfigurationError(
            f"{' and '.join(map(repr, expiring))} can't be written all or nothing: the "
            "transaction of one may expire after the other is committed.",
            hint="Write to several topics with one sink (column 'topic'), or use two sinks.",
            sink_id=first.options.sink_id,
        )
    return _AllOrNothing(sinks, frames)


def _shared_value(sink: Sink, name: str) -> object:
    value: object = getattr(sink.options, name)
    # One folder has several names: with a slash at the end, and as a URL.
    return Location(str(value)).uri if name == "commit_log" else value


class _AllOrNothing(Sink):
    def __init__(self, sinks: tuple[Sink, ...], frames: Frames | None) -> None:
        listeners = {id(one): one for sink in sinks for one in sink.options.listeners}
        options = sinks[0].options.model_copy(update={"listeners": tuple(listeners.values())})
        super().__init__(options)
        self._sinks = sinks
        self._frames = frames

    def outputs(self) -> list[Output]:
        return [output for sink in self._sinks for output in sink.outputs()]

    def frames(self, df: DataFrame) -> list[DataFrame]:
        if self._frames is None:
            return [df] * len(self._sinks)
        given: Any = self._frames(df)
        made: list[DataFrame] = list(given) if isinstance(given, Iterable) else [given]
        for frame in made:
            check_dataframe(frame)
        if len(made) != len(self._sinks):
            raise ConfigurationError(
                f"frames returned {len(made)} DataFrames for {len(self._sinks)} sinks."
            )
        return made

    def _plan(
        self, df: DataFrame, context: SparkContext, begun: PartsBegun
    ) -> Callable[[], Reports]:
        # Rows are computed once, before any output is written. A cache would not do: Spark silently
        # recomputes parts that an executor has lost, and a query that is not deterministic would
        # give the outputs different rows. A lost part of a local checkpoint is an error, but only
        # after the checkpoint's job has ended: until then Spark recomputes it, too (measured on
        # Spark 4.2).
        plan = super()._plan

        def write() -> Reports:
            with tagged_jobs(context):
                rows = spark_compat.local_checkpoint(df)
            try:
                return plan(rows, context, begun)()
            except Py4JJavaError as error:
                if _LOST in str(error):
                    raise Retriable("An executor with rows for the outputs is lost.") from error
                raise
            finally:
                drop_checkpoint(rows)

        return write

    def __repr__(self) -> str:
        return f"all_or_nothing({', '.join(map(repr, self._sinks))})"
