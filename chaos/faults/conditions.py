"""What holds from a run's first moment to its last: the user's code, Spark's settings, a namespace.

A schedule has some of them beside its faults. Like a fault, each has to be proved: one that nobody
has met was not there.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Literal

from eos.chaos._user_code import USER_CODE, log_prefix
from eos.chaos.cluster.driver_log import DriverLog
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.job import READS_HISTORY, READS_TOPIC, QueryShape
from eos.errors import EosError
from eos.ids import TopicName

Group = Literal["query", "user", "spark", "namespace", "output", "input"]

_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_HDFS: Final = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_CREATION: Final = "autoTopicCreation"
_STATE: Final = "spark.sql.streaming.stateStore"
_CREATE: Final = re.compile(r"Create it: pulsar-admin topics create (\S+)")
_POLL_S: Final = 0.5

FROM_TOPIC: Final = "from-topic"
_OF_ODD_ROWS: Final = ("null-value", "large-value")
"""Faults that give the job a row which is no record: it has no event time, and is in no topic."""


@dataclass(frozen=True)
class Condition:
    """One of them; at most one of each ``group`` holds.

    Attributes:
        proof: what a driver says when it has met it; "": that its namespace was so is enough.
        shape, user_code, spark_conf: of the ``Job``.
        policies: of the topic's namespace, each with what is sent to the admin API.
        has_admin_url: whether the sink is told of the admin API.
        has_table: each epoch goes to a Delta table as well, all or nothing.
        has_input_topic: the inputs come by a topic, and the source of eos reads it.
        has_history: the first of them are in a table, which the source reads first.
        has_whole_rows: the workload writes rows under a schema (``eos.chaos._avro_rows``).
        has_format: it writes by ``format("pulsar")``.
        leaves_out: groups that have nothing to say then.
        excludes: faults that have nothing to hit then.
        operator: what a person does meanwhile, who reads the drivers' logs; until the event is set.
        needs_own: only the harness's own workload can be so.
    """

    name: str
    group: Group
    text: str
    proof: str = ""
    shape: QueryShape = "stream"
    user_code: tuple[str, ...] = ()
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    policies: Mapping[str, object] = field(default_factory=dict)
    has_admin_url: bool = True
    has_table: bool = False
    has_input_topic: bool = False
    has_history: bool = False
    has_whole_rows: bool = False
    has_format: bool = False
    leaves_out: frozenset[Group] = frozenset()
    excludes: tuple[str, ...] = ()
    operator: Callable[[FaultTarget, DriverLog, threading.Event], None] | None = None
    needs_own: bool = True

    @property
    def part(self) -> str:
        """What it hits, as for a fault."""
        return self.group

    @property
    def summary(self) -> str:
        """What it is, for lists of faults."""
        return self.text

    def hit(self, target: FaultTarget, log: DriverLog) -> str:
        """Where a driver met it; "" when none did."""
        if self.proof:
            return log.line_with(self.proof)
        namespace = TopicName.parse(target.job.topic).namespace_name
        there = target.broker.admin("GET", f"/v2/namespaces/{namespace}/{_CREATION}")
        return f"{target.receipt_topic()} in a namespace with {there}"


def _create_what_is_asked_for(target: FaultTarget, log: DriverLog, over: threading.Event) -> None:
    """The command that the sink's error names, each time that it does, and nothing else."""
    read = 0
    while not over.wait(_POLL_S):
        asked = log.find_all(_CREATE)
        for topic in {found[1] for found in asked[read:]}:
            with suppress(EosError):  # the next driver asks again
                target.admin.create_topic(TopicName.parse(topic))
        read = len(asked)


def _habit(name: str, text: str) -> Condition:
    assert name in USER_CODE
    return Condition(name, "user", text, log_prefix(name), user_code=(name,))


def _stateful(provider: str, version: int) -> Condition:
    conf = {
        f"{_STATE}.providerClass": _ROCKSDB if provider == "rocksdb" else _HDFS,
        f"{_STATE}.checkpointFormatVersion": str(version),
    }
    return Condition(
        f"stateful-{provider}-{version}",
        "query",
        f"the query keeps state ({provider}, checkpoint format {version}), and each record comes "
        "in two inputs",
        f"{_STATE}.checkpointFormatVersion={version}",
        shape="stateful",
        spark_conf=conf,
    )


CONDITIONS: Final[dict[str, Condition]] = {
    condition.name: condition
    for condition in (
        Condition(
            "notebook",
            "query",
            "no stream, but one batch call after the other in one process",
            "chaos: notebook:",
            shape="notebook",
            # It has no foreachBatch function, and takes its inputs from files.
            leaves_out=frozenset({"user", "input"}),
        ),
        _stateful("hdfs", 1),
        _stateful("rocksdb", 1),
        _stateful("rocksdb", 2),
        Condition(
            "random-columns",
            "query",
            "uuid(), rand() and the time are in the rows, and which task has a row is drawn",
            log_prefix("scattered"),
            shape="scattered",
        ),
        Condition(
            "stateful-pandas",
            "query",
            "a function of the user's own keeps state (applyInPandasWithState), and each record "
            "comes in two inputs",
            log_prefix("grouped"),
            shape="grouped",
            excludes=_OF_ODD_ROWS,
        ),
        Condition(
            "windowed-counts",
            "query",
            "records are counted by key and window, and written with their count when it is over",
            log_prefix("windowed"),
            shape="windowed",
            excludes=_OF_ODD_ROWS,
        ),
        Condition(
            "stream-join",
            "query",
            "the input is read twice, and joined with itself as it comes",
            log_prefix("joined"),
            shape="joined",
            excludes=_OF_ODD_ROWS,
        ),
        _habit("sets-job-groups", "the foreachBatch function sets another job group each time"),
        _habit("caches", "the foreachBatch function caches and counts the DataFrame"),
        _habit("shuffles", "the foreachBatch function repartitions, also what has no rows"),
        _habit("listens-slowly", "a StreamingQueryListener takes seconds for each event"),
        _habit("fails-in-tasks", "a mapInPandas before the sink fails in the middle of its rows"),
        _habit("has-failing-neighbours", "other queries of the session fail all the time"),
        Condition(
            "forgotten-stages",
            "spark",
            "Spark keeps nothing of stages and jobs that have ended",
            "spark.ui.retainedStages=0",
            spark_conf={
                "spark.ui.retainedStages": "0",
                "spark.ui.retainedJobs": "0",
                "spark.ui.retainedTasks": "0",
            },
            needs_own=False,
        ),
        Condition(
            "adaptive",
            "spark",
            "adaptive execution, which leaves out what has no rows",
            "spark.sql.adaptive.enabled=true",
            spark_conf={
                "spark.sql.adaptive.enabled": "true",
                "spark.sql.adaptive.coalescePartitions.enabled": "true",
            },
            needs_own=False,
        ),
        Condition(
            "no-topic-creation",
            "namespace",
            "clients may create no topics; the sink uses the admin API",
            policies={_CREATION: {"allowAutoTopicCreation": False}},
        ),
        Condition(
            "no-admin",
            "namespace",
            "clients may create no topics, nor use the admin API; an operator runs the command "
            "that the error names",
            "Create it: pulsar-admin",
            policies={_CREATION: {"allowAutoTopicCreation": False}},
            has_admin_url=False,
            operator=_create_what_is_asked_for,
        ),
        Condition(
            "topic-and-table",
            "output",
            "each epoch goes to the topic and to a Delta table, all or nothing",
            log_prefix("table"),
            has_table=True,
        ),
        Condition(
            "whole-rows",
            "output",
            "Avro into four topics in one transaction; some rows are tombstones; a column comes",
            log_prefix("whole-rows"),
            has_whole_rows=True,
            excludes=("schema-changed",),
        ),
        Condition(
            "by-format",
            "output",
            'format("pulsar") writes, where Spark calls the steps and runs an epoch once',
            log_prefix("by-format"),
            has_format=True,
            leaves_out=frozenset({"user"}),
            excludes=("swallowed", "called-twice"),
        ),
        Condition(
            FROM_TOPIC,
            "input",
            'the inputs come by a topic, in transactions, and format("pulsar") reads it',
            READS_TOPIC,
            has_input_topic=True,
            excludes=(*_OF_ODD_ROWS, "checkpoint-rewound"),
        ),
        Condition(
            "from-history",
            "input",
            "the first inputs come from a table, and those behind it from a topic",
            READS_HISTORY,
            has_input_topic=True,
            has_history=True,
            excludes=(*_OF_ODD_ROWS, "checkpoint-rewound"),
        ),
        Condition(
            "partitioned-topics",
            "namespace",
            "topics that clients create are partitioned",
            policies={
                _CREATION: {
                    "allowAutoTopicCreation": True,
                    "topicType": "partitioned",
                    "defaultNumPartitions": 2,
                }
            },
        ),
    )
}


@contextmanager
def operators(conditions: Sequence[Condition], target: FaultTarget) -> Iterator[None]:
    """What persons do while the conditions hold."""
    over = threading.Event()
    log = target.driver_log()
    threads = [
        threading.Thread(target=one.operator, args=(target, log, over), name=one.name, daemon=True)
        for one in conditions
        if one.operator is not None
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join(timeout=30)
