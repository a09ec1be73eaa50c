"""One entry of a topic as it is stored, looked at for what it says of itself."""

from __future__ import annotations

import time

from eos.client import Entry, PulsarClient
from eos.ids import MessageId
from eos.retry import attempts


def next_entry(
    client: PulsarClient, topic: str, start: MessageId | None, timeout_s: float
) -> Entry | None:
    """The first one at ``start`` or behind it; None when none becomes readable in ``timeout_s``.

    Topics move: who is refused meanwhile asks again.

    Raises:
        ProtocolError: it is malformed.
        EosError: the topic can't be read.
    """
    deadline = time.monotonic() + timeout_s
    for attempt in attempts(timeout_s):
        with attempt, client.entry_reader(topic, start, permits=1) as reader:
            return next(reader.read(deadline), None)
    raise AssertionError  # the last attempt's error passes
