"""What the admin API's answers look like, checked before anything is believed.

Sources: the fields of ``/admin/v2`` and ``/admin/v3`` as Pulsar 4.2.4 answers them. What is not
named here is passed over. Everything that is text may end in a terminal, so it is made printable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from eos.client.lookup import MAX_PARTITIONS
from eos.errors import ConfigurationError, printable
from eos.ids import TopicName

T = TypeVar("T")

Text = Annotated[str, AfterValidator(printable)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Long = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Millis = Annotated[int, Field(ge=0, lt=2**42)]
"""A time or a duration of Java's, up to the year 2109: two of them added up are still a date."""


def _is_topic(name: str) -> bool:
    try:
        TopicName.parse(name)
    except ConfigurationError:
        return False
    return True


def _known_topics(topics: dict[str, Any]) -> dict[str, Any]:
    """Brokers take names that we do not (with spaces, for one): such topics are never ours."""
    return {name: value for name, value in topics.items() if _is_topic(name)}


Topics = Annotated[dict[str, Any], AfterValidator(_known_topics)]
Position = Annotated[str, Field(pattern=r"^-?[0-9]{1,19}:-?[0-9]{1,19}$")]


class Shape(BaseModel):
    """Part of an answer. Strict: a number as text is no number."""

    model_config = ConfigDict(strict=True, frozen=True, hide_input_in_errors=True)


class TransactionShape(Shape):
    """A transaction, as its coordinator sees it."""

    txnId: Text | None = None  # noqa: N815
    status: Text | None = None
    openTimestamp: Millis = 0  # noqa: N815
    timeoutAt: Millis = 0  # noqa: N815
    producedPartitions: Topics | None = None  # noqa: N815


class CoordinatorShape(Shape):
    """One coordinator's numbers."""

    state: Text | None = None
    lowWaterMark: Long = -1  # noqa: N815
    ongoingTxnSize: Long = 0  # noqa: N815


class BufferShape(Shape):
    """A topic's transaction buffer."""

    state: Text | None = None
    maxReadPosition: Position  # noqa: N815
    ongoingTxnSize: Long = 0  # noqa: N815


class LedgerShape(Shape):
    """One ledger of a topic."""

    ledgerId: Long  # noqa: N815


class TopicShape(Shape):
    """A topic's ledgers."""

    lastConfirmedEntry: Position  # noqa: N815
    ledgers: list[LedgerShape] = []


class PartitionsShape(Shape):
    """How many partitions a name has."""

    partitions: Annotated[int, Field(ge=0, le=MAX_PARTITIONS)] = 0


class QuotaShape(Shape):
    """What happens when a backlog is too large or too old."""

    policy: Text | None = None
    limitTime: Long = -1  # noqa: N815


class PoliciesShape(Shape):
    """The policies of a namespace that concern receipts."""

    message_ttl_in_seconds: Long | None = None
    backlog_quota_map: dict[Text, QuotaShape] | None = None
    inactive_topic_policies: dict[Text, bool | int | Text | None] | None = None
    subscription_expiration_time_minutes: Long | None = None
    retention_policies: dict[Text, Long | None] | None = None
    autoTopicCreationOverride: dict[Text, bool | int | Text | None] | None = None  # noqa: N815


TxnNumber = Annotated[str, Field(pattern=r"^[0-9]{1,18}$")]
TRANSACTIONS: TypeAdapter[dict[Text, TransactionShape]] = TypeAdapter(dict[Text, TransactionShape])
COORDINATORS: TypeAdapter[dict[TxnNumber, CoordinatorShape]] = TypeAdapter(
    dict[TxnNumber, CoordinatorShape]
)
QUOTAS: TypeAdapter[dict[Text, QuotaShape]] = TypeAdapter(dict[Text, QuotaShape])
NAMES: TypeAdapter[list[Text]] = TypeAdapter(list[Text])
SETTINGS: TypeAdapter[dict[Text, Any]] = TypeAdapter(dict[Text, Any])


def shape(adapter: TypeAdapter[T]) -> Callable[[Any], T]:
    """A check for ``AdminClient.read``; its error names the place, never what stood there."""

    def check(answer: Any) -> T:
        try:
            return adapter.validate_python(answer)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = ".".join(str(part)[:40] for part in first["loc"])
            raise ValueError(f"{where or 'all of it'}: {first['msg']}") from None

    return check
