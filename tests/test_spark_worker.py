"""Spark's Python workers: frozen imports, and no delayed acknowledgements."""

from __future__ import annotations

import fcntl
import os
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructType

from eos import spark_worker
from eos.delta.staging import StagingTarget
from eos.sinks._datasource_tasks import Writing
from eos.sinks._stage_task import StageTask
from eos.sinks._upserts import Upserts
from eos.sinks.dataframe_columns import layout_of
from eos.sinks.options import WriterOptions
from eos.sources._source_options import SourceOptions
from eos.sources._spark_columns import row_format, schema_of_source
from eos.sources.data_source import PulsarBatchReader, PulsarStreamReader, values_of
from eos.spark_worker import disable_delayed_acks
from tests.sinks.test_task import write_task

CODE = """
import gc, pyarrow
from eos.spark_worker import freeze_imports
freeze_imports()
frozen, known = gc.get_freeze_count(), len(gc.get_objects())
assert frozen > 10_000 > known, (frozen, known)
later = [[] for _ in range(1000)]
freeze_imports()
assert gc.get_freeze_count() <= frozen
for one in later:
    one.append(one)
del later, one
assert gc.collect() >= 1000
"""
linux = pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="only Linux has it")


def test_imports_are_frozen_once_and_later_objects_are_collected():
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@pytest.fixture
def connection() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends; the second one delays acknowledgements, as after several round trips."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
        with ours, theirs:
            for _ in range(50):
                ours.sendall(b"question")
                theirs.recv(8)
                theirs.sendall(b"answer")
                ours.recv(6)
            yield ours, theirs


def is_quick(connection: socket.socket) -> bool:
    return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK))


def unacknowledged(connection: socket.socket) -> int:
    """``tcpi_unacked``, in segments."""
    info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    return int(struct.unpack_from("=8B24I", info)[12])


@linux
def test_pending_data_is_acknowledged_now_and_later_data_when_read(connection):
    ours, theirs = connection
    ours.sendall(b"a task's command")
    theirs.recv(16)
    assert not is_quick(theirs)
    disable_delayed_acks()
    assert is_quick(theirs)
    assert unacknowledged(ours) == 0
    ours.sendall(b"rows")
    theirs.recv(4)
    assert unacknowledged(ours) == 0


@linux
def test_connections_stay_blocking_with_a_default_timeout(connection):
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(1.0)
    try:
        disable_delayed_acks()
    finally:
        socket.setdefaulttimeout(before)
    ours, theirs = connection
    ours.sendall(b"x")
    assert theirs.recv(1) == b"x"
    assert not is_non_blocking(theirs)


@linux
def test_connections_of_other_kinds_and_files_are_skipped(connection, tmp_path):
    with (tmp_path / "file").open("w"):
        ours, theirs = socket.socketpair()  # Unix domain sockets, as Spark may use them
        with ours, theirs:
            disable_delayed_acks()
            ours.sendall(b"x")
            assert theirs.recv(1) == b"x"
    assert is_quick(connection[1])


@linux
def test_a_system_without_the_option_is_unchanged(connection, monkeypatch):
    monkeypatch.setattr(spark_worker, "_QUICK_ACK", None)
    disable_delayed_acks()
    assert not is_quick(connection[1])


def is_non_blocking(connection: socket.socket) -> bool:
    return bool(fcntl.fcntl(connection.fileno(), fcntl.F_GETFL) & os.O_NONBLOCK)


def connections() -> Iterator[socket.socket]:
    """The TCP connections of this process; their owners keep them."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # not a connection
            connection = socket.socket(fileno=descriptor)
            try:
                is_quick(connection)
                yield connection
            finally:
                connection.detach()


def quick_connections() -> int:
    """How many connections of this process acknowledge without delay."""
    return sum(map(is_quick, connections()))


def delay_acknowledgements() -> None:
    """Delay them, as the kernel does after several round trips until a delay was useless."""
    for connection in connections():
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)


class RowsRequested(Exception):
    """The task has asked for its rows."""


@pytest.fixture
def rows(connection, monkeypatch) -> Iterator[pa.RecordBatch]:
    """A task's rows; the test fails if delayed acknowledgements are still enabled."""
    monkeypatch.setattr(TaskContext, "get", lambda: SimpleNamespace(partitionId=lambda: 0))

    def look() -> Iterator[pa.RecordBatch]:
        assert is_quick(connection[1])
        raise RowsRequested
        yield

    return look()


@linux
def test_the_sinks_task_disables_delayed_acks_before_it_reads(rows):
    with pytest.raises(RowsRequested):
        next(write_task()(rows))


@linux
def test_the_stage_task_disables_delayed_acks_before_it_reads(rows, tmp_path):
    target = StagingTarget(str(tmp_path), pa.schema([("value", pa.int64())]))
    with pytest.raises(RowsRequested):
        next(StageTask(target, "attempt", ("value",), Upserts((), (), None))(rows))


@linux
def test_the_writers_tasks_disable_delayed_acks_before_they_read(rows, tmp_path):
    given = {"serviceUrl": "pulsar://localhost", "topic": "t", "sinkId": "s"}
    options = WriterOptions.of_batch(given | {"commitLog": str(tmp_path)}, overwrite=False)
    writing = Writing(options, layout_of(StructType().add("value", StringType())))
    with pytest.raises(RowsRequested):
        next(writing.rows(rows))


@linux
@pytest.mark.parametrize("kind", [PulsarBatchReader, PulsarStreamReader])
def test_a_reader_disables_delayed_acks_when_it_is_unpickled(kind, connection):
    options = SourceOptions.parse(
        {"topic": "t", "serviceUrl": "pulsar://localhost", "schema": "bytes"}
    )
    values = values_of(options)
    form = row_format(values, schema_of_source(values, metadata=False))
    there = pickle.dumps(kind(options, form))
    assert not is_quick(connection[1])
    pickle.loads(there)
    assert is_quick(connection[1])


@linux
def test_sparks_connection_is_among_them(spark):
    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        delay_acknowledgements()
        before = quick_connections()
        disable_delayed_acks()
        yield pa.RecordBatch.from_pydict({"before": [before], "after": [quick_connections()]})
        for _ in batches:
            pass

    found = spark.range(8).repartition(1).mapInArrow(look, "before long, after long").collect()[0]
    assert found.before < found.after
