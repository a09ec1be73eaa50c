"""Between errors and the log: an error becomes a reason."""

from __future__ import annotations

from typing import Final

from eos.errors import (
    ConfigurationError,
    DuplicateEpochCall,
    EosError,
    InputError,
    TransactionExpired,
    TransactionPoisoned,
)
from eos.protocol import Reason, ReasonKind

NO_RECORDS: Final = Reason(ReasonKind.EMPTY, "the epoch had no records")


def reason_of(error: BaseException) -> Reason:
    """Why an epoch failed, as the log says it.

    Our own errors hold no rows, and are written down. What anybody else's says may be a row of the
    user's: the log gets the kind of error, and its text belongs in the driver's own log.
    """
    match error:
        case TransactionExpired():
            kind = ReasonKind.EXPIRED
        case TransactionPoisoned():
            kind = ReasonKind.POISONED
        case InputError():
            kind = ReasonKind.INPUT
        case ConfigurationError() | DuplicateEpochCall():
            kind = ReasonKind.FAILED
        case EosError():
            kind = ReasonKind.BROKER
        case _:
            return Reason(ReasonKind.FAILED, f"{_kind_of(error)}; its text is in the driver's log")
    return Reason(kind, error.message)


def _kind_of(error: BaseException) -> str:
    """The class of an error; for one of the JVM Spark's name for it, where it has one."""
    name = type(error).__name__
    condition = getattr(error, "getCondition", None)
    try:
        found = condition() if callable(condition) else None
    except Exception:  # it asks a JVM that may be gone
        found = None
    return f"{name} ({found})" if isinstance(found, str) else name
