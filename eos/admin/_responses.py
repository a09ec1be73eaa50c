"""Validates the admin API's answers (of Pulsar 4.2.4) and converts them to results.

Every function here raises ValueError if an answer is not valid. Unknown fields are ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from eos.admin._results import (
    CoordinatorState,
    OpenTransaction,
    Retention,
    Subscription,
    TopicStats,
)
from eos.errors import ConfigurationError, printable
from eos.ids import MAX_PARTITIONS, MessageId, TopicName, TxnId

T = TypeVar("T")

# It may be shown in a terminal, so unprintable characters are replaced.
JsonText = Annotated[str, AfterValidator(printable)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Long = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Size = Annotated[int, Field(ge=0, lt=2**63)]
# A time or duration, limited to the year 2109: the sum of two is a valid date.
Millis = Annotated[int, Field(ge=0, lt=2**42)]


def is_topic(name: str) -> bool:
    """Whether ``name`` is a topic name that eos accepts, and complete."""
    if "\ufffd" in name:  # by ``printable``: another topic's name
        return False
    try:
        TopicName.parse(name)
    except ConfigurationError:
        return False
    return True


def _known_topics(topics: dict[str, Any]) -> dict[str, Any]:
    # Brokers accept names that eos does not, for example with spaces: it never writes there.
    return {name: value for name, value in topics.items() if is_topic(name)}


Topics = Annotated[dict[str, Any], AfterValidator(_known_topics)]
PositionText = Annotated[str, Field(pattern=r"^-?[0-9]{1,19}:-?[0-9]{1,19}$")]


class JsonShape(BaseModel):
    """A part of an answer."""

    # Strict: text is not accepted as a number.
    model_config = ConfigDict(strict=True, frozen=True, hide_input_in_errors=True)


class TransactionShape(JsonShape):
    """A transaction in its coordinator's view."""

    txnId: JsonText | None = None  # noqa: N815
    status: JsonText | None = None
    openTimestamp: Millis = 0  # noqa: N815
    timeoutAt: Millis = 0  # noqa: N815
    producedPartitions: Topics | None = None  # noqa: N815


class CoordinatorShape(JsonShape):
    """The state of one coordinator."""

    state: JsonText | None = None
    lowWaterMark: Long = -1  # noqa: N815
    ongoingTxnSize: Long = 0  # noqa: N815


class TransactionInBufferShape(JsonShape):
    """One transaction in a topic's transaction buffer."""

    startPosition: PositionText | None = None  # noqa: N815
    aborted: bool = False


class BufferShape(JsonShape):
    """A topic's transaction buffer."""

    state: JsonText | None = None
    recoverEndTime: Millis = 0  # noqa: N815
    maxReadPosition: PositionText  # noqa: N815
    ongoingTxnSize: Long = 0  # noqa: N815


class LedgerShape(JsonShape):
    """One ledger of a topic."""

    ledgerId: Long  # noqa: N815
    entries: Count = 0  # 0 for the last one, which is open
    size: Size = 0


class CompactedLedgerShape(JsonShape):
    """The ledger that a topic's last compaction has made; all fields are -1 without one."""

    ledgerId: Long = -1  # noqa: N815


class CursorShape(JsonShape):
    """Up to where a subscription has acknowledged everything."""

    markDeletePosition: PositionText  # noqa: N815


class LedgersShape(JsonShape):
    """A topic's ledgers."""

    lastConfirmedEntry: PositionText  # noqa: N815
    ledgers: list[LedgerShape] = []
    currentLedgerEntries: Count = 0  # noqa: N815
    currentLedgerSize: Size = 0  # noqa: N815
    cursors: dict[JsonText, CursorShape] = {}
    compactedLedger: CompactedLedgerShape = CompactedLedgerShape()  # noqa: N815


class StoredLedgerShape(JsonShape):
    """One ledger of a topic in its metadata."""

    ledgerId: Long  # noqa: N815
    entries: Count = 0
    size: Size = 0
    isOffloaded: bool = False  # noqa: N815
    offloadedContextUuid: Annotated[str, Field(pattern=r"^[0-9a-f-]{36}$")] | None = None  # noqa: N815


class StoredLedgersShape(JsonShape):
    """A topic's metadata."""

    ledgers: list[StoredLedgerShape] = []


class SubscriptionShape(JsonShape):
    """One subscription of a topic."""

    msgBacklog: Long = 0  # noqa: N815
    isDurable: bool = True  # noqa: N815
    consumers: list[Any] = []
    lastAckedTimestamp: Millis = 0  # noqa: N815


class StatsShape(JsonShape):
    """The statistics of a topic that the broker serves."""

    subscriptions: dict[JsonText, SubscriptionShape] = {}


class TopicStatsShape(StatsShape):
    """The statistics of a topic with its size; ``partitioned-stats``: over all partitions."""

    storageSize: Size = 0  # noqa: N815
    msgInCounter: Long = 0  # noqa: N815  # producers may report any count, even -1000
    publishers: list[Any] = []
    topicCreationTimeStamp: Millis = 0  # noqa: N815  # 0: an older broker


class RetentionShape(JsonShape):
    """How long acknowledged messages are kept."""

    retentionTimeInMinutes: Long = 0  # noqa: N815
    retentionSizeInMB: Long = 0  # noqa: N815


class PartitionsShape(JsonShape):
    """The number of partitions of a topic."""

    partitions: Annotated[int, Field(ge=0, le=MAX_PARTITIONS)] = 0


class QuotaShape(JsonShape):
    """A limit on a backlog's size or age, and the policy when it is exceeded."""

    policy: JsonText | None = None
    limitTime: Long = -1  # noqa: N815
    limitSize: Long = -1  # noqa: N815


class RateShape(JsonShape):
    """Limits on the rate of a topic's messages."""

    # -1 and 0: unlimited.
    publishThrottlingRateInMsg: Long = -1  # noqa: N815
    publishThrottlingRateInByte: Long = -1  # noqa: N815
    dispatchThrottlingRateInMsg: Long = -1  # noqa: N815
    dispatchThrottlingRateInByte: Long = -1  # noqa: N815


class PoliciesShape(JsonShape):
    """The policies of a namespace that concern receipts, or make a topic slow."""

    message_ttl_in_seconds: Long | None = None
    backlog_quota_map: dict[JsonText, QuotaShape] | None = None
    inactive_topic_policies: dict[JsonText, bool | int | JsonText | None] | None = None
    subscription_expiration_time_minutes: Long | None = None
    retention_policies: dict[JsonText, Long | None] | None = None
    replication_clusters: list[JsonText] | None = None
    encryption_required: bool | None = None
    subscription_types_enabled: list[JsonText] | None = None
    max_subscriptions_per_topic: Long | None = None
    publishMaxMessageRate: dict[JsonText, RateShape] | None = None  # noqa: N815
    topicDispatchRate: dict[JsonText, RateShape] | None = None  # noqa: N815
    subscriptionDispatchRate: dict[JsonText, RateShape] | None = None  # noqa: N815
    autoTopicCreationOverride: dict[JsonText, bool | int | JsonText | None] | None = None  # noqa: N815


TxnNumber = Annotated[str, Field(pattern=r"^[0-9]{1,18}$")]


def _parser(adapter: TypeAdapter[T]) -> Callable[[Any], T]:
    def parse(answer: Any) -> T:
        try:
            return adapter.validate_python(answer)
        except ValidationError as error:
            # It names the field, never its value.
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(part)[:40] for part in first["loc"])
            raise ValueError(f"{where or 'the whole answer'}: {first['msg']}") from None

    return parse


_transactions = _parser(TypeAdapter(dict[JsonText, TransactionShape]))
_coordinators = _parser(TypeAdapter(dict[TxnNumber, CoordinatorShape]))
_transaction_in_buffer = _parser(TypeAdapter(TransactionInBufferShape))
_partitions = _parser(TypeAdapter(PartitionsShape))
_stats = _parser(TypeAdapter(StatsShape))
_topic_stats = _parser(TypeAdapter(TopicStatsShape))
_retention = _parser(TypeAdapter(RetentionShape))
_seconds = _parser(TypeAdapter(Long))
_quotas = _parser(TypeAdapter(dict[JsonText, QuotaShape]))
_rate = _parser(TypeAdapter(RateShape))
_policies = _parser(TypeAdapter(PoliciesShape))
_settings = _parser(TypeAdapter(dict[JsonText, Any]))
# ``transactionBufferStats``, ``internalStats``, and lists of names.
buffer = _parser(TypeAdapter(BufferShape))
ledgers = _parser(TypeAdapter(LedgersShape))
stored_ledgers = _parser(TypeAdapter(StoredLedgersShape))
names = _parser(TypeAdapter(list[JsonText]))


def transactions(answer: Any) -> list[OpenTransaction]:
    """Parse ``slowTransactions``, whose keys are transaction ids as text."""
    return [
        OpenTransaction(
            txn=TxnId.parse(row.txnId or text),
            status=str(row.status),
            opened_at=datetime.fromtimestamp(row.openTimestamp / 1000, UTC),
            ttl_s=row.timeoutAt / 1000,
            topics=tuple(sorted(row.producedPartitions or {})),
        )
        for text, row in _transactions(answer).items()
    ]


def coordinators(answer: Any) -> list[CoordinatorState]:
    """Parse ``coordinatorStats``, whose keys are coordinator ids as text."""
    rows = {int(tc_id): row for tc_id, row in _coordinators(answer).items()}
    return [
        CoordinatorState(
            tc_id=tc_id,
            state=str(row.state),
            low_water_mark=row.lowWaterMark,
            open_transactions=row.ongoingTxnSize,
        )
        for tc_id, row in sorted(rows.items())
    ]


def first_entry(answer: Any) -> MessageId | None:
    """Parse ``transactionInBufferStats``; None if the transaction is not open."""
    txn = _transaction_in_buffer(answer)
    return None if txn.startPosition is None or txn.aborted else position(txn.startPosition)


def is_aborted(answer: Any) -> bool | None:
    """Parse ``transactionInBufferStats``; None: open; False: committed, or unknown."""
    txn = _transaction_in_buffer(answer)
    return None if txn.startPosition is not None and not txn.aborted else txn.aborted


def topic_stats(answer: Any) -> TopicStats:
    """Parse ``stats`` or ``partitioned-stats``."""
    found = _topic_stats(answer)
    return TopicStats(
        storage_bytes=found.storageSize,
        messages_in=max(0, found.msgInCounter),
        producers=len(found.publishers),
        readers=sum(
            len(one.consumers) for one in found.subscriptions.values() if not one.isDurable
        ),
        subscriptions=tuple(_durable(found)),
        created_at=_time(found.topicCreationTimeStamp),
    )


def retention(answer: Any) -> Retention:
    """Parse a topic's retention."""
    found = RetentionShape() if answer is None else _retention(answer)  # an empty answer
    return Retention(found.retentionTimeInMinutes, found.retentionSizeInMB)


def seconds(answer: Any) -> int:
    """Parse a number of seconds."""
    return 0 if answer is None else _seconds(answer)  # an empty answer


def subscriptions(answer: Any) -> list[Subscription]:
    """Parse ``stats`` and return the durable subscriptions."""
    return _durable(_stats(answer))


def _durable(stats: StatsShape) -> list[Subscription]:
    return [
        Subscription(
            name=name,
            backlog=one.msgBacklog,
            consumers=len(one.consumers),
            acknowledged_at=_time(one.lastAckedTimestamp),
        )
        for name, one in sorted(stats.subscriptions.items())
        if one.isDurable
    ]


def _time(millis: int) -> datetime | None:
    return datetime.fromtimestamp(millis / 1000, UTC) if millis else None


def position(text: str) -> MessageId:
    """Parse a ``PositionText``."""
    ledger, entry = text.split(":")
    return MessageId(int(ledger), int(entry))


def partitions(answer: Any) -> int:
    """Parse the number of partitions; 0 for an unpartitioned topic."""
    return _partitions(answer).partitions


def quotas(answer: Any) -> dict[str, Any]:
    """Parse backlog quotas, by kind."""
    return {kind: quota.model_dump() for kind, quota in _quotas(answer).items()}


def policies(answer: Any) -> dict[str, Any]:
    """Parse a namespace's policies, without unset ones."""
    return _policies(answer).model_dump(exclude_none=True)


def rate(answer: Any) -> dict[str, Any]:
    """Parse a rate that is set on a topic; {} if it is unset."""
    return {} if answer is None else _rate(answer).model_dump()


def settings(answer: Any) -> dict[str, str]:
    """Parse a broker's configuration."""
    return {name: printable(str(value)) for name, value in _settings(answer).items()}
