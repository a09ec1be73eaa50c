"""The service that the demo kills: it counts flights by route, and sends each new total.

``python -m examples.state.count_flights URL WAY``, with WAY ``eos`` or ``plain``. It prints the
number of keys that it has restored, then the number of messages of each step.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Final

import pulsar

from eos import KeyedState, PulsarClient
from eos.errors import ConsumerBusy
from eos.retry import attempts
from examples._demo.demo_topic import open_client
from examples._demo.subprocesses import follow_parent

INPUT: Final = "flights"
BATCH: Final = 2000
_WAIT_S: Final = 30.0
_IDLE_S: Final = 0.5


def add(total: bytes | None, flight: bytes) -> bytes:
    """Return the total of a route with one more flight: flights, minutes late."""
    count, late = json.loads(total or b"[0, 0]")
    return json.dumps([count + 1, late + (json.loads(flight) or 0)]).encode()


def count_with_eos(url: str) -> None:
    """State, totals and acknowledgements are committed together."""
    with (
        PulsarClient(url) as client,
        # The broker may not have noticed the end of the previous process yet.
        attempts(_WAIT_S, retry_on=(ConsumerBusy,))(client.consumer, INPUT, "eos") as flights,
        client.producer("totals-eos", create=True) as totals,
        KeyedState(client, "state-eos", flights) as state,
    ):
        print(len(state), flush=True)
        while True:
            messages = flights.receive_batch(BATCH, timeout_s=_IDLE_S)
            with state.transaction() as txn:
                for message in messages:
                    assert message.key is not None
                    total = add(state.get(message.key), message.value or b"")
                    state.put(message.key, total, txn)
                    totals.send(total, key=message.key, txn=txn)
                flights.acknowledge(messages, txn)
            print(len(messages), flush=True)


def count_plainly(url: str) -> None:
    """As without transactions: totals, then state, then acknowledgements."""
    client = open_client(url)
    state = {}
    reader = client.create_reader("state-plain", pulsar.MessageId.earliest, is_read_compacted=True)
    while reader.has_message_available():
        message = reader.read_next(10_000)
        state[message.partition_key()] = message.data()
    flights = attempts(_WAIT_S, retry_on=(pulsar.ConsumerBusy,))(  # type: ignore[arg-type]
        client.subscribe, INPUT, "plain", initial_position=pulsar.InitialPosition.Earliest
    )
    totals = client.create_producer("totals-plain", batching_enabled=True)
    saved = client.create_producer("state-plain", batching_enabled=True)
    print(len(state), flush=True)
    while True:
        messages: list[pulsar.Message] = []
        with contextlib.suppress(pulsar.Timeout):
            messages.append(flights.receive(int(_IDLE_S * 1000)))
            while len(messages) < BATCH:
                messages.append(flights.receive(5))
        for message in messages:
            key = message.partition_key()
            state[key] = add(state.get(key), message.data())
            totals.send_async(state[key], None, partition_key=key)
        totals.flush()
        for key in {message.partition_key() for message in messages}:
            saved.send_async(state[key], None, partition_key=key)
        saved.flush()
        for message in messages:
            flights.acknowledge(message)
        print(len(messages), flush=True)


if __name__ == "__main__":
    follow_parent()
    {"eos": count_with_eos, "plain": count_plainly}[sys.argv[2]](sys.argv[1])
