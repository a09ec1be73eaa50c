"""Proves how a transaction ended, from its receipt topic and from its own data.

A reader delivers in order and stops at the first open transaction. So a reader that has read mark
and sentinel has seen every committed receipt between them.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection

from eos.client import ONE_PERMIT, Entry, EntryReader, PulsarClient
from eos.errors import ConnectionLost, EosError, ProtocolError
from eos.ids import MessageId
from eos.protocol import History, ParticipantKey
from eos.pulsar.end_rules import DataAnswer, MarkAnswer, WitnessAnswer
from eos.pulsar.part import PulsarPart, pulsar_part
from eos.pulsar.receipts import ReceiptTopic, receipt_mark_uuid
from eos.pulsar.recount import recount
from eos.pulsar.roll_call import CALL, CLOSED, KIND, MARK, properties_of

logger = logging.getLogger(__name__)


class Witness:
    """Reads the receipt topic, and the topics that a transaction wrote to."""

    def __init__(self, client: PulsarClient, receipts: ReceiptTopic) -> None:
        self._client = client
        self._receipts = receipts
        self.obstacle = ""
        """The error because of which the last question had no answer, for a person."""

    def missing(self, key: ParticipantKey, history: History, *, timeout_s: float) -> str | None:
        """Describe what the cluster lacks of the attempts in the log; None: it has the newest.

        Raises:
            EosError: it does not answer.
        """
        topic, last = self._receipts, history.last_begun(key)
        if not history.anchors(key):
            return None
        # Its subscription keeps an idle topic: this is another cluster, or the topic was deleted.
        if not topic.exists():
            return f"has no receipt topic {topic.name}"
        if last is None:
            return None
        there, own = pulsar_part(last).cluster, topic.cluster
        if there not in (None, own):
            return f"is {own}, and the newest epoch was begun in {there}"
        # Replication creates a topic of this name in other clusters, without its subscription, and
        # copies marks to other positions (measured). The rows may be on their way.
        if topic.has_subscription():
            return None
        mark = self.find_mark(pulsar_part(last), timeout_s=timeout_s)
        if mark is MarkAnswer.UNKNOWN:
            raise ConnectionLost(f"{topic.name} can't be read: {self.obstacle or 'no answer'}.")
        if mark is MarkAnswer.FOUND:
            return None
        return (
            f"has a receipt topic {topic.name} without its subscription and without the log's "
            "newest mark, as geo-replication creates it"
        )

    def find_mark(self, part: PulsarPart, *, timeout_s: float) -> MarkAnswer:
        """Read the mark of ``part`` where the log says it is, and compare its uuid."""
        deadline, self.obstacle = time.monotonic() + timeout_s, ""
        try:
            if not self._receipts.exists():
                return MarkAnswer.ABSENT
            # A recreated topic is empty: the sentinel makes sure that there is something to read.
            if not _is_after(self._receipts.send_sentinel(), part):
                return MarkAnswer.ABSENT
            with self._read_from(part) as reader:
                for entry in reader.read(deadline):
                    return MarkAnswer.FOUND if _is_mark(entry, part) else MarkAnswer.ABSENT
        except EosError as error:
            self.obstacle = error.message
            logger.info("The mark of transaction %s can't be read yet: %s", part.txn, error)
        return MarkAnswer.UNKNOWN

    def ask(self, part: PulsarPart, *, timeout_s: float) -> WitnessAnswer:
        """Whether the transaction of ``part``, which has ended, was committed.

        Only the receipt itself proves a commit. Only the mark and the closing of the roll call,
        followed without a receipt by a sentinel that was sent after the end, prove that there was
        none, and only if a second reader finds the same.
        """
        # At any moment the broker may move its readers past expired messages, and so past a
        # receipt: those of one moment. A lost ledger may be missing for all readers.
        deadline = time.monotonic() + timeout_s
        answer = self._ask_once(part, deadline)
        is_absent = answer in (WitnessAnswer.PROVED_ABSENT, WitnessAnswer.HISTORY_GONE)
        return self._ask_once(part, deadline) if is_absent else answer

    def _ask_once(self, part: PulsarPart, deadline: float) -> WitnessAnswer:
        self.obstacle = ""
        try:
            if not self._receipts.exists():
                return WitnessAnswer.HISTORY_GONE
            with self._read_from(part) as reader:
                sent = self._receipts.send_sentinel()
                if not _is_after(sent, part):
                    return WitnessAnswer.HISTORY_GONE
                is_first, is_closed = True, False
                for entry in reader.read(deadline):
                    if is_first and not _is_mark(entry, part):
                        return WitnessAnswer.HISTORY_GONE
                    is_first = False
                    if _is_receipt(entry, part):
                        return WitnessAnswer.READABLE
                    is_closed |= _is_own(entry, part, CLOSED)
                    if entry.id.place >= sent.place:
                        gone = WitnessAnswer.HISTORY_GONE  # stored right before the receipt
                        return WitnessAnswer.PROVED_ABSENT if is_closed else gone
        except EosError as error:
            self.obstacle = error.message
            logger.info("The witness of transaction %s does not answer: %s", part.txn, error)
        return WitnessAnswer.UNKNOWN

    def commits_after(
        self, part: PulsarPart, known: Collection[str | None], *, timeout_s: float
    ) -> str | None:
        """Describe the first receipt after the mark of ``part``, the log's newest transaction, that
        shows a log that was rolled back: its mark's uuid is not ``known``, the prepared ones.

        None: there is no such receipt, or the proof is gone with the mark: on another cluster.

        Raises:
            ConnectionLost: no sentinel was read in time.
        """
        deadline = time.monotonic() + timeout_s
        found = self._commits_after(part, known, deadline)
        return found or self._commits_after(part, known, deadline)  # as for ``ask``

    def _commits_after(
        self, part: PulsarPart, known: Collection[str | None], deadline: float
    ) -> str | None:
        if not self._receipts.exists():
            return None
        with self._read_from(part) as reader:
            sent = self._receipts.send_sentinel()
            if not _is_after(sent, part):
                return None
            is_first, sentinel = True, sent.place
            for entry in reader.read(deadline):
                if is_first and not (_is_mark(entry, part) or self._is_later(entry, part)):
                    return None
                is_first = False
                if entry.id.place >= sentinel:
                    return None
                if receipt_mark_uuid(entry) not in {None, *known}:
                    return f"{_epoch_in(entry)}transaction {entry.txn}, receipt at {entry.id}"
        raise ConnectionLost(f"{self._receipts.name} can't be read to its end.")

    def _is_later(self, entry: Entry, part: PulsarPart) -> bool:
        # The mark was trimmed, as old acknowledged ones are: what is left was written after it.
        return part.cluster == self._receipts.cluster and entry.id.place > _mark_id(part).place

    def _read_from(self, part: PulsarPart) -> EntryReader:
        """A reader from the mark on that leaves out nothing: a gap would prove an absence."""
        # With more permits the broker may silently drop entries that it reads at once (measured).
        return self._client.entry_reader(self._receipts.name, _mark_id(part), permits=ONE_PERMIT)

    def ask_data(self, part: PulsarPart, *, timeout_s: float) -> DataAnswer:
        """Whether every entry of the transaction is delivered, with the figures in PREPARED."""
        # A broker delivers them only if it is committed. On another cluster, transaction ids and
        # positions start again, but not so many entries with the same checksums.
        deadline, self.obstacle = time.monotonic() + timeout_s, ""
        try:
            for one in part.partitions:
                left_s = max(0.1, deadline - time.monotonic())
                counted = recount(self._client, part, one, timeout_s=left_s)
                if counted is None or not counted.matches(one):
                    return DataAnswer.UNPROVED
        except EosError as error:
            self.obstacle = error.message
            logger.info("The data of transaction %s can't be read: %s", part.txn, error)
            return DataAnswer.UNPROVED
        return DataAnswer.READABLE if part.partitions else DataAnswer.UNPROVED


def _mark_id(part: PulsarPart) -> MessageId:
    assert part.mark_id is not None
    return part.mark_id


def _is_after(sent: MessageId, part: PulsarPart) -> bool:
    """Whether a message that was just sent comes after the mark of ``part``."""
    # Ledger numbers only grow within a cluster. On another one, where they are lower, a reader from
    # the mark on would wait for ever.
    return sent.place > _mark_id(part).place


def _is_mark(entry: Entry, part: PulsarPart) -> bool:
    # A copy in another cluster has the same content, and may have the same position: clusters of
    # the same age number their ledgers alike (measured).
    is_there = entry.id.place == _mark_id(part).place and entry.metadata.replicated_from is None
    return is_there and _is_own(entry, part, MARK)


def _is_own(entry: Entry, part: PulsarPart, kind: str) -> bool:
    properties = properties_of(entry)
    return (properties.get(KIND), properties.get(CALL)) == (kind, part.mark_uuid)


def _epoch_in(entry: Entry) -> str:
    """Name a receipt's epoch, for a person; its content is not trusted."""
    try:
        epoch = json.loads(entry.messages()[0].value or b"")["epoch"]
    except (ProtocolError, ValueError, LookupError, TypeError, RecursionError):
        return ""
    return f"epoch {epoch}, " if isinstance(epoch, str) and epoch.isprintable() else ""


def _is_receipt(entry: Entry, part: PulsarPart) -> bool:
    # Other writers can write ``receipt`` on a message, but can't put it at the position that
    # PREPARED names, with the transaction's id in its metadata.
    assert part.receipt_id is not None
    return entry.id.place == part.receipt_id.place and entry.txn == part.txn
