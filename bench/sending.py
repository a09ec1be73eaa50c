"""Sending messages one by one, as an application does, until all are confirmed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Final

import pulsar
import typer

from bench.environment import Environment, environment, interleaved_rates, machine
from bench.publish import OUT, OutFolder, Page, progress, publish
from eos.client import PulsarClient
from eos.client.aio import AsyncPulsarClient

_VALUE: Final = b"." * 100
_AWAITED: Final = 1000
"""The calls of ``send`` in one ``gather``."""

WAYS: Final = {
    "eos": "**eos**, `producer.send`",
    "eos_transaction": "**eos**, `producer.send` in a transaction, commit included",
    "eos_keys": "**eos**, `producer.send` with keys, four partitions",
    "eos_asyncio": "**eos**, `asyncio`, `gather` of 1,000 `send`",
    "pulsar_client": "`pulsar-client`, `send_async` with batches",
    "pulsar_client_keys": "`pulsar-client`, `send_async` with keys, four partitions",
}


def _eos(url: str, topic: str, rows: int, *, in_transaction: bool = False) -> float:
    with PulsarClient(url) as client, client.producer(topic) as producer:
        if not in_transaction:
            futures = [producer.send(_VALUE) for _ in range(rows)]
            producer.flush()
        else:
            with client.transaction(timeout_s=120) as txn:
                futures = [producer.send(_VALUE, txn=txn) for _ in range(rows)]
        assert all(future.done() and future.exception() is None for future in futures)
    return rows


def _eos_keys(url: str, topic: str, rows: int) -> float:
    with PulsarClient(url) as client, client.producer(topic) as producer:
        futures = [producer.send(_VALUE, key=str(row)) for row in range(rows)]
        producer.flush()
        assert all(future.done() and future.exception() is None for future in futures)
    return rows


def _eos_asyncio(url: str, topic: str, rows: int) -> float:
    async def send_all() -> None:
        async with AsyncPulsarClient(url) as client:
            producer = await client.producer(topic)
            for _ in range(rows // _AWAITED):
                await asyncio.gather(*(producer.send(_VALUE) for _ in range(_AWAITED)))

    asyncio.run(send_all())
    return rows


def _pulsar_client(url: str, topic: str, rows: int, *, with_keys: bool = False) -> float:
    client = pulsar.Client(url, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    failed: list[pulsar.Result] = []
    all_sent = threading.Event()
    left = rows

    def sent(result: pulsar.Result, _: pulsar.MessageId) -> None:
        nonlocal left
        if result != pulsar.Result.Ok:
            failed.append(result)
        left -= 1  # callbacks come from one thread
        if not left:
            all_sent.set()

    try:
        producer = client.create_producer(
            topic,
            batching_enabled=True,
            batching_max_publish_delay_ms=1,
            block_if_queue_full=True,
            max_pending_messages=50_000,
        )
        for row in range(rows):
            if with_keys:
                producer.send_async(_VALUE, sent, partition_key=str(row))
            else:
                producer.send_async(_VALUE, sent)
        producer.flush()
        assert all_sent.wait(60)
        assert not failed
    finally:
        client.close()
    return rows


def measure_sending(
    env: Environment, rows: int, rounds: int, tell: Callable[[str], None]
) -> dict[str, dict[str, float]]:
    """Return for each way its messages per second, as a spread; all messages are confirmed."""
    url = env.broker.service_url
    with env.topic(1) as single, env.topic(4) as keyed:
        one = f"{single}-partition-0"
        ways: Mapping[str, Callable[[], float]] = {
            "eos": partial(_eos, url, one, rows),
            "eos_transaction": partial(_eos, url, one, rows, in_transaction=True),
            "eos_keys": partial(_eos_keys, url, keyed, rows),
            "eos_asyncio": partial(_eos_asyncio, url, one, rows),
            "pulsar_client": partial(_pulsar_client, url, one, rows),
            "pulsar_client_keys": partial(_pulsar_client, url, keyed, rows, with_keys=True),
        }
        return interleaved_rates(env, ways, rounds, tell)


def tables(results: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    found = results["sending"]
    peer = found["pulsar_client"]["median"]
    lines = [
        f"{results['rows']:,} messages of {len(_VALUE)} bytes, from the first call until all are "
        "confirmed.",
        "",
        "| one process, one thread that sends | messages/s | p10 to p90 | to `pulsar-client` |",
        "|---|---:|---:|---:|",
    ]
    for name, text in WAYS.items():
        rate = found[name]
        between = f"{rate['p10']:,.0f} to {rate['p90']:,.0f}"
        ratio = f"{rate['median'] / peer:.2f}"
        lines.append(f"| {text} | {rate['median']:,.0f} | {between} | {ratio} |")
    return "\n".join(lines) + "\n"


def sending(
    rows: Annotated[int, typer.Option(help="Messages of a run.")] = 200_000,
    rounds: Annotated[int, typer.Option(help="Rounds that count.")] = 7,
    out: OutFolder = OUT,
    page: Page = None,
) -> None:
    """Send messages one by one, by eos and by pulsar-client; write sending.json."""
    console, tell = progress()
    with environment() as env:
        results = {
            "machine": machine(),
            "rows": rows,
            "sending": measure_sending(env, rows, rounds, tell),
        }
    text = tables(results)
    publish(results, out / "sending.json", text, page)
    console.print(text)
