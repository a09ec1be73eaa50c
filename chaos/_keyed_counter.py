"""Count the messages of a topic by key, in a process that others kill and stop.

``python -m eos.chaos._keyed_counter URL FROM STATE TO [TTL_S]`` sends the new count of each key to
``TO``. Without messages for five seconds it ends with code 0; with ``FENCED`` if another process
owns the state, with ``BROKE_OFF`` after an error of eos.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from typing import Final

from eos import KeyedState, PulsarClient
from eos.chaos.job import BEGUN, BROKE_OFF, COMMITTED, FENCED, NO_KEY
from eos.errors import ConsumerBusy, EosError, Fenced, Retriable
from eos.retry import attempts

_OPEN_S: Final = 60.0
_IDLE_S: Final = 5.0
_BATCH: Final = 50


def main(url: str, source: str, topic: str, target: str, ttl_s: str = "60") -> int:
    """Count until no message arrives, or another process owns the state; return the exit code."""
    with (
        PulsarClient(url, timeout_s=20) as client,
        attempts(_OPEN_S, retry_on=(ConsumerBusy,))(client.consumer, source, "counter") as consumer,
        client.producer(target, create=True) as producer,
        KeyedState(client, topic, consumer) as counts,
    ):
        while messages := consumer.receive_batch(_BATCH, timeout_s=_IDLE_S):
            try:
                # The messages of a failed transaction come again.
                with (
                    contextlib.suppress(Retriable),
                    counts.transaction(timeout_s=float(ttl_s)) as txn,
                ):
                    print(BEGUN, flush=True)
                    for message in messages:
                        if not message.value:
                            continue  # a reader's, not the job's
                        key = message.key or NO_KEY
                        assert isinstance(key, str)
                        count = int(counts.get(key, b"0")) + 1
                        counts.put(key, b"%d" % count, txn)
                        producer.send(b"%d" % count, key=key, txn=txn)
                    consumer.acknowledge(messages, txn=txn)
                    txn.commit()
                    print(COMMITTED, len(messages), flush=True)
            except Fenced:
                return FENCED
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except (EosError, OSError):
        traceback.print_exc()
        sys.exit(BROKE_OFF)
