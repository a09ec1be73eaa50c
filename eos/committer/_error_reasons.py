"""Turns errors into reasons for the log."""

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
    """Return the log's reason for a failed epoch.

    Errors of eos hold no rows, so their text is recorded. The text of other errors may contain a
    row: the log gets only the kind of error, and the driver's own log the text.
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
            return Reason(
                ReasonKind.FAILED, f"{_error_name(error)}; its text is in the driver's log"
            )
    return Reason(kind, error.message)


def _error_name(error: BaseException) -> str:
    """The class of an error; for an error from the JVM also Spark's error condition, if any."""
    name = type(error).__name__
    condition = getattr(error, "getCondition", None)
    try:
        found = condition() if callable(condition) else None
    except Exception:  # it asks a JVM that may have ended
        found = None
    return f"{name} ({found})" if isinstance(found, str) else name
