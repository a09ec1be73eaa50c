"""Questions to Spark's JVM that PySpark's public API does not answer; measured on PySpark 4.2."""

from __future__ import annotations

import contextlib
import logging
import re
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import DataFrame

from eos.errors import ConfigurationError
from eos.retry import Patience
from eos.sinks import spark_compat
from eos.sinks._arguments import check_dataframe

_FLUSH_MS: Final = 10_000
_END_OF_TASKS_S: Final = 30.0

_QUERY_ID: Final = "sql.streaming.queryId"
_STATE_FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
# In the names of the RDDs that open state stores, for every stateful operator.
_STATE: Final = "StateStore"

_PY4J_LOGGERS: Final = ("py4j.clientserver", "py4j.java_gateway")
_PY4J_BYTES: Final = re.compile(r"^j[A-Za-z0-9+/=]+$", re.MULTILINE)


class _WithoutBytes(logging.Filter):
    # py4j's DEBUG log shows every call into the JVM, with byte arrays as base64. Tasks are such
    # arrays, and contain the credentials of executors.

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = _PY4J_BYTES.sub("j<bytes>", record.getMessage()), ()
        return True


_WITHOUT_BYTES: Final = _WithoutBytes()


def spark_context(df: DataFrame) -> SparkContext:
    """Return the SparkContext of ``df``, or raise ConfigurationError if a sink can't use it."""
    check_dataframe(df)
    # At DEBUG, py4j logs the pickled task with its token.
    for name in _PY4J_LOGGERS:
        logging.getLogger(name).addFilter(_WITHOUT_BYTES)  # which does nothing the second time
    context = df.sparkSession.sparkContext
    # From the JVM: PySpark's getConf() copies every setting, which takes 10 ms.
    if context._jsc.sc().getConf().get("spark.speculation", "false").lower() == "true":
        raise ConfigurationError(
            "spark.speculation=true is not supported: a speculative task would write rows twice.",
            hint="Set spark.speculation=false.",
        )
    return context


@dataclass(frozen=True)
class TaggedJobs:
    """The Spark jobs of one attempt, recognised by their tag."""

    context: SparkContext
    tag: str

    def await_end(self) -> None:
        """Wait up to 30 s until no task of these jobs runs."""
        # After a failure Spark cancels the other tasks and does not wait for them. A task that
        # still sends is harmless; at worst it pins a partition.
        patience = Patience(_END_OF_TASKS_S)
        while self._active_tasks() and not patience.is_over:
            patience.pause()

    def _active_tasks(self) -> int:
        tracker = self.context.statusTracker()
        try:
            # The status tracker learns of ended tasks by events.
            self._scala.listenerBus().waitUntilEmpty(_FLUSH_MS)
            infos = [tracker.getStageInfo(stage_id) for stage_id in self._stage_ids()]
        except Py4JError:
            return 0
        return sum(info.numActiveTasks for info in infos if info is not None)

    def _stage_ids(self) -> list[int]:
        tracker = self.context.statusTracker()
        # PySpark's tracker finds jobs by group alone, and groups are the user's.
        jobs = self._scala.statusTracker().getJobIdsForTag(self.tag)
        infos = [tracker.getJobInfo(job_id) for job_id in jobs]
        return [stage_id for info in infos if info is not None for stage_id in info.stageIds]

    @property
    def _scala(self) -> Any:
        return self.context._jsc.sc()


@contextlib.contextmanager
def tagged_jobs(context: SparkContext) -> Iterator[TaggedJobs]:
    """Tag the jobs that the block starts; after an error, wait for their tasks to end."""
    jobs = TaggedJobs(context, f"eos-{uuid.uuid4()}")
    context.addJobTag(jobs.tag)
    try:
        yield jobs
    except BaseException:
        jobs.await_end()
        raise
    finally:
        context.removeJobTag(jobs.tag)


@dataclass(frozen=True)
class RunningQuery:
    """A streaming query: its id, from the checkpoint, and its run id, new at each start."""

    query_id: str
    run_id: str


def running_query(df: DataFrame) -> RunningQuery:
    """Return the query in whose ``foreachBatch`` call ``df`` was made, or raise ConfigurationError.

    In any thread of the driver.
    """
    query = _query_of(df)
    return RunningQuery(query.id().toString(), query.runId().toString())


def is_in_query(df: DataFrame) -> bool:
    """Whether ``df`` was made in a streaming query's ``foreachBatch`` call."""
    try:
        _query_of(df)
    except ConfigurationError:
        return False
    return True


def planned_at(df: DataFrame, epoch: int) -> datetime | None:
    """Return when Spark planned which rows are in ``epoch``, from its checkpoint; None if the
    checkpoint has no such epoch. Errors as of ``running_query``.
    """
    # When an old plan runs again, its time is the old one (measured on Spark 4.2).
    plan = _query_of(df).offsetLog().get(epoch)
    if plan.isEmpty():
        return None
    metadata = spark_compat.offset_metadata(plan.get())
    return datetime.fromtimestamp(metadata.batchTimestampMs() / 1000, UTC)


def is_stateful(df: DataFrame) -> bool:
    """Whether computing ``df`` writes state stores of a streaming query; runs no job.

    False for a DataFrame of rows that were computed before, by ``collect`` or a checkpoint.
    """
    return any(_stateful_rdds(df._jdf.queryExecution().analyzed()))


def run_without_writing(df: DataFrame) -> None:
    """Compute the stateful part of ``df``, every partition to its end, and drop the rows."""
    # State stores write an epoch's state when the tasks of their operator end: without it the query
    # can't continue (measured on PySpark 4.2). The epoch's own RDD is counted instead of df, whose
    # filters, limits, column pruning or adaptive plan could skip a part. If the user persisted it,
    # the cache is filled, and it is not computed twice.
    plans = df._jdf.queryExecution()
    rdds = list(_stateful_rdds(plans.withCachedData())) or _stateful_rdds(plans.analyzed())
    for rdd in {rdd.id(): rdd for rdd in rdds}.values():
        rdd.count()


def drop_checkpoint(df: DataFrame) -> None:
    """Free the blocks of a DataFrame that ``localCheckpoint`` returned."""
    with contextlib.suppress(Py4JError):  # the gateway may be gone
        df._jdf.queryExecution().analyzed().rdd().unpersist(False)


def may_rerun(df: DataFrame) -> bool:
    """Whether ``df`` may be computed again in this call after it was computed in part or whole.
    Errors as of ``running_query``.
    """
    # Not if its state stores use checkpoint format 2: with it Spark keeps the state that the first
    # run of each partition wrote, while the rows of the last run count. A stateful function whose
    # result is not deterministic (order of rows, clock, random numbers) would continue from the
    # state of rows that were never written. Format 1 keeps the last run's state.
    conf = _query_of(df).sparkSessionForStream().conf()
    # The format first: searching for state takes longer.
    return int(conf.get(_STATE_FORMAT, "1")) < 2 or not is_stateful(df)


def _query_of(df: DataFrame) -> Any:
    # The JVM's StreamExecution. Each run of a query has its own Spark session, and df names it. A
    # DataFrame of another session belongs to the query whose foreachBatch runs in this thread. Job
    # groups are not used, because users may set them.
    session = df._jdf.sparkSession()
    active = list(_active_queries(session))
    for query in active:
        if query.sparkSessionForStream().equals(session):
            return query
    # The property is not set in threads that the user started.
    query_id = session.sparkContext().getLocalProperty(_QUERY_ID)
    for query in active:
        if query.id().toString() == query_id:
            return query
    raise ConfigurationError(
        "The sink was called outside of a streaming query.",
        hint="Pass it to foreachBatch. In your own thread, call it with a DataFrame made from the "
        "one that foreachBatch passes. For a batch job use sink.write(df, epoch=key).",
    )


def _active_queries(session: Any) -> Iterator[Any]:
    # Not by Py4J's dict of the map: iterating over it takes 40 ms.
    queries = session.sharedState().activeStreamingQueries().elements()
    while queries.hasMoreElements():
        yield queries.nextElement()


def _stateful_rdds(plan: Any) -> Iterator[Any]:
    # The RDDs with state stores that are leaves of a logical plan or of its subqueries: every
    # DataFrame derived from the one that foreachBatch passes has that one's RDD as a leaf.
    for part in (plan, *_items(plan.subqueriesAll())):
        for leaf in _items(part.collectLeaves()):
            match leaf.getClass().getSimpleName():
                case "LogicalRDD":
                    rdd = leaf.rdd()
                case "InMemoryRelation":
                    rdd = leaf.cacheBuilder().cachedColumnBuffers()
                case _:
                    continue
            if _STATE in rdd.toDebugString():
                yield rdd


def referenced_columns(df: DataFrame) -> set[str]:
    """Return the names of the columns that the newest step of ``df`` refers to."""
    references = df._jdf.queryExecution().analyzed().references().toSeq()
    return {str(attribute.name()) for attribute in _items(references)}


def _items(sequence: Any) -> Iterator[Any]:
    # A Scala Seq is no Python iterable.
    return (sequence.apply(index) for index in range(sequence.size()))
