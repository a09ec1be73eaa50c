"""The Pulsar participant: one Pulsar transaction for each attempt, and its witness. Spark-free."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from eos import failpoints
from eos._waiting import beside
from eos.admin import AdminClient
from eos.client.worker_cache import ClientOptions
from eos.errors import (
    BrokerNotReady,
    ConnectionLost,
    EosError,
    InvalidTransactionStatus,
    TopicNotFound,
    TopicTerminated,
    TransactionNotFound,
    TransactionPoisoned,
    Unauthorized,
)
from eos.ids import TopicName, TxnId
from eos.participant import Attempt, Participant
from eos.protocol import ABORTED, BATCH, COMMITTED, Fate, History, LogRecord, Part, State, unknown
from eos.pulsar._acknowledging import Acknowledging
from eos.pulsar._end_transaction import settle
from eos.pulsar._poison import find_poison
from eos.pulsar.end_queries import EndAnswer, WitnessAnswer
from eos.pulsar.part import KIND, MAX_TTL_MS, PulsarPart, pulsar_part
from eos.pulsar.receipts import ReceiptTopic, receipt_topic_name, receipt_topics_of
from eos.pulsar.roll_call import RollCall
from eos.pulsar.stuck_partitions import Pins, is_watched
from eos.pulsar.witness import Witness
from eos.retry import attempts
from eos.steps import Step
from eos.task_report import Answer, TaskSummary, merge_figures, raise_task_error
from eos.transport.auth import Auth
from eos.transport.rules import ClusterRules
from eos.wire.commands import TxnAction

logger = logging.getLogger(__name__)

DEFAULT_TTL_MS: Final = 600_000
_REMEMBERED: Final = 100
"""Transactions. Without keys a task comes back to a partition after many epochs."""


class PulsarParticipant(Participant):
    """Begin, prepare, commit, abort and outcome of one sink's Pulsar transactions.

    Args:
        sink_id: names the receipt topic.
        service_url, auth, rules: the cluster; one principal for driver and executors.
        receipt_namespace: ``tenant/namespace`` for a new receipt topic.
        admin_url: with it, pinned partitions are found and healed after an abort, and the receipt
            topic is created where clients may not create any.
        ttl_ms: time to live of an epoch's first transaction; doubled for each one that expired,
            never above 24 hours.
        timeout_s: deadline of each request.
    """

    can_expire = True

    def __init__(
        self,
        sink_id: str,
        service_url: str,
        auth: Auth,
        *,
        rules: ClusterRules | None = None,
        receipt_namespace: str,
        admin_url: str | None = None,
        ttl_ms: int = DEFAULT_TTL_MS,
        timeout_s: float = 30.0,
    ) -> None:
        rules = rules or ClusterRules()
        self.client = ClientOptions(service_url, auth, timeout_s, rules).make()
        self._sink_id = sink_id
        self._service_url = service_url
        self._ttl_ms = ttl_ms
        self._timeout_s = timeout_s
        self._namespace = receipt_namespace
        self._admin: AdminClient | None = None
        if admin_url:
            service = self.client.lookup.service
            self._admin = AdminClient(admin_url, auth, timeout_s=timeout_s, service=service)
        self._pins = Pins(self.client, self._admin)
        self._receipts: ReceiptTopic | None = None
        self._acknowledging: Acknowledging | None = None
        self._touched: tuple[str, ...] = ()
        self._is_streaming = False
        self._was_crowded = False
        self._committed: deque[TxnId] = deque(maxlen=_REMEMBERED)

    def touches(self, topics: Iterable[str]) -> None:
        """The exact partitions that epochs may write to: suspects after an abort."""
        self._touched = tuple(topics)

    @property
    def committed(self) -> tuple[TxnId, ...]:
        """The last transactions that this object has committed, the newest one last."""
        return tuple(self._committed)

    @property
    def parks(self) -> bool:
        """Whether what this epoch opens at the broker may wait for the next one: a stream's, until
        a policy has once admitted no more, to the driver or to a task."""
        return self._is_streaming and not (self._was_crowded or self.client.was_crowded)

    def claimed(self, history: History, log_table_id: str) -> PulsarPart:
        """The receipt topic that the log has recorded; a new log's own, in our namespace."""
        known = next(iter(history.parts(KIND)), None)
        topic = (
            known.identity
            if known is not None
            else str(receipt_topic_name(self._namespace, self._sink_id, log_table_id))
        )
        return PulsarPart(service_url=self._service_url, receipt_topic=topic)

    def other_receipt_topics(self) -> list[str]:
        """Receipt topics in our namespace that logs of this sink have left there.

        Of a broker that does not let us look we believe that there are none.

        Raises:
            EosError: it does not answer, or not in a way that can be understood.
        """
        try:
            return receipt_topics_of(self.client, self._namespace, self._sink_id)
        except Unauthorized as error:
            logger.warning("Sink %s may have written before: %s", self._sink_id, error)
            return []

    def check(self, claim: Part) -> None:
        """Before a claim: is the cluster there, with transactions, and a place for receipts?

        Raises:
            ConnectionLost, TransactionsDisabled, Unauthorized: as they say.
            TopicNotFound: the namespace for the receipts does not exist. Looking a topic up
                creates nothing.
        """
        self.client.coordinators.count()
        try:
            self.client.lookup.broker_of(_mine(claim).receipt_topic)
        except TopicNotFound as error:
            error.hint = (
                "Create the namespace (pulsar-admin namespaces create ...), or name one that "
                "exists with receipt_namespace."
            )
            raise

    def missing(self, claim: Part, history: History) -> str | None:
        """The receipt topic, where the log names transactions and the topic is not there.

        Its subscription keeps it while it is idle, and its history as long as it is not
        acknowledged: without the topic this is another cluster, or somebody deleted it.
        """
        topic = _mine(claim).receipt_topic
        if not history.anchors(claim.key) or self._topic(topic).exists():
            return None
        return f"the cluster at {self._service_url} has no receipt topic {topic}"

    def make(self, claim: Part) -> None:
        """Before a claim: make the receipt topic, when it is not there.

        Raises:
            ConfigurationError: nobody lets us; says the command that makes it.
        """
        self._topic(_mine(claim).receipt_topic).create(self._admin)

    def attach(self, claim: Part, history: History) -> None:
        """Use the log's receipt topic; connect to every coordinator that the log names.

        After a restart a coordinator loads, expires and finishes its transactions only when a
        client connects (measured).
        """
        if self._receipts is None:
            self._receipts = self._topic(_mine(claim).receipt_topic)
            self._acknowledging = Acknowledging(self._receipts)
        for tc_id in history.anchors(claim.key):
            self.client.coordinators.connect(int(tc_id))

    def _topic(self, receipt_topic: str) -> ReceiptTopic:
        return ReceiptTopic(self.client, TopicName.parse(receipt_topic))

    def newer_commit(self, history: History, *, timeout_s: float) -> str | None:
        """The first committed receipt behind the mark of the log's newest attempt.

        Raises:
            ConnectionLost: the receipt topic could not be read to its end in time.
        """
        last = history.last_begun((KIND, self._receipt_topic.name))
        if last is None:
            return None
        return self._witness.commits_after(pulsar_part(last), timeout_s=timeout_s)

    def ready(self, history: History) -> None:
        """Make the receipt topic's subscription; ready its transaction buffer the first time."""
        topic = self._receipt_topic
        topic.create(self._admin)
        topic.subscribe()
        if not history.anchors((KIND, topic.name)):
            topic.prime()

    def begin(self, attempt: Attempt) -> PulsarPart:
        """Send a mark, then open a transaction."""
        self._is_streaming = attempt.query_id != BATCH
        call = self._receipt_topic.send_mark()
        ttl_ms = time_to_live_ms(self._ttl_ms, attempt)
        return PulsarPart(
            service_url=self._service_url,
            receipt_topic=call.topic,
            txn=self.client.coordinators.begin(ttl_ms),
            ttl_ms=ttl_ms,
            mark_id=call.mark_id,
            mark_uuid=call.mark_uuid,
        )

    def count(self, part: Part, written: Sequence[Any]) -> PulsarPart:
        """Close the roll call: one summary for each run that has sent rows, and no other run.

        Raises:
            TransactionPoisoned: rows may be there twice, or not at all.
            EosError: what a task reports.
        """
        mine = _mine(part)
        summaries: Sequence[TaskSummary] = written
        self._was_crowded |= any(one.was_crowded for one in summaries)
        raise_task_error(summaries)
        figures = merge_figures(summaries)
        answers = self._close_roll_call(mine, with_receipt=bool(figures))
        poison = find_poison(summaries, answers)
        if poison is not None:
            raise TransactionPoisoned(f"Transaction {mine.txn} is poisoned: {poison}.")
        return replace(mine, partitions=figures)

    def prepare(self, record: LogRecord, part: Part) -> PulsarPart:
        """Send the receipt inside the transaction; an error poisons it."""
        mine = _mine(part)
        receipt_id = self._receipt_topic.send_receipt(record, mine)
        failpoints.reached(Step.RECEIPT)
        return replace(mine, receipt_id=receipt_id)

    def _close_roll_call(self, part: PulsarPart, *, with_receipt: bool) -> tuple[Answer, ...]:
        """Which runs of tasks have answered; whoever comes later sends nothing. Meanwhile what the
        receipt needs is registered: both take a few ms.

        Raises:
            TransactionExpired: the transaction has ended.
            EosError: it is not known who has answered: poison.
        """
        if not with_receipt:
            return self._answers(part.call)
        return beside(lambda: self._receipt_topic.register(part), lambda: self._answers(part.call))

    def _answers(self, call: RollCall) -> tuple[Answer, ...]:
        """A broker that moves the topic is no reason to write everything again: to close twice does
        no harm, who answers between the two is counted and sends nothing."""
        for attempt in attempts(self._timeout_s, retry_on=(ConnectionLost, BrokerNotReady)):
            with attempt:
                answers = self._receipt_topic.close_roll_call(
                    call, timeout_s=self._timeout_s, parks=self.parks
                )
        return answers

    def commit(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """END_TXN(commit), and what tells how it ended; see ``ending``."""
        mine = _mine(part)
        fate = self._end(mine, commit=True, deadline_s=deadline_s, is_own=is_own)
        if fate == COMMITTED and mine.txn is not None:
            self._committed.append(mine.txn)
        if fate == ABORTED:
            expired = f"prepared, but not committed within its time to live of {mine.ttl_ms} ms"
            return replace(fate, why=expired)
        return fate

    def abort(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """END_TXN(abort); see ``ending``."""
        return self._end(_mine(part), commit=False, deadline_s=deadline_s, is_own=is_own)

    def _end(self, part: PulsarPart, *, commit: bool, deadline_s: float, is_own: bool) -> Fate:
        return settle(
            part,
            self._witness,
            self._end_transaction,
            commit=commit,
            deadline_s=deadline_s,
            is_own=is_own,
        )

    def _end_transaction(self, part: PulsarPart, *, commit: bool, timeout_s: float) -> EndAnswer:
        """END_TXN, once."""
        assert part.txn is not None
        action = TxnAction.COMMIT if commit else TxnAction.ABORT
        try:
            # Several tries fit into one deadline: an answer that was lost is asked for again.
            one_try_s = min(timeout_s, self._timeout_s)
            self.client.coordinators.end(part.txn, action, timeout_s=one_try_s)
        except (TransactionNotFound, InvalidTransactionStatus):
            return EndAnswer.ENDED
        except EosError as error:
            logger.warning("END_TXN of %s: %s", part.txn, error)
            return EndAnswer.OTHER
        return EndAnswer.OK

    def outcome(self, part: Part, *, timeout_s: float) -> Fate:
        """What the witness says. It is asked in vain while the transaction is open."""
        match self._witness.ask(_mine(part), timeout_s=timeout_s):
            case WitnessAnswer.READABLE:
                return COMMITTED
            case WitnessAnswer.PROVED_ABSENT:
                return ABORTED
            case answer:
                return unknown(answer.value)

    def diagnose(self, part: Part) -> str:
        """What can be seen of a commit that stays in doubt. For a person; decides nothing."""
        mine = _mine(part)
        if self.outcome(mine, timeout_s=5.0) != COMMITTED:
            return ""
        gone = [one.topic for one in mine.partitions if not self._takes_messages(one.topic)]
        return (
            "Its receipt is readable: it is committed, and not visible on "
            f"{', '.join(gone) or 'topics whose markers are not written yet'}."
        )

    def _takes_messages(self, topic: str) -> bool:
        name = TopicName.parse(topic)
        try:
            # Asked first: opening a producer would create a topic that was deleted.
            self.client.partition_count(str(name.base))
            self.client.entry_producer(topic).close()
        except (TopicNotFound, TopicTerminated):
            return False
        except EosError:
            pass
        return True

    def suspect(self, record: LogRecord, part: Part) -> None:
        """Look after the partitions that an aborted transaction may pin, if it may still."""
        if record.written_at is None or not is_watched(record.written_at):
            return
        self._suspect(_mine(part))

    def _suspect(self, part: PulsarPart) -> None:
        assert part.txn is not None
        self._pins.suspect(part.txn, [*self._touched, part.receipt_topic])

    def after_end(self, record: LogRecord, part: Part, *, is_last: bool) -> None:
        """Acknowledge, now and then; look for partitions that dead transactions pin, and heal."""
        if record.state is State.ABORTED:
            self._suspect(_mine(part))
        self._pins.heal()
        # The receipt of one that is in doubt still has to be there when the witness is asked.
        if is_last and self._acknowledging is not None:
            self._acknowledging.later()

    def rest(self) -> None:
        """Acknowledge everything: a day's quiet must not look like a consumer that is stuck."""
        if self._acknowledging is not None:
            self._acknowledging.now()

    def close(self) -> None:
        """Free connections."""
        if self._acknowledging is not None:
            self._acknowledging.stop()
        self.client.close()

    @property
    def _receipt_topic(self) -> ReceiptTopic:
        if self._receipts is None:
            raise RuntimeError("attach() comes first")
        return self._receipts

    @property
    def _witness(self) -> Witness:
        return Witness(self.client, self._receipt_topic)


def time_to_live_ms(base_ms: int, attempt: Attempt) -> int:
    """``base_ms``, or as the epoch's last transaction; doubled when that one expired."""
    lived_ms = _mine(attempt.previous).ttl_ms if attempt.previous is not None else None
    if lived_ms is None:
        return base_ms
    return min(max(base_ms, lived_ms * 2 if attempt.has_expired else lived_ms), MAX_TTL_MS)


def _mine(part: Part | None) -> PulsarPart:
    assert isinstance(part, PulsarPart)
    return part
