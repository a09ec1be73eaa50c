"""Several outputs, one decision: an epoch is in all of them, or in none."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext, StorageLevel
from pyspark.sql import DataFrame

from eos.committer import PartsBegun, Reports
from eos.errors import ConfigurationError, Retriable
from eos.sinks._arguments import check_dataframe
from eos.sinks._jobs import tagged_jobs
from eos.sinks.options import SinkOptions
from eos.sinks.output import Output
from eos.sinks.sink import Sink

Frames = Callable[[DataFrame], Sequence[DataFrame]]
"""Makes each output's DataFrame from the epoch's, in the order of the sinks."""

_LOST: Final = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"

_OWN: Final = ("storage_options", "listeners")
_SHARED = tuple(name for name in SinkOptions.model_fields if name not in _OWN)


def all_or_nothing(*sinks: Sink, frames: Frames | None = None) -> Sink:
    """One sink that writes to the outputs of all ``sinks``, each epoch to all of them or to none.

    ::

        both = all_or_nothing(
            PulsarSink(sink_id="orders", topic=..., service_url=..., commit_log="/data/eos"),
            DeltaSink(sink_id="orders", table="/data/orders", commit_log="/data/eos"),
            frames=lambda df: [df.select(to_json(struct("*")).alias("value")), df],
        )
        query = orders.writeStream.foreachBatch(both).start()

    The commit log decides for all of them: when it says PREPARED, every output is committed, by
    this driver or by whoever comes after it. Between the first output's commit and the last one's
    a reader may see the one and not yet the other.

    Args:
        sinks: with the same ``sink_id``, ``commit_log`` and other options that all sinks have; the
            listeners of each are told. One of them at most may be a ``PulsarSink``: two prepared
            transactions can expire apart.
        frames: makes each sink's DataFrame of the epoch's; all get the same one when None. It is
            called more than once for an epoch, so it must do nothing else. The epoch's DataFrame is
            computed once, and kept until all outputs have it (Spark's local checkpoint). When a
            lost executor takes a part of it along, the epoch runs again: rows that are computed
            twice may be other ones.

    Raises:
        ConfigurationError: the sinks can't be written together; says why.
    """
    if len(sinks) < 2:
        raise ConfigurationError("all_or_nothing takes two sinks or more.")
    if any(isinstance(sink, _AllOrNothing) for sink in sinks):
        raise ConfigurationError(
            "all_or_nothing takes sinks of one output each.",
            hint="Give it all the sinks at once: all_or_nothing(a, b, c).",
        )
    first = sinks[0]
    for other in sinks[1:]:
        for name in _SHARED:
            if getattr(other.options, name) != getattr(first.options, name):
                raise ConfigurationError(
                    f"The sinks have different values for {name!r}: they are one sink, with one "
                    "commit log.",
                    hint=f"Give {name} the same value in each of them.",
                    sink_id=first.options.sink_id,
                )
    expiring = [
        sink for sink in sinks for output in sink.outputs() if output.participant.can_expire
    ]
    if len(expiring) > 1:
        raise ConfigurationError(
            f"{' and '.join(map(repr, expiring))} can't be written all or nothing: the "
            "transaction of the one may expire when the other is committed.",
            hint="Write to several topics with one sink, or use two sinks.",
            sink_id=first.options.sink_id,
        )
    return _AllOrNothing(sinks, frames)


class _AllOrNothing(Sink):
    """See ``all_or_nothing``."""

    def __init__(self, sinks: tuple[Sink, ...], frames: Frames | None) -> None:
        listeners = {id(one): one for sink in sinks for one in sink.options.listeners}
        options = sinks[0].options.model_copy(update={"listeners": tuple(listeners.values())})
        super().__init__(options)
        self._sinks = sinks
        self._frames = frames

    def outputs(self) -> list[Output]:
        """Those of all sinks."""
        return [output for sink in self._sinks for output in sink.outputs()]

    def frames(self, df: DataFrame) -> list[DataFrame]:
        """One for each sink."""
        if self._frames is None:
            return [df] * len(self._sinks)
        given: Any = self._frames(df)
        made: list[DataFrame] = list(given) if isinstance(given, Iterable) else [given]
        for frame in made:
            check_dataframe(frame)
        if len(made) != len(self._sinks):
            raise ConfigurationError(
                f"frames made {len(made)} DataFrames for {len(self._sinks)} sinks."
            )
        return made

    def _plan(
        self, df: DataFrame, context: SparkContext, begun: PartsBegun
    ) -> Callable[[], Reports]:
        """As every sink's, of rows that are computed once, and before anything is written.

        Not with a cache: Spark computes again what an executor has lost of one, without a word, and
        a query that does not answer the same each time would give the outputs different rows. What
        is missing of a local checkpoint is an error, once its own job has ended; until then Spark
        computes it again here too (measured on Spark 4.2).
        """
        plan = super()._plan

        def write() -> Reports:
            with tagged_jobs(context):
                rows = df.localCheckpoint(eager=True, storageLevel=StorageLevel.MEMORY_AND_DISK)
            try:
                return plan(rows, context, begun)()
            except Py4JJavaError as error:
                if _LOST in str(error):
                    gone = "An executor that kept rows for the outputs is gone."
                    raise Retriable(gone) from error
                raise
            finally:
                with contextlib.suppress(Py4JError):  # the gateway may be gone
                    rows._jdf.queryExecution().analyzed().rdd().unpersist(False)

        return write

    def __repr__(self) -> str:
        return f"all_or_nothing({', '.join(map(repr, self._sinks))})"
