"""Count the messages of a topic by key, in a process that tests kill and stop.

It sends the new count of each message's key. Prints the number of messages of each commit.

``python -m tests.client.keyed_counter URL FROM STATE TO``
"""

from __future__ import annotations

import contextlib
import sys

from eos import KeyedState, PulsarClient
from eos.errors import ConsumerBusy, Fenced, Retriable
from eos.retry import attempts


def main(url: str, source: str, topic: str, target: str) -> None:
    """Count until no message arrives for five seconds, or another process owns the state."""
    with (
        PulsarClient(url, timeout_s=20) as client,
        attempts(30, retry_on=(ConsumerBusy,))(client.consumer, source, "counter") as consumer,
        client.producer(target) as producer,
        KeyedState(client, topic, consumer) as counts,
    ):
        while messages := consumer.receive_batch(50, timeout_s=5):
            try:
                # The messages of a failed transaction come again.
                with contextlib.suppress(Retriable), counts.transaction(timeout_s=60) as txn:
                    for message in messages:
                        assert isinstance(message.key, str)
                        count = int(counts.get(message.key, b"0")) + 1
                        counts.put(message.key, b"%d" % count, txn)
                        producer.send(b"%d" % count, key=message.key, txn=txn)
                    consumer.acknowledge(messages, txn=txn)
                    txn.commit()
                    print(len(messages), flush=True)
            except Fenced:
                print("fenced", flush=True)
                return
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
