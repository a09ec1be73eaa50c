"""A forked child that uses its parent's objects gets an error, and the parent is not harmed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Callable

import pytest

from eos import DeltaSink, PulsarSink, metrics
from eos.client import PulsarClient, worker_cache
from eos.client.aio import AsyncPulsarClient
from eos.commit_log import CommitLog
from eos.postgres.database import Database
from eos.postgres.participant import PostgresParticipant
from eos.pulsar import roll_call
from eos.transport import _oauth2
from eos.transport.auth import Auth
from tests.protocol.epochs import claim
from tests.support.judge import drain
from tests.support.token_server import token_server


def in_a_fork(act: Callable[[], object]) -> str:
    """Run ``act`` in a forked child for at most ten seconds; return its result or error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            said = f"returned {act()!r}"
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, json.dumps(said).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    return str(json.loads(content)) if content else f"killed by signal {os.WTERMSIG(status)}"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_does_not_end_its_parents_session_at_postgres():
    class Session:
        def close(self) -> None:
            raise AssertionError

    database = Database("postgresql://localhost/shop")
    participant = PostgresParticipant("a", database, "public", "orders", "eos")
    participant._open = Session()  # type: ignore[assignment]
    assert in_a_fork(participant.close) == "returned None"


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_token_that_a_parents_thread_fetches_is_fetched_by_its_fork_too(tmp_path):
    with token_server(tmp_path, "secret") as server:
        login = Auth(**server.options()).login
        asked, go_on = threading.Event(), threading.Event()
        server.before = lambda _: asked.set() or go_on.wait(20)
        fetching = threading.Thread(target=login.credentials, args=(20,))
        fetching.start()
        assert asked.wait(10)
        server.before = lambda _: None
        said = in_a_fork(lambda: login.credentials(5).decode())
        go_on.set()
        fetching.join(20)
    assert said in {f"returned {token!r}" for token in server.given}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    "lock",
    [_oauth2._cache_lock, worker_cache._lock, roll_call._progress_lock, metrics._lock],
    ids=["tokens", "clients", "roll calls", "metrics"],
)
def test_a_lock_of_the_process_is_free_in_a_fork_and_still_held_in_the_parent(lock):
    with lock:
        assert in_a_fork(lambda: lock.acquire(blocking=False)) == "returned True"
        assert lock.locked()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_objects_of_a_parent_raise_in_its_fork_and_still_work_in_the_parent(
    pulsar_standalone, tmp_path, name
):
    url = pulsar_standalone.service_url
    client = PulsarClient(url)
    producer = client.producer(name, create=True)
    producer.send(b"before").result()
    consumer, reader = client.consumer(name, "s"), client.reader(name)
    entries, tail, txn = (
        client.entry_producer(name),
        client.topic_bounds(name),
        client.transaction(),
    )
    aio = AsyncPulsarClient(url)
    log = CommitLog.open(tmp_path / "log", "orders")
    topic = PulsarSink(sink_id="a", service_url=url, topic=name, commit_log=str(tmp_path / "log"))
    table = DeltaSink(sink_id="b", table=str(tmp_path / "t"), commit_log=str(tmp_path / "log"))
    uses: dict[str, Callable[[], object]] = {
        "PulsarClient": lambda: client.producer(name),
        "PulsarClient ": lambda: client.__enter__(),
        "Producer": lambda: producer.send(b"x"),
        "Producer ": producer.flush,
        "Consumer": lambda: consumer.receive(1),
        "Reader": lambda: next(iter(reader.read(idle_s=1))),
        "Reader ": lambda: reader.last_id,
        "EntryProducer": lambda: entries.send(b"x"),
        "TopicBounds": tail.last_id,
        "Transaction": txn.commit,
        "AsyncPulsarClient": lambda: asyncio.run(aio.producer(name)),
        "CommitLog": lambda: log.append(claim()),
        "PulsarSink": lambda: topic.write(None, epoch="a"),
        "PulsarSink ": lambda: topic(None, 0),
        "DeltaSink": lambda: table.write(None, epoch="a"),
    }
    for kind, use in uses.items():
        said = in_a_fork(use)
        assert said.startswith(f"UsedAfterFork: This {kind.strip()} was made in process"), said
        assert "without a fork" in said
    fresh = in_a_fork(lambda: CommitLog.open(tmp_path / "log", "fresh"))
    assert fresh.startswith("UsedAfterFork: This process, ")
    assert "Delta's library does not work here" in fresh
    ends = (producer, consumer, reader, entries, tail, client, topic, table)
    assert in_a_fork(lambda: [one.close() for one in ends]) == f"returned {[None] * len(ends)}"
    assert in_a_fork(lambda: asyncio.run(aio.close())) == "returned None"

    def in_the_child() -> str:
        with PulsarClient(url) as own, own.producer(name) as writing:
            writing.send(b"by the child").result(10)
            return in_a_fork(lambda: writing.send(b"x"))

    assert "UsedAfterFork: This Producer" in in_a_fork(in_the_child)  # the child's own child
    producer.send(b"after", txn=txn)
    txn.commit()
    assert log.append(claim()).seq == 1
    assert {one.value for one in drain(url, name)} == {b"before", b"by the child", b"after"}
    assert consumer.receive(10).value == b"before"
    for one in ends:
        one.close()
    asyncio.run(aio.close())
