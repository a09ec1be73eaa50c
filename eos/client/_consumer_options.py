"""The options of a consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from eos.errors import ConfigurationError
from eos.wire.commands import InitialPosition, SubscriptionType

TypeName = Literal["exclusive", "shared", "failover", "key_shared"]
StartName = Literal["earliest", "latest"]

_TYPES: Final = {kind.name.lower(): kind for kind in SubscriptionType}
_STARTS: Final = {position.name.lower(): position for position in InitialPosition}
_ORDERED: Final = (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
# Consumers keep so long what was not acknowledged; a retry topic is for later.
_LONGEST_DELAY_S: Final = 86_400.0


@dataclass(frozen=True)
class ConsumerOptions:
    """See ``PulsarClient.consumer``.

    Raises:
        ConfigurationError: an option is unknown or out of range.
    """

    type: TypeName = "exclusive"
    start: StartName = "earliest"
    priority_level: int = 0
    replicate_subscription_state: bool = False
    nack_delay_s: float = 60.0
    nack_max_delay_s: float = 600.0
    max_redeliveries: int | None = None
    dead_letter_topic: str | None = None

    def __post_init__(self) -> None:
        if self.type not in _TYPES or self.start not in _STARTS:
            raise ConfigurationError(
                f"type={self.type!r}, start={self.start!r}: choose a type of {', '.join(_TYPES)} "
                f"and a start of {', '.join(_STARTS)}."
            )
        if not 0 <= self.priority_level < 2**31:
            raise ConfigurationError(
                f"priority_level must be 0 (first) or more, not {self.priority_level!r}."
            )
        if not 0 < self.nack_delay_s <= self.nack_max_delay_s <= _LONGEST_DELAY_S:
            raise ConfigurationError(
                "nack_delay_s must be above zero, and at most nack_max_delay_s, which is at most "
                f"{_LONGEST_DELAY_S:.0f}."
            )

        if self.max_redeliveries is not None:
            if self.is_ordered:
                raise ConfigurationError(
                    f"max_redeliveries: brokers do not count redeliveries of type={self.type!r}.",
                    hint="Choose the type shared or key_shared.",
                )
            if self.max_redeliveries < 0:
                raise ConfigurationError(
                    f"max_redeliveries must be 0 or more, not {self.max_redeliveries!r}."
                )
        elif self.dead_letter_topic is not None:
            raise ConfigurationError("dead_letter_topic needs max_redeliveries.")

    @property
    def kind(self) -> SubscriptionType:
        """The type on the wire."""
        return _TYPES[self.type]

    @property
    def is_ordered(self) -> bool:
        """Whether one consumer gets all messages, in their order."""
        return self.kind in _ORDERED

    @property
    def is_at_end(self) -> bool:
        """Whether a new subscription begins after the last message."""
        return _STARTS[self.start] is InitialPosition.LATEST

    def nack_delay_of_s(self, redelivery_count: int) -> float:
        """How long a message stays away that was delivered so often before: twice as long each
        time."""
        return float(min(self.nack_max_delay_s, self.nack_delay_s * 2 ** min(redelivery_count, 60)))
