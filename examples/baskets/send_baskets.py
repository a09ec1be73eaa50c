"""The producer program: sends the baskets to the input topic in transactions, and aborts others.

The demo runs it in a separate process. Its use of ``PulsarClient`` is that of any producer; the
rest reports its progress to the demo: events ``sent`` after each transaction and
``finished``, with the facts ``sent``, ``aborted`` and ``repeated``.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from eos.client import Producer, PulsarClient
from eos.errors import Indeterminate, Retriable
from eos.retry import attempts
from examples._demo.subprocesses import Task, event_sender, follow_parent
from examples.baskets.basket_year import Basket, read_year

_ABORT_ONE_IN: Final = 12
_DEADLINE_S: Final = 120.0
_PAUSE: Final = threading.Event()


@dataclass(frozen=True)
class ProducerTask(Task):
    """The settings of the program.

    Attributes:
        rows: only the first ``rows`` baskets.
        per_transaction, pause_s: baskets in a transaction, and seconds between transactions.
        delay_s: the query's watermark delay, which the final event has to exceed.
    """

    service_url: str
    topic: str
    rows: int | None
    per_transaction: int
    pause_s: float
    delay_s: float


class BasketProducer:
    """Sends transactions, one after the other.

    Attributes:
        aborted: transactions of fake baskets that it began and aborted.
        repeated: transactions that it sent again, because a broker was down or did not answer.
    """

    def __init__(self, client: PulsarClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._producer: Producer | None = None
        self.aborted = 0
        self.repeated = 0

    def send(self, baskets: Sequence[Basket]) -> None:
        """Send them in one transaction."""
        # A commit without an answer is sent again, as most producers would do. The query must count
        # these duplicates once.
        for attempt in attempts(_DEADLINE_S, retry_on=(Retriable, Indeterminate)):
            with attempt:
                self.repeated += attempt.retry_state.attempt_number > 1
                self._try(baskets, is_commit=True)

    def send_and_abort(self, baskets: Sequence[Basket]) -> None:
        """Send fake baskets instead, and abort the transaction."""
        for attempt in attempts(_DEADLINE_S, retry_on=(Retriable, Indeterminate)):
            with attempt:
                self._try([basket.as_fake() for basket in baskets], is_commit=False)
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
                    self._producer.flush()  # the broker must have received them
                    txn.abort()
        except (Retriable, Indeterminate):
            # A producer that has failed cannot be used again.
            self._producer = None
            raise


def _transactions(baskets: Sequence[Basket], size: int) -> Iterator[tuple[list[Basket], int]]:
    """Yield each transaction's baskets, and how many are new; duplicates are of the one before."""
    duplicates: list[Basket] = []
    for start in range(0, len(baskets), size):
        new = list(baskets[start : start + size])
        yield new + duplicates, len(new)
        duplicates = [basket for basket in new if basket.is_sent_twice]
    yield duplicates, 0


def main(task: ProducerTask, events_fd: int) -> None:
    """Send all baskets, then the event that closes their windows."""
    follow_parent()
    year = read_year(task.rows)
    with event_sender(events_fd) as send_event, PulsarClient(task.service_url) as client:
        producer, sent = BasketProducer(client, task.topic), 0

        def report(event: str) -> None:
            send_event(event, sent=sent, aborted=producer.aborted, repeated=producer.repeated)

        for number, (baskets, new) in enumerate(_transactions(year.baskets, task.per_transaction)):
            due = time.monotonic() + task.pause_s
            if number % _ABORT_ONE_IN == _ABORT_ONE_IN - 1:
                producer.send_and_abort(baskets)
            producer.send(baskets)
            sent += new
            report("sent")
            # Time that a broker's death has cost is not made up for: stores would not sell faster.
            _PAUSE.wait(max(0.0, due - time.monotonic()))
        producer.send([year.last(timedelta(seconds=task.delay_s))])
        report("finished")


if __name__ == "__main__":
    main(ProducerTask.from_json(sys.argv[1]), int(sys.argv[2]))
