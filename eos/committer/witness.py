"""What can be proved about a transaction's end: from its receipt topic, and from its own data.

Reading is in order and stops at the first open transaction: whoever has read mark and sentinel has
seen every committed receipt between them. A receipt counts only at the place that PREPARED names
and with the transaction's number in its metadata: whoever may write to the topic can write
``receipt`` on a message, and can't put it there.
"""

from __future__ import annotations

import json
import logging
import time

from eos.client import Entry, PulsarClient
from eos.committer.counting import count
from eos.committer.receipts import RECEIPT, ReceiptTopic
from eos.errors import ConnectionLost, EosError, ProtocolError
from eos.ids import MessageId
from eos.protocol import DataAnswer, LogRecord, MarkAnswer, WitnessAnswer
from eos.roll_call import CALL, KIND, MARK, properties_of

logger = logging.getLogger(__name__)


class Witness:
    """Asks the receipt topic, and the topics that a transaction wrote to."""

    def __init__(self, client: PulsarClient, receipts: ReceiptTopic) -> None:
        self._client = client
        self._receipts = receipts

    def find_mark(self, record: LogRecord, *, timeout_s: float) -> MarkAnswer:
        """Read the mark of ``record`` where the log says it is, and compare its uuid."""
        deadline = time.monotonic() + timeout_s
        try:
            if not self._receipts.exists():
                return MarkAnswer.ABSENT
            # Something to read in any case: a topic that was made anew is empty.
            if not _is_behind(self._receipts.send_sentinel(), record):
                return MarkAnswer.ABSENT
            with self._client.reader(self._receipts.name, _mark_id(record)) as reader:
                for entry in reader.read(deadline):
                    return MarkAnswer.FOUND if _is_mark(entry, record) else MarkAnswer.ABSENT
        except EosError as error:
            logger.info("the mark of transaction %s can't be read yet: %s", record.txn, error)
        return MarkAnswer.UNKNOWN

    def ask(self, record: LogRecord, *, timeout_s: float) -> WitnessAnswer:
        """Whether the transaction of ``record``, over by now, was committed.

        Only the receipt itself proves a commit. Only mark, then a sentinel sent after the
        transaction was over, and no receipt between them, prove that there was none.
        """
        deadline = time.monotonic() + timeout_s
        try:
            if not self._receipts.exists():
                return WitnessAnswer.HISTORY_GONE
            with self._client.reader(self._receipts.name, _mark_id(record)) as reader:
                sent = self._receipts.send_sentinel()
                if not _is_behind(sent, record):
                    return WitnessAnswer.HISTORY_GONE
                is_first, sentinel = True, sent.place
                for entry in reader.read(deadline):
                    if is_first and not _is_mark(entry, record):
                        return WitnessAnswer.HISTORY_GONE
                    is_first = False
                    if _is_receipt(entry, record):
                        return WitnessAnswer.READABLE
                    if entry.id.place >= sentinel:
                        return WitnessAnswer.PROVED_ABSENT
        except EosError as error:
            logger.info("the witness of transaction %s is silent: %s", record.txn, error)
        return WitnessAnswer.UNKNOWN

    def commits_after(self, record: LogRecord, *, timeout_s: float) -> str | None:
        """The first receipt behind the mark of ``record`` that is another transaction's, in words.

        None: there is none, or the mark is gone, and with it the proof.

        Raises:
            ConnectionLost: no sentinel was read in time.
        """
        deadline = time.monotonic() + timeout_s
        if not self._receipts.exists():
            return None
        with self._client.reader(self._receipts.name, _mark_id(record)) as reader:
            sent = self._receipts.send_sentinel()
            if not _is_behind(sent, record):
                return None
            is_first, sentinel = True, sent.place
            for entry in reader.read(deadline):
                if is_first and not _is_mark(entry, record):
                    return None
                is_first = False
                if entry.id.place >= sentinel:
                    return None
                properties = properties_of(entry)
                # A plain message is nobody's receipt, whatever it calls itself.
                is_receipt = entry.txn is not None and properties.get(KIND) == RECEIPT
                if is_receipt and properties.get(CALL) != record.mark_uuid:
                    return f"{_epoch_in(entry)}transaction {entry.txn}, receipt at {entry.id}"
        raise ConnectionLost(f"Nobody can read {self._receipts.name} to its end.")

    def ask_data(self, record: LogRecord, *, timeout_s: float) -> DataAnswer:
        """Whether every entry of the transaction is delivered, with the figures that PREPARED has.

        A broker delivers them only when the transaction is committed. The numbers of transactions
        and places begin again on another cluster; so many entries with the same checksums do not.
        """
        deadline = time.monotonic() + timeout_s
        try:
            for part in record.partitions:
                left_s = max(0.1, deadline - time.monotonic())
                counted = count(self._client, record, part, timeout_s=left_s)
                if counted is None or not counted.is_equal(part):
                    return DataAnswer.UNPROVED
        except EosError as error:
            logger.info("the data of transaction %s can't be read: %s", record.txn, error)
            return DataAnswer.UNPROVED
        return DataAnswer.READABLE if record.partitions else DataAnswer.UNPROVED


def _mark_id(record: LogRecord) -> MessageId:
    assert record.mark_id is not None
    return record.mark_id


def _is_behind(sent: MessageId, record: LogRecord) -> bool:
    """Whether a message that was sent just now sits behind the mark of ``record``.

    The numbers of ledgers only grow in a cluster. On another one, where they are lower, a reader
    from the mark on would wait for ever.
    """
    return sent.place > _mark_id(record).place


def _is_mark(entry: Entry, record: LogRecord) -> bool:
    properties = properties_of(entry)
    is_there = entry.id.place == _mark_id(record).place
    return is_there and (properties.get(KIND), properties.get(CALL)) == (MARK, record.mark_uuid)


def _epoch_in(entry: Entry) -> str:
    """Which epoch a receipt is of, for a person; whoever wrote it may have written anything."""
    try:
        epoch = json.loads(entry.messages()[0].value or b"")["epoch"]
    except (ProtocolError, ValueError, LookupError, TypeError, RecursionError):
        return ""
    return f"epoch {epoch}, " if isinstance(epoch, str) and epoch.isprintable() else ""


def _is_receipt(entry: Entry, record: LogRecord) -> bool:
    assert record.receipt_id is not None
    return entry.id.place == record.receipt_id.place and entry.txn == record.txn
