"""The producer program: steady rows into the input topic, a transaction for each block.

python -m eos.chaos.soak._feed SERVICE_URL TOPIC PLAN_AS_JSON; prints how many rows are sent.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import Future
from typing import Final

from eos.chaos.soak._plan import PARTITIONS, SoakPlan
from eos.client import EntryProducer, PulsarClient, Transaction
from eos.errors import EosError, Indeterminate, Retriable
from eos.ids import EntryPlace, MessageId, TopicName
from eos.retry import attempts
from eos.wire.batch import Rows, encode_batches

_DEADLINE_S: Final = 180.0
_TTL_S: Final = 30.0
_MARGIN_S: Final = 10.0


class SteadyFeed:
    """Sends each block once, also while brokers die: a commit without an answer is looked up."""

    def __init__(self, client: PulsarClient, topic: str) -> None:
        self._client = client
        self._topics = [str(one) for one in TopicName.parse(topic).partitions(PARTITIONS)]
        self._producers: list[EntryProducer] = []

    def send(self, rows: Rows) -> None:
        """Send them in one transaction.

        Raises:
            EosError: they can't be sent for three minutes.
        """
        attempts(_DEADLINE_S, retry_on=(Retriable,))(self._try, rows)

    def _try(self, rows: Rows) -> None:
        first: Future[MessageId] | None = None
        try:
            self._producers = self._producers or self._client.entry_producers(self._topics)
            with self._client.transaction(timeout_s=_TTL_S) as txn:
                first = self._send(rows, txn)
        except Retriable:
            self._producers = []  # one that has failed stays failed
            raise
        except Indeterminate:
            self._producers = []
            # What was never sent whole can't have been committed.
            if first is None or not self._is_readable(first.result()):
                raise Retriable("A transaction was not committed.") from None

    def _send(self, rows: Rows, txn: Transaction) -> Future[MessageId]:
        """The receipt of an entry in the first partition."""
        share = -(-len(rows) // PARTITIONS)
        receipts = []
        for number, producer in enumerate(self._producers):
            part = rows.slice(min(number * share, len(rows)), min((number + 1) * share, len(rows)))
            for batch in encode_batches(part) if len(part) else ():
                receipts.append(producer.send_batch(batch, txn=txn))
        return receipts[0]

    def _is_readable(self, entry: MessageId) -> bool:
        """Whether an entry of the first partition is there, when its transaction must be over."""
        time.sleep(_TTL_S + _MARGIN_S)
        return entry.place in attempts(_DEADLINE_S, retry_on=(EosError,))(self._places, entry)

    def _places(self, first: MessageId) -> set[EntryPlace]:
        """The readable entries of the first partition from ``first`` on."""
        columns = ("ledger", "entry")
        with self._client.reader(self._topics[0], start=first, columns=columns) as reader:
            batches = list(reader.read_to(reader.last_id))
            return {(row["ledger"], row["entry"]) for b in batches for row in b.to_pylist()}


def main(service_url: str, topic: str, plan: SoakPlan) -> None:
    """Send everything at the plan's pace, and then the row that closes the windows."""
    with PulsarClient(service_url) as client:
        feed, began = SteadyFeed(client, topic), time.monotonic()
        for block in plan.blocks():
            feed.send(plan.rows_of(block))
            print(block.stop, flush=True)
            due_s = block.stop / plan.rows_per_s
            time.sleep(max(0.0, began + due_s - time.monotonic()))
        feed.send(plan.last_row())
        print("all", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], SoakPlan.from_json(sys.argv[3]))
