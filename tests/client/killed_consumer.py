"""Copy each message of one topic to another, once, in a process that tests kill.

Prints the number of messages of each commit.

``python -m tests.client.killed_consumer URL FROM TO``
"""

from __future__ import annotations

import sys

from eos.client import PulsarClient


def main(url: str, source: str, target: str) -> None:
    """Copy until no message arrives for 13 seconds.

    What a killed process had received comes back only when its transaction has expired.
    """
    with (
        PulsarClient(url, timeout_s=20) as client,
        client.consumer(source, "s", type="shared") as consumer,
        client.producer(target) as producer,
    ):
        while messages := consumer.receive_batch(50, timeout_s=13):
            with client.transaction(timeout_s=7) as txn:
                for message in messages:
                    producer.send(b"seen " + (message.value or b""), key=message.key, txn=txn)
                consumer.acknowledge(messages, txn=txn)
            print(len(messages), flush=True)
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
