"""Between errors and the log: what a task reports becomes an error, an error becomes a reason."""

from __future__ import annotations

from collections.abc import Iterable

from eos import errors
from eos.errors import EosError, Fatal, InputError, TransactionExpired, TransactionPoisoned
from eos.summary import TaskError, TaskSummary
from eos.transaction import Reason, ReasonKind


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
    """Why a transaction is aborted, as the log says it."""
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
            return Reason(ReasonKind.FAILED, f"{type(error).__name__}: {error}")
    return Reason(kind, error.message)
