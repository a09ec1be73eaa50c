"""What Spark knows of the streaming query behind a ``foreachBatch`` call, and of its state stores.

Measured on PySpark 4.2. State stores write an epoch's state when their operator's tasks end: an
epoch whose DataFrame nobody runs has no state, and the query can't go on. The DataFrame that
``foreachBatch`` hands out stands on one RDD, which computes the epoch. Whatever is made of that
DataFrame has the RDD among the leaves of its plan, and the state stores in the RDD's lineage.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame

from eos.errors import ConfigurationError

_QUERY_ID: Final = "sql.streaming.queryId"
_STATE_FORMAT: Final = "spark.sql.streaming.stateStore.checkpointFormatVersion"
# In the name of each RDD that opens state stores, of every stateful operator.
_STATE: Final = "StateStore"


@dataclass(frozen=True)
class RunningQuery:
    """A streaming query: its id, kept in the checkpoint, and that of its run, new at each start."""

    query_id: str
    run_id: str


def running_query(df: DataFrame) -> RunningQuery:
    """The query in whose ``foreachBatch`` call ``df`` was made, in any thread of the driver.

    Each run of a query has a Spark session of its own, and ``df`` names it. A DataFrame of another
    session belongs to the query whose ``foreachBatch`` thread this is. Job groups, which are the
    user's to set, are not asked.

    Raises:
        ConfigurationError: there is no such query.
    """
    query = _query_behind(df)
    return RunningQuery(query.id().toString(), query.runId().toString())


def is_in_query(df: DataFrame) -> bool:
    """Whether ``df`` was made in a streaming query's ``foreachBatch`` call."""
    try:
        _query_behind(df)
    except ConfigurationError:
        return False
    return True


def planned_at(df: DataFrame, epoch: int) -> datetime | None:
    """When Spark decided which rows are in ``epoch``, as its checkpoint has it; None: it has none
    of that number.

    A run of an old plan finds the old time there (measured on Spark 4.2).

    Raises:
        ConfigurationError: see ``running_query``.
    """
    plan = _query_behind(df).offsetLog().get(epoch)
    if plan.isEmpty():
        return None
    metadata = plan.get().metadataOpt().get()
    return datetime.fromtimestamp(metadata.batchTimestampMs() / 1000, UTC)


def is_stateful(df: DataFrame) -> bool:
    """Whether computing ``df`` writes state stores of a streaming query; runs nothing.

    False, too, for what stands on rows that were computed before: collected, or checkpointed.
    """
    return any(_stateful_rdds(df._jdf.queryExecution().analyzed()))


def run_without_writing(df: DataFrame) -> None:
    """Compute what of ``df`` has state stores, every partition to its end, and drop the rows.

    For an epoch that was written before and that Spark runs again: its state stores need it. The
    epoch's own RDD is counted, not ``df``: no filter, limit, pruning of columns or adaptive plan
    comes between. Where the user persisted it, that cache is filled: it is not computed twice.
    """
    plans = df._jdf.queryExecution()
    rdds = list(_stateful_rdds(plans.withCachedData())) or _stateful_rdds(plans.analyzed())
    for rdd in {rdd.id(): rdd for rdd in rdds}.values():
        rdd.count()


def may_rerun(df: DataFrame) -> bool:
    """Whether ``df``, once computed in part or whole, may be computed again within this call.

    Not when its state stores use checkpoint format 2. There Spark keeps, of each partition, the
    state that the *first* run wrote, while the rows that count are those of the last. A stateful
    function that does not answer the same each time (order of rows, clock, random numbers) would go
    on from a state that belongs to rows which were never written. Format 1 keeps the last run's.

    Raises:
        ConfigurationError: see ``running_query``.
    """
    conf = _query_behind(df).sparkSessionForStream().conf()
    # The format first: to look for state takes longer.
    return int(conf.get(_STATE_FORMAT, "1")) < 2 or not is_stateful(df)


def _query_behind(df: DataFrame) -> Any:
    """The JVM's StreamExecution."""
    session = df._jdf.sparkSession()
    active = list(_active_queries(session))
    for query in active:
        if query.sparkSessionForStream().equals(session):
            return query
    # Nothing in a thread of the user's own.
    query_id = session.sparkContext().getLocalProperty(_QUERY_ID)
    for query in active:
        if query.id().toString() == query_id:
            return query
    raise ConfigurationError(
        "The sink was called outside of a streaming query.",
        hint="Give it to foreachBatch, and in a thread of your own a DataFrame made from the one "
        "that foreachBatch handed out; for a batch job use sink.write(df, epoch=key).",
    )


def _active_queries(session: Any) -> Iterator[Any]:
    # Not as a dict, which is how Py4J hands the map out: going through it takes 40 ms.
    queries = session.sharedState().activeStreamingQueries().elements()
    while queries.hasMoreElements():
        yield queries.nextElement()


def _stateful_rdds(plan: Any) -> Iterator[Any]:
    """The leaves of a logical plan and of its subqueries that have state stores behind them."""
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


def _items(sequence: Any) -> Iterator[Any]:
    """The elements of a Scala Seq."""
    return (sequence.apply(index) for index in range(sequence.size()))
