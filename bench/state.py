"""A service that counts messages by key in a ``KeyedState`` under kills: exact, and how fast."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Annotated, Final

import numpy as np
import pyarrow.compute as pc
import typer

from bench.environment import BROKER_CONFIG, BROKER_JVM, Spread, machine
from bench.publish import OUT, OutFolder, progress, publish
from eos import KeyedState, PulsarClient
from eos.errors import ConsumerBusy
from eos.retry import attempts
from eos.testing import PulsarStandalone
from examples._demo.demo_topic import read_all
from examples._demo.subprocesses import follow_parent

_TOPIC: Final = "/v2/persistent/public/default"
_INPUT, _STATE, _TOTALS = "numbers", "state", "totals"
_SUBSCRIPTION: Final = "counts"
_OWNER: Final = "__eos.owner"
_BATCH: Final = 10_000  # messages of a transaction
_COMPACT_EVERY: Final = 5  # lives
_IDLE_S: Final = 2.0
_WAIT_S: Final = 60.0
_PAUSE_S: Final = 0.2  # at most, from the last step of a life to its kill


def state_service(url: str) -> None:
    """Print keys and seconds of the restore; then, of each step, its messages and seconds."""
    follow_parent()
    with (
        PulsarClient(url) as client,
        attempts(_WAIT_S, retry_on=(ConsumerBusy,))(
            client.consumer, _INPUT, _SUBSCRIPTION
        ) as numbers,
        client.producer(_TOTALS, create=True) as totals,
    ):
        began = time.perf_counter()
        with KeyedState(client, _STATE, numbers) as counts:
            print(len(counts), time.perf_counter() - began, flush=True)
            while True:
                began = time.perf_counter()
                messages = numbers.receive_batch(_BATCH, timeout_s=_IDLE_S)
                with counts.transaction() as txn:
                    for message in messages:
                        assert message.key is not None
                        count = b"%d" % (int(counts.get(message.key, b"0")) + 1)
                        counts.put(message.key, count, txn)
                        totals.send(count, key=message.key, txn=txn)
                    numbers.acknowledge(messages, txn)
                print(len(messages), time.perf_counter() - began, flush=True)


def state(
    messages: Annotated[int, typer.Option(min=200_000)] = 10_000_000,
    keys: Annotated[int, typer.Option(min=1)] = 1_000_000,
    kills: Annotated[int, typer.Option(min=1)] = 50,
    out: OutFolder = OUT,
) -> None:
    """Count messages by key under kills; compare with the input; write state.json.

    Exit codes: 0 each message was counted once; 1 not so.
    """
    console, tell = progress()
    drawn = np.random.default_rng(2013).integers(keys, size=messages)
    expected = np.bincount(drawn, minlength=keys)
    with PulsarStandalone(jvm_options=BROKER_JVM, config=BROKER_CONFIG) as broker:
        with PulsarClient(broker.service_url) as client:
            tell(f"sending {messages:,} messages of {keys:,} keys")
            with client.producer(_INPUT, create=True) as producer:
                client.consumer(_INPUT, _SUBSCRIPTION).close()  # it keeps the messages
                for key in drawn:
                    producer.send(b"", key=str(key))
        restores, steps = [], []
        for number, life in enumerate(_lives(messages, kills)):
            restored, done = _live(broker, life)
            restores.append(restored)
            steps += done
            tell(
                f"life {number + 1}: {restored[0]:,} keys restored in {restored[1]:.1f} s, "
                f"{sum(count for count, _ in done):,} messages counted"
            )
            if number % _COMPACT_EVERY == 0:
                broker.admin("PUT", f"{_TOPIC}/{_STATE}/compaction")
        tell("reading state and totals")
        wrong = _wrong_keys(broker, expected), wrong_totals(_sent(broker), expected)
    results = {
        "machine": machine(),
        "messages": messages,
        "keys": int(np.count_nonzero(expected)),
        "kills": kills,
        "keys_wrong": wrong[0],
        "totals_doubled_or_missing": wrong[1],
        "messages_per_s_between_kills": round(sum(n for n, _ in steps) / sum(s for _, s in steps)),
        "restored_keys_per_s": vars(
            Spread.of([count / seconds for count, seconds in restores if count > keys // 2], 0)
        ),
    }
    publish(results, out / "state.json")
    console.print_json(json.dumps({k: v for k, v in results.items() if k != "machine"}))
    raise typer.Exit(int(any(wrong)))


def _lives(messages: int, kills: int) -> Iterator[tuple[int | None, float]]:
    """Yield for each life its steps and the pause before its kill; None: until all is counted."""
    chance = np.random.default_rng(2013)
    most = max(1, 2 * messages // _BATCH // (kills + 1) - 1)
    for _ in range(kills):
        yield int(chance.integers(1, most, endpoint=True)), chance.uniform(0, _PAUSE_S)
    yield None, 0.0


def _live(
    broker: PulsarStandalone, life: tuple[int | None, float]
) -> tuple[tuple[int, float], list[tuple[int, float]]]:
    """Run the service for a life; return what its restore and its steps printed.

    Raises:
        RuntimeError: it ended by itself.
    """
    command = [sys.executable, "-m", "bench", "state-service", broker.service_url]
    steps, pause_s = life
    done: list[tuple[int, float]] = []
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as service:

        def line() -> tuple[int, float]:
            assert service.stdout is not None
            count, _, seconds = service.stdout.readline().partition(" ")
            if not seconds:
                raise RuntimeError("the service ended by itself")
            return int(count), float(seconds)

        try:
            restored = line()
            while steps is None or len(done) < steps:
                step = line()
                if not step[0]:  # all is counted
                    break
                done.append(step)
            time.sleep(pause_s)
        finally:
            service.kill()
    return restored, done


def _wrong_keys(broker: PulsarStandalone, expected: np.ndarray) -> int:
    """Return how many keys have another count than the input, by a plain reader."""
    found = np.zeros(len(expected), np.int64)
    for message in read_all(broker.service_url, _STATE):
        if message.partition_key() != _OWNER:
            found[int(message.partition_key())] = int(message.data())
    return int(np.count_nonzero(found != expected))


def _sent(broker: PulsarStandalone) -> np.ndarray:
    """Return keys and totals, in two rows."""
    batches = []
    with (
        PulsarClient(broker.service_url) as client,
        client.reader(_TOTALS, columns=("key", "value")) as reader,
    ):
        for batch in reader.read_to(client.topic_bounds(_TOTALS).final_bounds().last_id):
            both = (pc.cast(pc.cast(batch[name], "string"), "int64") for name in ("key", "value"))
            batches.append(np.stack([column.to_numpy() for column in both]))
    return np.concatenate(batches, axis=1)


def wrong_totals(sent: np.ndarray, expected: np.ndarray) -> int:
    """Return how many totals were sent twice or never: those of a key are 1, 2, .. to its count.

    ``sent``: keys and totals, in two rows; ``expected``: the count of each key.
    """
    different = np.unique(sent, axis=1)
    is_wanted = (different[1] >= 1) & (different[1] <= expected[different[0]])
    wanted = int(np.count_nonzero(is_wanted))
    return int(sent.shape[1] + expected.sum()) - 2 * wanted
