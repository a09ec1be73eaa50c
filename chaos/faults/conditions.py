"""Conditions hold during a whole run: a user's code, Spark's settings, a namespace's policies."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Literal

from eos.chaos._user_code import USER_CODE, log_prefix
from eos.chaos.cluster.driver_process import DriverLog
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
FROM_TIERED: Final = "from-tiered"
ARCHIVING: Final = "archiving"
COUNTING: Final = "counting"
WITH_DATABASE: Final = "topic-and-database"
# They act when the broker delivers an entry of the input, which comes from tiered storage instead.
_AT_DELIVERY: Final = (
    "input-unloaded",
    "input-cut",
    "worker-kill-at-read",
    "executor-kill-at-read",
    "broker-kill-at-read",
    "broker-sleep-at-read",
)
# Faults whose row is not a record: it has no event time, and is not in the input topic.
_BAD_ROWS: Final = ("null-value", "large-value")


@dataclass(frozen=True)
class Condition:
    """A condition; at most one of each ``group`` holds. ``Job`` explains the rest."""

    name: str
    group: Group
    text: str
    proof: str = ""  # text in a driver's log; "" if the namespace's policies are the proof
    shape: QueryShape = "stream"
    user_code: tuple[str, ...] = ()
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    # Bodies for the admin API.
    policies: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    has_admin_url: bool = True
    has_table: bool = False
    has_database: bool = False  # each epoch is written to a database, too
    has_iceberg: bool = False  # each epoch is written to an Iceberg table, too
    includes: str = ""  # a condition whose faults can hit it, too
    has_input_topic: bool = False
    has_history: bool = False  # the first inputs are in a table, which the source reads first
    is_tiered: bool = False  # the inputs' ledgers are in tiered storage
    is_chunked: bool = False  # the inputs are messages in chunks
    has_archive: bool = False  # the input topic is archived meanwhile
    has_counter: bool = False  # a service counts a partition of the output meanwhile
    has_whole_rows: bool = False
    has_format: bool = False
    is_encrypted: bool = False
    leaves_out: frozenset[Group] = frozenset()  # groups that do not apply with it
    excludes: tuple[str, ...] = ()  # faults that do not apply with it
    # A person's actions, based on the drivers' logs, until the event is set.
    operator: Callable[[FaultTarget, DriverLog, threading.Event], None] | None = None
    needs_own: bool = True  # the harness's own workload
    is_drawn: bool = True  # random schedules may have it unasked

    @property
    def has_data_source(self) -> bool:
        """Whether the workload reads or writes by ``format("pulsar")``."""
        return self.has_input_topic or self.has_format

    @property
    def part(self) -> str:
        """The group, like the part of a fault."""
        return self.group

    @property
    def summary(self) -> str:
        """The description, for lists of faults."""
        return self.text

    def hit(self, target: FaultTarget, log: DriverLog) -> str:
        """The proof; "" without one."""
        if self.is_tiered:
            reads = 0 if target.store is None else target.store.reads
            return f"{reads} requests to tiered storage" if reads else ""
        if self.has_archive and target.archiver is not None:
            return target.archiver.proof()
        if self.has_counter and target.counter is not None:
            return target.counter.proof()
        return log.line_with(self.proof) if self.proof else self._hit_policies(target)

    def _hit_policies(self, target: FaultTarget) -> str:
        namespace, receipts = (
            TopicName.parse(target.job.topic).namespace_name,
            target.receipt_topic(),
        )
        for name, wanted in self.policies.items():
            there = target.broker.admin("GET", f"/v2/namespaces/{namespace}/{name}")
            # The broker adds fields that were not set.
            if there is None or not wanted.items() <= there.items():
                return ""
        return f"{receipts} in a namespace with {dict(self.policies)}" if receipts else ""


def _create_requested_topics(target: FaultTarget, log: DriverLog, over: threading.Event) -> None:
    # A person who follows the sink's error each time it appears, and does no more.
    read = 0
    while not over.wait(_POLL_S):
        asked = log.find_all(_CREATE)
        for topic in {found[1] for found in asked[read:]}:
            with suppress(EosError):  # the next driver's error has it again
                target.admin.create_topic(TopicName.parse(topic))
        read = len(asked)


def _with_code(name: str, text: str) -> Condition:
    assert name in USER_CODE
    return Condition(name, "user", text, log_prefix(name), user_code=(name,))


def _shaped(name: str, shape: QueryShape, text: str, excludes: tuple[str, ...] = ()) -> Condition:
    return Condition(name, "query", text, log_prefix(shape), shape=shape, excludes=excludes)


def _stateful(provider: str, version: int) -> Condition:
    conf = {
        f"{_STATE}.providerClass": _ROCKSDB if provider == "rocksdb" else _HDFS,
        f"{_STATE}.checkpointFormatVersion": str(version),
    }
    return Condition(
        f"stateful-{provider}-{version}",
        "query",
        f"the query is stateful ({provider}, checkpoint format {version}), and each record is in "
        "two inputs",
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
            "batch calls one after the other in one process instead of a stream",
            "chaos: notebook:",
            shape="notebook",
            # It has no foreachBatch function, and reads its inputs from files.
            leaves_out=frozenset({"user", "input"}),
        ),
        _stateful("hdfs", 1),
        _stateful("rocksdb", 1),
        _stateful("rocksdb", 2),
        _shaped(
            "random-columns",
            "scattered",
            "rows contain uuid(), rand() and the time, and are distributed to tasks at random",
        ),
        _shaped(
            "stateful-pandas",
            "grouped",
            "a user function keeps state (applyInPandasWithState), and each record is in two "
            "inputs",
            _BAD_ROWS,
        ),
        _shaped(
            "windowed-counts",
            "windowed",
            "records are counted by key and window, and written with their count when it closes",
            _BAD_ROWS,
        ),
        _shaped(
            "stream-join",
            "joined",
            "the input is read twice, and the two streams are joined",
            _BAD_ROWS,
        ),
        _with_code("sets-job-groups", "the foreachBatch function sets another job group each time"),
        _with_code("caches", "the foreachBatch function caches and counts the DataFrame"),
        _with_code("shuffles", "the foreachBatch function repartitions, even without rows"),
        _with_code("listens-slowly", "a StreamingQueryListener takes seconds for each event"),
        _with_code("fails-in-tasks", "a mapInPandas before the sink fails after some rows"),
        _with_code("has-failing-neighbours", "other queries of the session fail all the time"),
        Condition(
            "forgotten-stages",
            "spark",
            "Spark keeps no information about ended stages and jobs",
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
            "adaptive execution, which skips empty partitions",
            "spark.sql.adaptive.enabled=true",
            spark_conf={
                "spark.sql.adaptive.enabled": "true",
                "spark.sql.adaptive.coalescePartitions.enabled": "true",
            },
            needs_own=False,
            # Spark switches it off for a stateful query (measured).
            leaves_out=frozenset({"query"}),
        ),
        Condition(
            "no-topic-creation",
            "namespace",
            "clients may not create topics; the sink uses the admin API",
            policies={_CREATION: {"allowAutoTopicCreation": False}},
        ),
        Condition(
            "no-admin",
            "namespace",
            "clients may not create topics or use the admin API; an operator runs the command in "
            "the error",
            "Create it: pulsar-admin",
            policies={_CREATION: {"allowAutoTopicCreation": False}},
            has_admin_url=False,
            operator=_create_requested_topics,
        ),
        Condition(
            "topic-and-table",
            "output",
            "each epoch is written to the topic and to a Delta table, all or nothing",
            log_prefix("table"),
            has_table=True,
        ),
        Condition(
            WITH_DATABASE,
            "output",
            "each epoch is written to the topic and to PostgreSQL, all or nothing",
            log_prefix("database"),
            has_database=True,
            is_drawn=False,
        ),
        Condition(
            "topic-and-iceberg",
            "output",
            "each epoch is written to the topic and to an Iceberg table, all or nothing",
            log_prefix("iceberg"),
            has_iceberg=True,
            is_drawn=False,
        ),
        Condition(
            "three-outputs",
            "output",
            "each epoch is written to the topic, and by upsert to a Delta table and to PostgreSQL",
            log_prefix("database"),
            has_table=True,
            has_database=True,
            includes=WITH_DATABASE,
            is_drawn=False,
        ),
        Condition(
            "whole-rows",
            "output",
            "Avro rows in four topics by one transaction; some are tombstones; a column is added",
            log_prefix("whole-rows"),
            has_whole_rows=True,
            excludes=("schema-changed",),
        ),
        Condition(
            "encrypted",
            "output",
            "the sink encrypts its messages, and plain readers have the key",
            log_prefix("encrypted"),
            is_encrypted=True,
            is_drawn=False,
        ),
        Condition(
            COUNTING,
            "output",
            "a service with `KeyedState` counts the messages of a partition by key meanwhile",
            has_counter=True,
            leaves_out=frozenset({"namespace"}),
            is_drawn=False,
        ),
        Condition(
            "by-format",
            "output",
            'written by format("pulsar"), where Spark calls the steps and runs an epoch once',
            log_prefix("by-format"),
            has_format=True,
            leaves_out=frozenset({"user"}),
            excludes=("swallowed", "called-twice"),
        ),
        Condition(
            FROM_TOPIC,
            "input",
            'inputs are in a topic, in transactions, and read by format("pulsar")',
            READS_TOPIC,
            has_input_topic=True,
            excludes=(*_BAD_ROWS, "checkpoint-rewound"),
        ),
        Condition(
            "from-chunks",
            "input",
            "inputs are in a topic, in chunks of several producers, some of them sent twice",
            READS_TOPIC,
            has_input_topic=True,
            is_chunked=True,
            excludes=(*_BAD_ROWS, "checkpoint-rewound"),
            is_drawn=False,
        ),
        Condition(
            "from-history",
            "input",
            "the first inputs are read from a table, later ones from a topic",
            READS_HISTORY,
            has_input_topic=True,
            has_history=True,
            excludes=(*_BAD_ROWS, "checkpoint-rewound"),
        ),
        Condition(
            FROM_TIERED,
            "input",
            "inputs are in a topic, and are in tiered storage before they are readable",
            has_input_topic=True,
            is_tiered=True,
            leaves_out=frozenset({"namespace"}),
            excludes=(*_BAD_ROWS, *_AT_DELIVERY, "checkpoint-rewound"),
            is_drawn=False,
        ),
        Condition(
            ARCHIVING,
            "input",
            "inputs are in a topic, which `eos catalog archive --follow --trim` archives meanwhile",
            has_input_topic=True,
            has_archive=True,
            # Of each record the topic has one.
            leaves_out=frozenset({"query", "namespace"}),
            # Nothing else keeps the messages.
            excludes=(
                *_BAD_ROWS,
                "checkpoint-rewound",
                "input-unsubscribed",
                "input-partition-added",
            ),
            is_drawn=False,
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
    """Run the operators of the conditions while the block runs."""
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
