"""Between errors and the log: what a task reports becomes an error, an error becomes a reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from eos import errors
from eos.errors import EosError, Fatal, InputError, TransactionExpired, TransactionPoisoned
from eos.protocol import Reason, ReasonKind
from eos.summary import TaskError, TaskSummary

NO_RECORDS: Final = Reason(ReasonKind.EMPTY, "the epoch had no records")


def raise_task_error(summaries: Iterable[TaskSummary]) -> None:
    """Raise what a task reports, in its own class: bad input before what bad luck caused.

    Raises:
        EosError: a task reports one.
    """
    raised = [_rebuilt(s.error, s.spark_partition) for s in summaries if s.error is not None]
    for error in sorted(raised, key=lambda error: not isinstance(error, Fatal)):
        raise error


def _rebuilt(error: TaskError, spark_partition: int) -> EosError:
    cls = getattr(errors, error.kind, None)
    if not (isinstance(cls, type) and issubclass(cls, EosError)):
        cls = TransactionPoisoned
    return cls(f"{error.message} (Spark partition {spark_partition})", hint=error.hint)


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
