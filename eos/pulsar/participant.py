"""The Pulsar participant: one Pulsar transaction per attempt, and its witness. Spark-free."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from eos import failpoints
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
from eos.pulsar._end_transaction import end_transaction
from eos.pulsar.end_rules import EndAnswer, WitnessAnswer
from eos.pulsar.part import KIND, MAX_TTL_MS, PulsarPart, pulsar_part
from eos.pulsar.receipts import ReceiptAcks, ReceiptTopic, receipt_topic_name, receipt_topics_of
from eos.pulsar.roll_call import RollCall, find_poison
from eos.pulsar.stuck_partitions import StuckPartitions, is_watched
from eos.pulsar.witness import Witness
from eos.retry import attempts
from eos.steps import Step
from eos.task_report import Answer, TaskSummary, merge_figures, raise_task_error
from eos.transport.address import ClusterRules
from eos.transport.auth import Auth
from eos.waiting import run_both
from eos.wire.commands import TxnAction

if TYPE_CHECKING:
    from eos.admin import AdminClient

logger = logging.getLogger(__name__)

DEFAULT_TTL_MS: Final = 600_000
# Transactions. Without message keys a task may return to a partition after many epochs.
_REMEMBERED: Final = 100


class PulsarParticipant(Participant):
    """Begin, prepare, commit, abort and outcome of one sink's Pulsar transactions.

    Args:
        sink_id: names the receipt topic.
        service_url, auth, rules: the cluster; one principal for driver and executors.
        receipt_namespace: ``tenant/namespace`` for a new receipt topic.
        admin_url: frees partitions that an abort blocked; creates topics where clients must not.
        ttl_ms: of an epoch's first transaction; doubled for each one that expired, up to 24 hours.
        timeout_s: timeout of each request.
    """

    can_expire = True
    place = "cluster (service_url)"

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
            from eos.admin import AdminClient  # its models take a tenth of a second to import

            service = self.client.lookup.service
            self._admin = AdminClient(admin_url, auth, timeout_s=timeout_s, service=service)
        self._stuck = StuckPartitions(self.client, self._admin)
        self._receipts: ReceiptTopic | None = None
        self._acks: ReceiptAcks | None = None
        self._topics: tuple[str, ...] = ()
        self._is_streaming = False
        self._limit_hit = False
        self._committed: deque[TxnId] = deque(maxlen=_REMEMBERED)

    def set_topics(self, topics: Iterable[str]) -> None:
        """Set the exact partitions that epochs may write to; they are checked after an abort."""
        self._topics = tuple(topics)

    @property
    def committed(self) -> tuple[TxnId, ...]:
        """The last transactions that this object committed, oldest first."""
        return tuple(self._committed)

    @property
    def reuses_handles(self) -> bool:
        """Whether this epoch's handles at the broker may be kept for the next one."""
        # In a stream, until a policy has once limited the driver or a task.
        return self._is_streaming and not (self._limit_hit or self.client.limit_hit)

    def claimed(self, history: History, log_table_id: str) -> PulsarPart:
        """The receipt topic that the log names; for a new log, a new one in this namespace."""
        known = next(iter(history.parts(KIND)), None)
        topic = (
            known.identity
            if known is not None
            else str(receipt_topic_name(self._namespace, self._sink_id, log_table_id))
        )
        return PulsarPart(service_url=self._service_url, receipt_topic=topic)

    def other_receipt_topics(self) -> list[str]:
        """List the receipt topics of other logs of this sink here; [] if access is denied.

        Raises:
            EosError: it does not answer, or the answer is not understood.
        """
        try:
            return receipt_topics_of(self.client, self._namespace, self._sink_id)
        except Unauthorized as error:
            logger.warning("Sink %s may have written before: %s", self._sink_id, error)
            return []

    def check(self, claim: Part) -> None:
        """Check that the cluster has transactions and a namespace for receipts. Creates nothing.

        Raises:
            ConnectionLost, TransactionsDisabled, Unauthorized: as their names say.
            TopicNotFound: the namespace for the receipts does not exist.
        """
        self.client.coordinators.count()
        try:
            self.client.lookup.broker_of(_own(claim).receipt_topic)
        except TopicNotFound as error:
            error.hint = (
                "Create the namespace (pulsar-admin namespaces create ...), or name one that "
                "exists with receipt_namespace."
            )
            raise

    def missing(self, claim: Part, history: History) -> str | None:
        """Report a cluster without the newest attempts; see ``Witness.missing``."""
        witness = Witness(self.client, self._topic(claim))
        missing = witness.missing(claim.key, history, timeout_s=self._timeout_s)
        return None if missing is None else f"the cluster at {self._service_url} {missing}"

    def make(self, claim: Part, *, in_recovery: bool) -> None:
        """Create the receipt topic and its subscription before a claim, if they do not exist.

        Raises:
            ConfigurationError: eos may not create it; names the command that does.
        """
        topic = self._topic(claim)
        # In recovery, too: after it the query continues here. Without its mark no attempt is ended.
        topic.create(self._admin)
        topic.subscribe()

    def attach(self, claim: Part, history: History) -> None:
        """Use the log's receipt topic; connect to every coordinator that the log names."""
        if self._acks is None:
            self._acks = ReceiptAcks(self._topic(claim))
        # After a restart a coordinator loads, expires and finishes its transactions only when a
        # client connects (measured).
        for tc_id in history.anchors(claim.key):
            self.client.coordinators.connect(int(tc_id))

    def _topic(self, claim: Part) -> ReceiptTopic:
        if self._receipts is None:
            name = TopicName.parse(_own(claim).receipt_topic)
            self._receipts = ReceiptTopic(self.client, name)
        return self._receipts

    def newer_commit(self, history: History, *, timeout_s: float) -> str | None:
        """Describe the first committed receipt that is not of the log's attempts.

        Raises:
            ConnectionLost: the receipt topic could not be read to its end in time.
        """
        key = (KIND, self._receipt_topic.name)
        last = history.last_begun(key)
        if last is None:
            return None
        # All that the log has: a sink that was in another cluster meanwhile finds its own ones.
        known = {cast("PulsarPart", one).mark_uuid for one in history.prepared(key)}
        return self._witness.commits_after(pulsar_part(last), known, timeout_s=timeout_s)

    def ready(self, history: History) -> None:
        """Create the receipt topic's subscription; prime its transaction buffer the first time."""
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
            cluster=self._receipt_topic.cluster,
        )

    def count(self, part: Part, written: Sequence[Any]) -> PulsarPart:
        """Close the roll call, and check that it matches the summaries.

        Raises:
            TransactionPoisoned: rows may be there twice, or not at all.
            EosError: an error that a task reported.
        """
        mine = _own(part)
        summaries: Sequence[TaskSummary] = written
        self._limit_hit |= any(one.limit_hit for one in summaries)
        raise_task_error(summaries)
        figures = merge_figures(summaries)
        answers = self._close_roll_call(mine, with_receipt=bool(figures))
        poison = find_poison(summaries, answers)
        if poison is not None:
            raise TransactionPoisoned(f"Transaction {mine.txn} is poisoned: {poison}.")
        return replace(mine, partitions=figures)

    def prepare(self, record: LogRecord, part: Part) -> PulsarPart:
        """Send the receipt inside the transaction; an error poisons it."""
        mine = _own(part)
        receipt_id = self._receipt_topic.send_receipt(record, mine)
        failpoints.reached(Step.RECEIPT)
        return replace(mine, receipt_id=receipt_id)

    def _close_roll_call(self, part: PulsarPart, *, with_receipt: bool) -> tuple[Answer, ...]:
        """Close the roll call, and register the receipt topic meanwhile: both take a few ms."""
        if not with_receipt:
            return self._answers(RollCall.of(part))
        return run_both(
            lambda: self._receipt_topic.register(part), lambda: self._answers(RollCall.of(part))
        )

    def _answers(self, call: RollCall) -> tuple[Answer, ...]:
        # Close it again if the broker moves the topic, rather than write all rows again. Runs that
        # answer between two closings send nothing, but are counted.
        for attempt in attempts(self._timeout_s, retry_on=(ConnectionLost, BrokerNotReady)):
            with attempt:
                answers = self._receipt_topic.close_roll_call(
                    call, timeout_s=self._timeout_s, reuse=self.reuses_handles
                )
        return answers

    def commit(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Send END_TXN(commit), and find out how it ended; see ``end_rules``."""
        mine = _own(part)
        fate = self._end(mine, commit=True, deadline_s=deadline_s, is_own=is_own)
        if fate == COMMITTED and mine.txn is not None:
            self._committed.append(mine.txn)
        if fate == ABORTED:
            expired = f"prepared, but not committed within its time to live of {mine.ttl_ms} ms"
            return replace(fate, why=expired)
        return fate

    def abort(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Send END_TXN(abort); see ``end_rules``."""
        return self._end(_own(part), commit=False, deadline_s=deadline_s, is_own=is_own)

    def _end(self, part: PulsarPart, *, commit: bool, deadline_s: float, is_own: bool) -> Fate:
        witness, self._obstacle = self._witness, ""
        fate = end_transaction(
            part, witness, self._send_end_txn, commit=commit, deadline_s=deadline_s, is_own=is_own
        )
        said = witness.obstacle or self._obstacle
        is_silent = said and fate not in (COMMITTED, ABORTED)
        return unknown(f"{fate.why} ({said})") if is_silent else fate

    def _send_end_txn(self, part: PulsarPart, *, commit: bool, timeout_s: float) -> EndAnswer:
        assert part.txn is not None
        action = TxnAction.COMMIT if commit else TxnAction.ABORT
        try:
            # Several tries fit into one deadline: after a lost answer the request is repeated.
            one_try_s = min(timeout_s, self._timeout_s)
            self.client.coordinators.end(part.txn, action, timeout_s=one_try_s)
        except (TransactionNotFound, InvalidTransactionStatus):
            return EndAnswer.ENDED
        except EosError as error:
            self._obstacle = error.message
            logger.warning("END_TXN of %s: %s", part.txn, error)
            return EndAnswer.OTHER
        return EndAnswer.OK

    def outcome(self, part: Part, *, timeout_s: float) -> Fate:
        """The witness's answer; it can't answer while the transaction is open."""
        witness = self._witness
        match witness.ask(_own(part), timeout_s=timeout_s):
            case WitnessAnswer.READABLE:
                return COMMITTED
            case WitnessAnswer.PROVED_ABSENT:
                return ABORTED
            case answer:
                return unknown(": ".join(filter(None, (answer.value, witness.obstacle))))

    def diagnose(self, part: Part) -> str:
        """Describe a commit that stays in doubt. For a person; decides nothing."""
        mine = _own(part)
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
            # First: opening a producer would create a topic that was deleted.
            self.client.partition_count(str(name.base))
            self.client.entry_producer(topic).close()
        except (TopicNotFound, TopicTerminated):
            return False
        except EosError:
            pass
        return True

    def suspect(self, record: LogRecord, part: Part) -> None:
        """Watch the partitions that an aborted transaction may still block."""
        if record.written_at is None or not is_watched(record.written_at):
            return
        self._suspect(_own(part))

    def _suspect(self, part: PulsarPart) -> None:
        assert part.txn is not None
        self._stuck.watch(part.txn, [*self._topics, part.receipt_topic])

    def after_end(self, record: LogRecord, part: Part, *, is_last: bool) -> None:
        """Acknowledge now and then; find and free partitions that dead transactions block."""
        if record.state is State.ABORTED:
            self._suspect(_own(part))
        self._stuck.heal()
        # The receipt of an attempt in doubt must still exist when the witness reads it.
        if is_last and self._acks is not None:
            self._acks.schedule()

    def rest(self) -> None:
        """Acknowledge everything, so that a quiet day does not look like a stuck consumer."""
        if self._acks is not None:
            self._acks.flush()

    def close(self) -> None:
        """Free connections."""
        if self._acks is not None:
            self._acks.close()
        self.client.close()

    @property
    def _receipt_topic(self) -> ReceiptTopic:
        if self._receipts is None:
            raise RuntimeError("Call attach() first")
        return self._receipts

    @property
    def _witness(self) -> Witness:
        return Witness(self.client, self._receipt_topic)


def time_to_live_ms(base_ms: int, attempt: Attempt) -> int:
    """``base_ms``, or that of the epoch's last transaction, doubled if it expired."""
    lived_ms = _own(attempt.previous).ttl_ms if attempt.previous is not None else None
    if lived_ms is None:
        return base_ms
    return min(max(base_ms, lived_ms * 2 if attempt.has_expired else lived_ms), MAX_TTL_MS)


def _own(part: Part | None) -> PulsarPart:
    assert isinstance(part, PulsarPart)
    return part
