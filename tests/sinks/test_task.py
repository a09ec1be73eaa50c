"""The parts of a task that don't need Spark."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

from eos.client.worker_cache import ClientOptions
from eos.errors import ConnectionLost, EosError, TopicNotFound
from eos.ids import MessageId, TxnId
from eos.pulsar.roll_call import RollCall
from eos.sinks import _task
from eos.sinks._task import WriteTask, _PartitionWriter, _Run, gathered
from eos.transport.auth import Auth
from eos.wire.batch import Compression, Hashing


def batch(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.int64())})


def test_small_batches_are_joined_in_order_until_they_are_large_enough():
    joined = list(gathered([batch(1), batch(2), batch(3), batch(4), batch(5)], 16))
    assert [b.column(0).to_pylist() for b in joined] == [[1, 2], [3, 4], [5]]


def test_a_large_batch_is_not_copied():
    large = batch(*range(100))
    (passed,) = gathered([large], 16)
    assert passed is large


def write_task(*, spread: bool = False, partitions: int = 1) -> WriteTask:
    return WriteTask(
        client=options(),
        txn=TxnId(0, 1),
        call=RollCall("persistent://public/default/receipts", MessageId(1, 0), "m"),
        after=(),
        reuse=False,
        topics=("t",) * partitions,
        creation=None,
        spread=spread,
        max_batch_bytes=10,
        compression=Compression.NONE,
        hashing=Hashing.JAVA,
        by_key=False,
        tombstones=False,
        schema=None,
        value_type=None,
    )


@pytest.mark.parametrize(
    ("spread", "partitions", "wanted"), [(False, 64, 10), (True, 1, 10), (True, 4, 40)]
)
def test_only_rows_that_are_split_by_key_are_held_back(spread, partitions, wanted):
    assert write_task(spread=spread, partitions=partitions).gathered_bytes == wanted


class Closing:
    """A partition's writer whose close takes a while, or fails immediately."""

    def __init__(self, seen: list[str], failure: Exception | None) -> None:
        self.seen, self.failure = seen, failure
        self.successor = None

    def close(self, *, reuse: bool) -> str:
        if self.failure:
            raise self.failure
        time.sleep(0.05)
        self.seen.append("closed")
        return "figures"

    def abandon(self) -> None:
        self.seen.append("abandoned")


def closing(
    monkeypatch, *failures: Exception | None, reuse: bool = False, poison: EosError | None = None
) -> tuple[object, list[str]]:
    """Return the result or error of a task with such writers, and the order of events."""
    seen: list[str] = []

    def check() -> None:
        if poison:
            raise poison

    txn = SimpleNamespace(settle=lambda: seen.append("settled"), check=check, registered=("t",))
    client = SimpleNamespace(join=lambda _: txn, limit_hit=False)
    monkeypatch.setattr(_task, "cached_client", lambda _: nullcontext(client))
    writers = {f"t-{n}": Closing(seen, failure) for n, failure in enumerate(failures)}
    monkeypatch.setattr(RollCall, "answer", lambda *_args, **_named: "run")
    monkeypatch.setattr(_Run, "_send", lambda *args: args[5].update(writers))
    try:
        task = replace(write_task(), reuse=reuse)
        return _Run(task, 0)._connect_and_send([]), seen
    except EosError as error:
        return error, seen


def test_a_task_that_fails_while_closing_waits_for_its_sends(monkeypatch):
    failure = ConnectionLost("x")
    assert closing(monkeypatch, failure) == (failure, ["settled", "abandoned"])


@pytest.mark.parametrize("place", [0, 1, 40])
def test_a_failure_of_one_of_many_closes_is_reported(monkeypatch, place):
    failures: list[Exception | None] = [None] * 41
    failures[place] = ConnectionLost("x")
    error, seen = closing(monkeypatch, *failures)
    assert error is failures[place]
    assert seen[-42:] == ["settled", *["abandoned"] * 41]
    assert "settled" not in seen[:-42]


def test_a_failed_task_keeps_no_producers(monkeypatch):
    failed = closing(monkeypatch, None, ConnectionLost("x"), None, reuse=True)[1]
    assert failed[-4:] == ["settled", *["abandoned"] * 3]
    poisoned = closing(monkeypatch, None, reuse=True, poison=ConnectionLost("x"))[1]
    assert poisoned == ["closed", "settled", "abandoned"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_task_closes_all_its_producers(monkeypatch, count):
    figures, seen = closing(monkeypatch, *[None] * count)
    assert figures == (("figures",) * count, ("t",), ())
    assert seen == ["closed"] * count


def test_a_topic_deleted_under_a_task_is_reported_without_an_option(monkeypatch):
    def gone(*_args, **_named):
        raise TopicNotFound("no such topic", hint="open the producer with create=True")

    monkeypatch.setattr(RollCall, "answer", gone)
    error = _Run(write_task(), 0).write([batch(1)]).error
    assert error is not None
    assert (error.kind, error.hint) == ("TopicNotFound", TopicNotFound.deleted_hint)


def options(port: int = 6650, **others) -> ClientOptions:
    known = {"auth": Auth(), "timeout_s": 5.0, "max_pending_bytes": 1000}
    return ClientOptions(service_url=f"pulsar://127.0.0.1:{port}", **{**known, **others})


def test_close_waits_for_results_of_arrived_acknowledgements():
    """``flush`` may return between the two."""
    told: Future[MessageId] = Future()
    successor = SimpleNamespace()
    producer = SimpleNamespace(topic="t", name="p", transfer=lambda: successor)
    writer = _PartitionWriter(producer, SimpleNamespace(), acknowledgements=[told])
    threading.Timer(0.1, told.set_result, [MessageId(1, 2)]).start()
    assert writer.close(reuse=True).last_id == MessageId(1, 2)
    assert writer.successor is successor
