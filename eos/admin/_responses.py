"""What the admin API's answers look like, checked before anything is believed: answers -> facts.

Every function here raises ValueError when an answer is not what Pulsar gives; its text names the
place, never what stood there.

Sources: the fields of ``/admin/v2`` and ``/admin/v3`` as Pulsar 4.2.4 answers them. What is not
named here is passed over. Everything that is text may end in a terminal, so it is made printable.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from eos.admin._facts import (
    CoordinatorState,
    OpenTransaction,
    Retention,
    Subscription,
    TopicStats,
)
from eos.errors import ConfigurationError, printable
from eos.ids import MAX_PARTITIONS, MessageId, TopicName, TxnId

T = TypeVar("T")

JsonText = Annotated[str, AfterValidator(printable)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Long = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Size = Annotated[int, Field(ge=0, lt=2**63)]
Millis = Annotated[int, Field(ge=0, lt=2**42)]
"""A time or a duration of Java's, up to the year 2109: two of them added up are still a date."""


def is_topic(name: str) -> bool:
    """Whether it is a name that can be ours."""
    try:
        TopicName.parse(name)
    except ConfigurationError:
        return False
    return True


def _known_topics(topics: dict[str, Any]) -> dict[str, Any]:
    """Brokers take names that we do not (with spaces, for one): such topics are never ours."""
    return {name: value for name, value in topics.items() if is_topic(name)}


Topics = Annotated[dict[str, Any], AfterValidator(_known_topics)]
PositionText = Annotated[str, Field(pattern=r"^-?[0-9]{1,19}:-?[0-9]{1,19}$")]


class JsonShape(BaseModel):
    """Part of an answer. Strict: a number as text is no number."""

    model_config = ConfigDict(strict=True, frozen=True, hide_input_in_errors=True)


class TransactionShape(JsonShape):
    """A transaction, as its coordinator sees it."""

    txnId: JsonText | None = None  # noqa: N815
    status: JsonText | None = None
    openTimestamp: Millis = 0  # noqa: N815
    timeoutAt: Millis = 0  # noqa: N815
    producedPartitions: Topics | None = None  # noqa: N815


class CoordinatorShape(JsonShape):
    """One coordinator's numbers."""

    state: JsonText | None = None
    lowWaterMark: Long = -1  # noqa: N815
    ongoingTxnSize: Long = 0  # noqa: N815


class PinShape(JsonShape):
    """One transaction in a topic's transaction buffer."""

    startPosition: PositionText | None = None  # noqa: N815
    aborted: bool = False


class BufferShape(JsonShape):
    """A topic's transaction buffer."""

    state: JsonText | None = None
    maxReadPosition: PositionText  # noqa: N815
    ongoingTxnSize: Long = 0  # noqa: N815


class LedgerShape(JsonShape):
    """One ledger of a topic. The last one, which is written to, says 0 entries."""

    ledgerId: Long  # noqa: N815
    entries: Count = 0
    size: Size = 0
    offloaded: bool = False


class LedgersShape(JsonShape):
    """A topic's ledgers."""

    lastConfirmedEntry: PositionText  # noqa: N815
    ledgers: list[LedgerShape] = []
    currentLedgerEntries: Count = 0  # noqa: N815
    currentLedgerSize: Size = 0  # noqa: N815


class SubscriptionShape(JsonShape):
    """One subscription of a topic."""

    msgBacklog: Long = 0  # noqa: N815
    isDurable: bool = True  # noqa: N815
    consumers: list[Any] = []
    lastAckedTimestamp: Millis = 0  # noqa: N815


class StatsShape(JsonShape):
    """What the broker counts of a topic that it serves."""

    subscriptions: dict[JsonText, SubscriptionShape] = {}


class TopicStatsShape(StatsShape):
    """What a topic holds; of ``partitioned-stats`` over all partitions."""

    storageSize: Size = 0  # noqa: N815
    msgInCounter: Long = 0  # noqa: N815  # a writer may claim any count, -1000 as well
    publishers: list[Any] = []
    topicCreationTimeStamp: Millis = 0  # noqa: N815  # 0: an older broker


class RetentionShape(JsonShape):
    """How long what is acknowledged is kept."""

    retentionTimeInMinutes: Long = 0  # noqa: N815
    retentionSizeInMB: Long = 0  # noqa: N815


class PartitionsShape(JsonShape):
    """How many partitions a name has."""

    partitions: Annotated[int, Field(ge=0, le=MAX_PARTITIONS)] = 0


class QuotaShape(JsonShape):
    """What happens when a backlog is too large or too old."""

    policy: JsonText | None = None
    limitTime: Long = -1  # noqa: N815
    limitSize: Long = -1  # noqa: N815


class RateShape(JsonShape):
    """What a topic's messages may come or go at; -1 and 0: as fast as they like."""

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
    publishMaxMessageRate: dict[JsonText, RateShape] | None = None  # noqa: N815
    topicDispatchRate: dict[JsonText, RateShape] | None = None  # noqa: N815
    subscriptionDispatchRate: dict[JsonText, RateShape] | None = None  # noqa: N815
    autoTopicCreationOverride: dict[JsonText, bool | int | JsonText | None] | None = None  # noqa: N815


TxnNumber = Annotated[str, Field(pattern=r"^[0-9]{1,18}$")]
_TRANSACTIONS: Final = TypeAdapter(dict[JsonText, TransactionShape])
_COORDINATORS: Final = TypeAdapter(dict[TxnNumber, CoordinatorShape])
_PIN: Final = TypeAdapter(PinShape)
_BUFFER: Final = TypeAdapter(BufferShape)
_LEDGERS: Final = TypeAdapter(LedgersShape)
_PARTITIONS: Final = TypeAdapter(PartitionsShape)
_STATS: Final = TypeAdapter(StatsShape)
_TOPIC_STATS: Final = TypeAdapter(TopicStatsShape)
_RETENTION: Final = TypeAdapter(RetentionShape)
_SECONDS: Final = TypeAdapter(Long)
_QUOTAS: Final = TypeAdapter(dict[JsonText, QuotaShape])
_RATE: Final = TypeAdapter(RateShape)
_POLICIES: Final = TypeAdapter(PoliciesShape)
_NAMES: Final = TypeAdapter(list[JsonText])
_SETTINGS: Final = TypeAdapter(dict[JsonText, Any])


def transactions(answer: Any) -> list[OpenTransaction]:
    """Of ``slowTransactions``: by their numbers as text."""
    return [
        OpenTransaction(
            txn=TxnId.parse(row.txnId or text),
            status=str(row.status),
            opened_at=datetime.fromtimestamp(row.openTimestamp / 1000, UTC),
            ttl_s=row.timeoutAt / 1000,
            topics=tuple(sorted(row.producedPartitions or {})),
        )
        for text, row in _checked(_TRANSACTIONS, answer).items()
    ]


def coordinators(answer: Any) -> list[CoordinatorState]:
    """Of ``coordinatorStats``: by their numbers as text."""
    rows = {int(tc_id): row for tc_id, row in _checked(_COORDINATORS, answer).items()}
    return [
        CoordinatorState(
            tc_id=tc_id,
            state=str(row.state),
            low_water_mark=row.lowWaterMark,
            open_transactions=row.ongoingTxnSize,
        )
        for tc_id, row in sorted(rows.items())
    ]


def begun_at(answer: Any) -> MessageId | None:
    """Of ``transactionInBufferStats``; None: it is not open."""
    pin = _checked(_PIN, answer)
    return None if pin.startPosition is None or pin.aborted else position(pin.startPosition)


def buffer(answer: Any) -> BufferShape:
    """Of ``transactionBufferStats``."""
    return _checked(_BUFFER, answer)


def ledgers(answer: Any) -> LedgersShape:
    """Of ``internalStats``."""
    return _checked(_LEDGERS, answer)


def topic_stats(answer: Any) -> TopicStats:
    """Of ``stats`` or ``partitioned-stats``."""
    found = _checked(_TOPIC_STATS, answer)
    return TopicStats(
        storage_bytes=found.storageSize,
        messages_in=max(0, found.msgInCounter),
        producers=len(found.publishers),
        readers=sum(
            len(one.consumers) for one in found.subscriptions.values() if not one.isDurable
        ),
        subscriptions=tuple(_durable(found)),
        made_at=_time(found.topicCreationTimeStamp),
    )


def retention(answer: Any) -> Retention:
    """Of a topic, as it holds; none at all where nothing is said."""
    found = RetentionShape() if answer is None else _checked(_RETENTION, answer)
    return Retention(found.retentionTimeInMinutes, found.retentionSizeInMB)


def seconds(answer: Any) -> int:
    """A number of them; 0 where nothing is said."""
    return 0 if answer is None else _checked(_SECONDS, answer)


def subscriptions(answer: Any) -> list[Subscription]:
    """Of ``stats``: the durable ones."""
    return _durable(_checked(_STATS, answer))


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
    """Of a ``PositionText``."""
    ledger, entry = text.split(":")
    return MessageId(int(ledger), int(entry))


def partitions(answer: Any) -> int:
    """How many there are; 0 of a topic that is not partitioned."""
    return _checked(_PARTITIONS, answer).partitions


def names(answer: Any) -> list[str]:
    """A list of them."""
    return _checked(_NAMES, answer)


def quotas(answer: Any) -> dict[str, Any]:
    """Backlog quotas, by their kind."""
    return {kind: quota.model_dump() for kind, quota in _checked(_QUOTAS, answer).items()}


def policies(answer: Any) -> dict[str, Any]:
    """Of a namespace; unset ones are missing."""
    return _checked(_POLICIES, answer).model_dump(exclude_none=True)


def rate(answer: Any) -> dict[str, Any]:
    """Of a topic: {} when it has none of its own."""
    return {} if answer is None else _checked(_RATE, answer).model_dump()


def settings(answer: Any) -> dict[str, str]:
    """Of a broker."""
    return {name: printable(str(value)) for name, value in _checked(_SETTINGS, answer).items()}


def _checked(adapter: TypeAdapter[T], answer: Any) -> T:
    try:
        return adapter.validate_python(answer)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part)[:40] for part in first["loc"])
        raise ValueError(f"{where or 'all of it'}: {first['msg']}") from None
