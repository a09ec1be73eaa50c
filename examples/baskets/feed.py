"""The producer program: sends the baskets to the input topic, each transaction whole or not at all.

Run by the demo as a process of its own. What it does with ``eos.client`` is what any producer does;
the rest tells the demo how far it is, as JSON lines through a pipe.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Final, Self

from eos.client import Producer, PulsarClient
from eos.errors import Indeterminate, Retriable
from eos.retry import attempts
from examples.baskets.data import Basket, read_year
from examples.baskets.orders import obey

_ABORT_ONE_IN: Final = 12
_DEADLINE_S: Final = 120.0
_NO_PAUSE: Final = threading.Event()


@dataclass(frozen=True)
class FeedTask:
    """What the producer program is told.

    Attributes:
        rows: only the first so many baskets.
        per_transaction, pause_s: how many go out together, and how often.
        delay_s: of the query's watermark, which the last event has to push.
    """

    service_url: str
    topic: str
    rows: int | None
    per_transaction: int
    pause_s: float
    delay_s: float

    def to_json(self) -> str:
        """For the command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of ``to_json``."""
        return cls(**json.loads(text))


class BasketFeed:
    """Sends the transactions, one after the other.

    Attributes:
        aborted: how many transactions of strangers it began, and aborted.
        again: how many it sent again, because a broker was gone or did not answer.
    """

    def __init__(self, client: PulsarClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._producer: Producer | None = None
        self.aborted = 0
        self.again = 0

    def send(self, baskets: Sequence[Basket]) -> None:
        """Send them in one transaction.

        A commit without an answer is sent again, as most producers would: what is in the topic
        twice then, the query has to count once.
        """
        for attempt in attempts(_DEADLINE_S, retry_on=(Retriable, Indeterminate)):
            with attempt:
                self.again += attempt.retry_state.attempt_number > 1
                self._try(baskets, is_commit=True)

    def send_and_abort(self, baskets: Sequence[Basket]) -> None:
        """Send strangers in their place, and take it back."""
        for attempt in attempts(_DEADLINE_S, retry_on=(Retriable, Indeterminate)):
            with attempt:
                self._try([basket.as_stranger() for basket in baskets], is_commit=False)
        self.aborted += 1

    def _try(self, baskets: Sequence[Basket], *, is_commit: bool) -> None:
        try:
            if self._producer is None:
                self._producer = self._client.producer(self._topic)
            with self._client.transaction(timeout_s=_DEADLINE_S) as txn:
                for basket in baskets:
                    self._producer.send(
                        json.dumps(basket._asdict()).encode(),
                        key=str(basket.store),
                        event_time_ms=basket.at_ms,
                        txn=txn,
                    )
                if not is_commit:
                    self._producer.flush()  # the broker has to have it
                    txn.abort()
        except (Retriable, Indeterminate):
            # A producer that has failed stays failed.
            self._producer = None
            raise


def _parts(baskets: Sequence[Basket], size: int) -> Iterator[tuple[list[Basket], int]]:
    """What each transaction holds, copies of the one before at its end; and how many are new."""
    copies: list[Basket] = []
    for start in range(0, len(baskets), size):
        part = list(baskets[start : start + size])
        yield part + copies, len(part)
        copies = [basket for basket in part if basket.is_sent_twice]
    yield copies, 0


def main(task: FeedTask, events_fd: int) -> None:
    """Send all baskets, and then the event that closes their windows."""
    obey({})
    year = read_year(task.rows)
    with (
        os.fdopen(events_fd, "w", buffering=1) as events,
        PulsarClient(task.service_url) as client,
    ):
        feed, sent = BasketFeed(client, task.topic), 0

        def tell(event: str) -> None:
            facts = {"sent": sent, "aborted": feed.aborted, "again": feed.again}
            line = {"event": event, "epoch": -1, "at": time.time(), "facts": facts}
            events.write(json.dumps(line) + "\n")

        for number, (part, new) in enumerate(_parts(year.baskets, task.per_transaction)):
            due = time.monotonic() + task.pause_s
            if number % _ABORT_ONE_IN == _ABORT_ONE_IN - 1:
                feed.send_and_abort(part)
            feed.send(part)
            sent += new
            tell("sent")
            # Not faster after a broker's death: shops don't sell faster then, either.
            _NO_PAUSE.wait(max(0.0, due - time.monotonic()))
        feed.send([year.last(timedelta(seconds=task.delay_s))])
        tell("fed")


if __name__ == "__main__":
    main(FeedTask.from_json(sys.argv[1]), int(sys.argv[2]))
