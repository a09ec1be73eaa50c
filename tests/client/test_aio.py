"""The client for asyncio: its operations, and the effects of cancelled tasks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable

import pytest

from eos.chaos.cluster.proxy import FrameAction
from eos.client._event_loop import ThreadPool
from eos.client.aio import AsyncPulsarClient
from eos.errors import EosError, Fatal, TopicNotFound, TransactionPoisoned
from eos.wire import commands
from tests.client.test_entry_reader_faults import TOPIC, Broker, sending
from tests.transport.scripted import wait_until


def run(url: str, test: Callable[[AsyncPulsarClient], Awaitable[None]], timeout_s: float = 20):
    async def within() -> None:
        async with AsyncPulsarClient(url, timeout_s=timeout_s) as client:
            await test(client)

    asyncio.run(within(), debug=False)


async def until(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def cancelled(task: asyncio.Task[object]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def passing_after(event: threading.Event) -> Callable[[object], FrameAction]:
    """A rule that forwards a frame when ``event`` is set."""

    def rule(_: object) -> FrameAction:
        event.wait(15)
        return FrameAction.PASS

    return rule


def test_consume_transform_produce(pulsar_standalone, name, values):
    async def work(client: AsyncPulsarClient) -> None:
        source = await client.producer(f"{name}-in", create=True)
        target = await client.producer(name, create=True)
        ids = await asyncio.gather(*(source.send(b"%d" % n) for n in range(100)))
        assert sorted(ids) == list(ids)
        async with await client.consumer(f"{name}-in", "s") as consumer:
            done = 0
            while done < 100:
                messages = await consumer.receive_batch(30, timeout_s=10)
                async with client.transaction() as txn:
                    for message in messages:
                        task = asyncio.ensure_future(target.send(message.value, txn=txn))
                        await asyncio.sleep(0)
                        del task
                    await consumer.acknowledge(messages, txn=txn)
                done += len(messages)
        async with await client.consumer(f"{name}-in", "s") as consumer:
            assert await consumer.receive(timeout_s=0.5) is None
        await target.close()

    run(pulsar_standalone.service_url, work)
    assert values() == [b"%d" % n for n in range(100)]


def test_messages_are_iterated_over(pulsar_standalone, name):
    async def work(client: AsyncPulsarClient) -> None:
        async with await client.producer(name, create=True) as producer:
            await asyncio.gather(*(producer.send(b"%d" % n) for n in range(5)))
        async with await client.consumer(name, "s") as consumer:
            seen = []
            async for message in consumer:
                seen.append(message.value)
                if len(seen) == 5:
                    break
        assert seen == [b"%d" % n for n in range(5)]

    run(pulsar_standalone.service_url, work)


def test_a_block_that_raises_or_is_cancelled_aborts(pulsar_standalone, name, values):
    async def work(client: AsyncPulsarClient) -> None:
        producer = await client.producer(name, create=True)

        async def fail() -> None:
            async with client.transaction() as txn:
                await producer.send(b"x", txn=txn)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        entered = asyncio.Event()

        async def wait() -> None:
            async with client.transaction() as txn:
                await producer.send(b"y", txn=txn)
                entered.set()
                await asyncio.sleep(60)

        task = asyncio.ensure_future(wait())
        await entered.wait()
        await cancelled(task)
        await producer.send(b"z")

    run(pulsar_standalone.service_url, work)
    assert values() == [b"z"]


def test_a_cancelled_send_counts_for_the_commit(pulsar_standalone, name, values):
    async def work(client: AsyncPulsarClient) -> None:
        producer = await client.producer(name, create=True, linger_ms=10_000)
        async with client.transaction() as txn:
            task = asyncio.ensure_future(producer.send(b"x", txn=txn))
            await asyncio.sleep(0)
            await cancelled(task)

    run(pulsar_standalone.service_url, work)
    assert values() == [b"x"]


def test_a_cancelled_send_that_fails_poisons_the_transaction(proxy, name, values):
    async def work(client: AsyncPulsarClient) -> None:
        producer = await client.producer(name, create=True, linger_ms=1)

        async def write() -> None:
            async with client.transaction() as txn:
                task = asyncio.ensure_future(producer.send(b"x", txn=txn))
                await asyncio.sleep(0)
                await cancelled(task)

        with proxy.fault(commands.Send, FrameAction.CUT_AFTER), pytest.raises(TransactionPoisoned):
            await write()

    run(proxy.service_url, work, 5)
    assert values() == []


def test_a_cancelled_commit_waits_until_it_is_committed(proxy, name, values):
    async def work(client: AsyncPulsarClient) -> None:
        producer = await client.producer(name, create=True)
        transaction = client.transaction()
        await transaction.__aenter__()
        await producer.send(b"x", txn=transaction)
        answered = threading.Event()
        with proxy.fault(commands.EndTxnResponse, passing_after(answered)):
            task = asyncio.ensure_future(transaction.commit())
            await until(lambda: proxy.seen[commands.EndTxnResponse])
            for _ in range(3):  # any number of times
                task.cancel()
                await asyncio.sleep(0.05)
            assert not task.done()
            answered.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(proxy.service_url, work)
    assert values() == [b"x"]


def test_what_is_begun_for_a_cancelled_task_is_aborted(proxy, name):
    async def work(client: AsyncPulsarClient) -> None:
        answered = threading.Event()
        with proxy.fault(commands.NewTxnResponse, passing_after(answered)):
            task = asyncio.ensure_future(client.transaction().__aenter__())
            await until(lambda: proxy.seen[commands.NewTxnResponse])
            await cancelled(task)
            answered.set()
            await until(lambda: proxy.seen[commands.EndTxn] == 1)

    run(proxy.service_url, work)


def test_what_comes_for_a_cancelled_task_is_the_next_ones():
    may_send = threading.Event()

    def deliver(peer, consumer_id):
        may_send.wait(10)
        sending(1, 2)(peer, consumer_id)

    async def work(client: AsyncPulsarClient) -> None:
        consumer = await client.consumer(TOPIC, "s")
        task = asyncio.ensure_future(consumer.receive(timeout_s=30))
        await asyncio.sleep(0.1)
        await cancelled(task)
        may_send.set()
        values = [(await consumer.receive(timeout_s=10)).value for _ in range(2)]
        assert values == [b"1", b"2"]

    broker = Broker(deliver)
    with broker:
        run(broker.url, work)


def test_the_loop_never_waits(proxy, name):
    """While the broker is silent, other tasks keep running."""

    async def work(client: AsyncPulsarClient) -> None:
        producer = await client.producer(name, create=True, max_batch_messages=1)
        longest = 0.0

        async def tick() -> None:
            nonlocal longest
            while True:
                before = time.monotonic()
                await asyncio.sleep(0.01)
                longest = max(longest, time.monotonic() - before)

        with proxy.fault(commands.SendReceipt, FrameAction.DROP):
            ticking = asyncio.ensure_future(tick())
            with pytest.raises(EosError):
                await asyncio.gather(producer.send(b"x"), producer.flush())
        ticking.cancel()
        assert longest < 5

    run(proxy.service_url, work, 6)


def test_errors_are_those_of_the_blocking_client(pulsar_standalone, name):
    async def work(client: AsyncPulsarClient) -> None:
        with pytest.raises(TopicNotFound):
            await client.producer(name)
        with pytest.raises(RuntimeError, match="async with"):
            await client.transaction().commit()

    run(pulsar_standalone.service_url, work)


def test_a_closed_client_leaves_no_thread(pulsar_standalone, name):
    async def work(client: AsyncPulsarClient) -> None:
        async with await client.producer(name, create=True) as producer:
            await producer.send(b"x")

    before = set(threading.enumerate())
    run(pulsar_standalone.service_url, work)
    ours = ("eos-asyncio", "eos-timer")
    wait_until(
        lambda: (
            not [one for one in set(threading.enumerate()) - before if one.name.startswith(ours)]
        )
    )


def test_several_topics_are_consumed_as_one(pulsar_standalone, name):
    async def work(client: AsyncPulsarClient) -> None:
        for number in range(3):
            async with await client.producer(f"{name}-{number}", create=True) as producer:
                await producer.send(b"%d" % number)
        topics = [f"{name}-{number}" for number in range(3)]
        opened = await client.topics_consumer(topics, "judge", type="shared", retry=True)
        async with opened as consumer:
            assert len(consumer.topics) == 4
            seen = [await consumer.receive(10) for _ in range(3)]
            assert sorted(one.value for one in seen) == [b"0", b"1", b"2"]
            async with client.transaction() as txn:
                await consumer.retry_later(seen[0], 0.0, txn)
                await consumer.acknowledge(seen[1:], txn)
            async for again in consumer:
                assert again.value == seen[0].value
                await consumer.acknowledge(again)
                break
            await consumer.seek(0)
            assert await consumer.receive(10) is not None

    run(pulsar_standalone.service_url, work)


def test_messages_come_again_and_are_acknowledged_up_to_one(pulsar_standalone, name):
    async def work(client: AsyncPulsarClient) -> None:
        async with await client.producer(name, create=True) as producer:
            for number in range(4):
                await producer.send(b"%d" % number)
        async with await client.consumer(name, "judge") as consumer:
            seen = [await consumer.receive(10) for _ in range(3)]
            # A task that is cancelled while it receives leaves its message for the next one, but
            # not behind a redelivery.
            task = asyncio.create_task(consumer.receive(10))
            await asyncio.sleep(0)
            task.cancel()
            await consumer.redeliver()
            consumer._put_back(0, seen[:1])  # as for another one that was cancelled before
            again = [await consumer.receive(10) for _ in range(4)]
            assert [one.value for one in again] == [b"0", b"1", b"2", b"3"]
            async with client.transaction() as txn:
                await consumer.acknowledge_cumulative(again[2], txn)
            await consumer.redeliver(again[3:])
            assert (await consumer.receive(10)).value == b"3"
            assert [one.value for one in seen] == [b"0", b"1", b"2"]
        async with await client.consumer(name, "judge") as consumer:
            assert (await consumer.receive(10)).value == b"3"
            assert await consumer.receive(0.5) is None

    run(pulsar_standalone.service_url, work)


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_no_old_copy_is_left_when_some_messages_come_again(pulsar_standalone, name, kind):
    async def work(client: AsyncPulsarClient) -> None:
        producer = await client.producer(name, create=True, linger_ms=0)
        for number in range(3):
            await producer.send(b"%d" % number)
        async with await client.consumer(name, "judge", type=kind) as consumer:
            first, second = [await consumer.receive(10) for _ in range(2)]
            consumer._put_back(0, [second])  # as for a cancelled task
            await consumer.redeliver([first])
            seen = []
            for _ in range(3):
                message = await consumer.receive(10)
                await consumer.acknowledge(message)
                seen.append(message.value)
            assert sorted(seen) == [b"0", b"1", b"2"]
            assert await consumer.receive(0.5) is None

    run(pulsar_standalone.service_url, work)


def test_what_is_closed_says_so(pulsar_standalone, name):
    async def work(client: AsyncPulsarClient) -> None:
        await client.producer(name, create=True)
        consumer = await client.consumer(name, "judge")
        await consumer.close()
        for call in (lambda: consumer.receive(1), lambda: consumer.receive_batch(9, 1)):
            with pytest.raises(Fatal, match="is closed"):
                await call()

    run(pulsar_standalone.service_url, work)


def test_a_cancelled_send_of_a_full_batch_is_sent_all_the_same(client, name):
    """As if all threads were busy when the task was cancelled: nobody calls what would send it."""
    with client.producer(name, create=True, max_batch_messages=1, linger_ms=10) as producer:
        stored, send_full = producer.enqueue(b"a", None, None, None, None, None)
        assert send_full is not None
        assert stored.result(10).entry == 0


def test_what_undoes_a_cancelled_call_is_not_run_by_the_loop():
    ran_by: list[str] = []

    async def cancelled() -> None:
        pool = ThreadPool(1)
        undo = lambda _: ran_by.append(threading.current_thread().name)  # noqa: E731
        called = threading.Event()
        task = asyncio.create_task(pool.run(called.set, undo=undo))
        await asyncio.sleep(0)
        assert called.wait(30)
        time.sleep(0.1)  # the call has ended, and the loop has not noticed it
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await pool.run(lambda: None)

    asyncio.run(cancelled())
    assert ran_by
    assert ran_by[0] != threading.main_thread().name
