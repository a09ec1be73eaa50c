"""The error tree: every class says what the caller can do.

``Retriable``: nothing is decided and nothing is lost, try again. ``Fatal``: trying again changes
nothing, a person has to act. ``Indeterminate``: the outcome is not known; ask the log and the
witness, never assume. Everything here crosses from executors to the driver, so every error
survives pickling, and none of them may ever carry a token, a password or row data. Much of their
text was written by a peer and ends in a terminal, so all of it is made printable.

Error codes of the broker become classes by one table, ``BROKER_ERRORS``. A code that the table
does not know is ``Indeterminate``: an answer that we do not understand proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_UNPRINTABLE: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """``text`` without what a terminal would obey: escape sequences, changes of direction.

    For all that comes from a peer. Line ends and tabs stay.
    """
    return _UNPRINTABLE.sub("\ufffd", text)


class EosError(Exception):
    """Base of all errors of this project.

    Args:
        message: what happened, in one sentence.
        hint: what the user can do about it; ends the text of the error.
        context: any of ``sink_id``, ``query_id``, ``epoch`` and ``txn_id``, as text.
    """

    default_hint: str = ""

    def __init__(self, message: str, *, hint: str | None = None, **context: object) -> None:
        self.message = printable(message)
        super().__init__(self.message)
        self.hint = printable(self.default_hint if hint is None else hint)
        self.context: dict[str, str] = {}
        self.with_context(**context)

    def with_context(self, **context: object) -> EosError:
        """Add what was not known where the error was raised; what is there already stays."""
        for name, value in context.items():
            if value is not None:
                self.context.setdefault(name, printable(str(value)))
        return self

    def __str__(self) -> str:
        where = ", ".join(f"{name}={value}" for name, value in self.context.items())
        parts = [self.message, f"[{where}]" if where else "", self.hint]
        return " ".join(part for part in parts if part)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.hint, self.context))


def crossed(kind: str, message: str, hint: str) -> EosError:
    """An error that a task reported, by the name of its class: nothing that comes from an executor
    is unpickled. A name that we do not know is ``TransactionPoisoned``."""
    cls = globals().get(kind)
    if not (isinstance(cls, type) and issubclass(cls, EosError)):
        cls = TransactionPoisoned
    return cls(message, hint=hint)


def _rebuild(cls: type[EosError], message: str, hint: str, context: dict[str, str]) -> EosError:
    return cls(message, hint=hint, **context)


class Retriable(EosError):
    """Nothing is decided and nothing is lost: try again."""


class Fatal(EosError):
    """Trying again changes nothing: a person has to act; the hint says how."""


class Indeterminate(EosError):
    """The outcome is not known. The commit log and the witness know, or will know."""


# --- configuration and input -------------------------------------------------------------------


class ConfigurationError(Fatal):
    """An option or a setting is wrong; the message names it and says what is allowed."""


class InputError(Fatal):
    """The rows can't be written as they are; the message names the column or the row."""


class MessageTooLarge(InputError):
    """One message is larger than the broker takes (``maxMessageSize``, 5 MiB by default)."""


class UsedAfterFork(Fatal):
    """A forked child uses an object of its parent, and has neither its threads nor connections."""

    default_hint = (
        'Start processes without a fork: multiprocessing.get_context("spawn"). A client '
        "may also be created in the child; a sink or a commit log may not, once the parent has "
        "used one."
    )


class DuplicateEpochCall(Fatal):
    """The same sink was called twice for one epoch in one run."""


class NewLineage(Fatal):
    """A sink that another query wrote to is used by a new one, or its log has been lost."""


class UnfinishedEpoch(Fatal):
    """An earlier epoch of the query was attempted and is not in the topics: none may follow it."""


class RewoundCheckpoint(Fatal):
    """Spark asks for committed epochs again, and has planned them anew: its checkpoint is old."""


class NewCluster(Fatal):
    """The cluster does not hold what the commit log says was written: it is another one."""


# --- protocol and broker -----------------------------------------------------------------------


class ProtocolError(Fatal):
    """The peer sent something that the Pulsar protocol does not allow here.

    Attributes:
        place: ledger and entry, when a single entry can't be read.
    """

    place: tuple[int, int] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (*super().__reduce__(), {"place": self.place})


class ConnectionLost(Retriable):
    """The connection to the broker ended or could not be made."""

    default_hint = "Check that the broker runs and that the service URL is right."


class Unreachable(ConnectionLost):
    """No connection could be made: nothing was asked."""


class Untrusted(ConfigurationError):
    """The certificate of a peer can't be verified."""


class RequestTimeout(Indeterminate):
    """The broker did not answer in time: it may or may not have done what was asked."""

    default_hint = (
        "It may be overloaded, or a publish rate may hold us back: a connection that is above one "
        "gets no answer at all meanwhile. Raise request_timeout_s (timeout_s of a client) or the "
        "rate, or lower max_batch_bytes: `eos recovery doctor` with --admin-url shows the rates."
    )


class BrokerNotReady(Retriable):
    """The broker cannot serve this now (loading, unloading, busy, limits)."""


class TransactionStillOpen(Retriable):
    """A transaction is open before the end of what is to be read: it can't be complete yet."""


class ConsumerBusy(BrokerNotReady):
    """The subscription exists, and another consumer has it."""


class ProducerBusy(BrokerNotReady):
    """The topic or its namespace has as many producers as its policies admit, or one of this
    name."""


class Unauthorized(Fatal):
    """Authentication or authorization failed."""

    default_hint = "Check the token, password or certificate, and the permissions of its role."


class TopicNotFound(Fatal):
    """The topic or its namespace does not exist."""

    deleted_hint = (
        "It was there before: somebody has deleted it. Start the driver again: it says what is "
        "missing, and how to go on."
    )


class SubscriptionNotFound(Fatal):
    """The subscription does not exist, and the broker makes none by itself."""

    default_hint = "Create the subscription, or set allowAutoSubscriptionCreation=true."


class TopicTerminated(Fatal):
    """The topic was terminated: it takes no more messages."""


class DataLost(Fatal):
    """What was to be read has been deleted."""


class IncompatibleSchema(Fatal):
    """The topic's schema does not admit these messages."""


class InvalidTopicName(Fatal):
    """The broker rejects the topic's name."""


class NotAllowed(Fatal):
    """The broker does not allow this operation."""

    default_hint = (
        "Look at the broker's log for why. A topic whose name ends in -partition-N belongs to a "
        "partitioned topic: create that one, or choose another name."
    )


class TransactionsDisabled(Fatal):
    """The broker runs without transactions."""

    default_hint = (
        "Set transactionCoordinatorEnabled=true in the broker's configuration, run "
        "`bin/pulsar initialize-transaction-coordinator-metadata` and restart the brokers."
    )


class CoordinatorNotFound(Retriable):
    """The transaction coordinator moved or is not loaded: look it up again."""


class TransactionNotFound(Indeterminate):
    """Code 24. The transaction ended: committed, aborted or expired; the code does not tell."""


class InvalidTransactionStatus(Indeterminate):
    """Code 21. The transaction ended or is ending; do not read the outcome from the text."""


class TransactionConflict(Indeterminate):
    """Code 23. Another operation of the transaction is in the way."""


class BrokerError(Indeterminate):
    """A code that we do not map: it says nothing about the outcome."""


# --- the commit --------------------------------------------------------------------------------


class TransactionPoisoned(Retriable):
    """This transaction must never be committed; its work runs again in a new one."""


class TransactionExpired(TransactionPoisoned):
    """The transaction outlived its time to live and the broker aborted it."""


class Fenced(Fatal):
    """Another driver claimed the sink: this one must stop."""

    default_hint = (
        "Another driver or the recovery tool holds this sink's claim. Make sure that only one "
        "query writes with this sink_id, then restart the one that should (with a new sink object, "
        "or after close() of this one)."
    )


class CommitLogError(Fatal):
    """The commit log is broken, rolled back or unwritable; the message names the file."""


class CommitLogUnreadable(CommitLogError):
    """The commit log can't be read from here (permissions, a store that does not answer): whether
    it is broken is not known."""


class InDoubt(Indeterminate):
    """A transaction is unfinished and its outcome can't be proved now."""

    default_hint = (
        "Nothing was guessed. Restart when the broker, and whatever else it writes to, is "
        "reachable and healthy: recovery asks again."
    )


class CommitUnconfirmed(Indeterminate):
    """A commit to a Delta table was tried and not confirmed; it may have taken effect."""

    default_hint = (
        "The table's transaction version tells. Nothing is doubled by trying again: the same "
        "version is taken once."
    )


def none_of(option: str, problems: Mapping[str, EosError]) -> EosError:
    """To raise when no host that ``option`` names was of use: what was wrong with each, by name.
    Retriable if one of them may come back."""
    errors = list(problems.values())
    if len(errors) == 1:
        return errors[0]
    kinds = {type(error) for error in errors}
    retriable = any(isinstance(error, Retriable) for error in errors)
    cls = kinds.pop() if len(kinds) == 1 else ConnectionLost if retriable else ProtocolError
    said = [
        error.message if name in error.message else f"{name}: {error.message}"
        for name, error in problems.items()
    ]
    hints = dict.fromkeys(error.hint for error in errors)
    return cls(f"No host of {option} is of use. {' '.join(said)}", hint=" ".join(hints).strip())


BROKER_ERRORS: Final[dict[int, type[EosError]]] = {
    1: BrokerNotReady,  # MetadataError
    2: BrokerNotReady,  # PersistenceError
    3: Unauthorized,  # AuthenticationError
    4: Unauthorized,  # AuthorizationError
    5: ConsumerBusy,
    6: BrokerNotReady,  # ServiceNotReady
    7: BrokerNotReady,  # ProducerBlockedQuotaExceededError
    8: BrokerNotReady,  # ProducerBlockedQuotaExceededException
    9: ProtocolError,  # ChecksumError
    11: TopicNotFound,
    12: SubscriptionNotFound,
    14: BrokerNotReady,  # TooManyRequests
    15: TopicTerminated,
    16: ProducerBusy,
    17: InvalidTopicName,
    18: IncompatibleSchema,
    20: CoordinatorNotFound,
    21: InvalidTransactionStatus,
    22: NotAllowed,
    23: TransactionConflict,
    24: TransactionNotFound,
    25: BrokerNotReady,  # ProducerFenced
}
"""ServerError of PulsarApi.proto -> class. Source: pulsar-common/src/main/proto/PulsarApi.proto."""


def broker_error(code: int, text: str, *, doing: str, **context: object) -> EosError:
    """The error for code ``code``, that the broker answered with while ``doing`` something."""
    cls, hint = BROKER_ERRORS.get(code, BrokerError), None
    if code == 1 and text.startswith("Encryption is required"):  # no code of its own
        cls, hint = NotAllowed, "End-to-end encryption is not supported yet: write elsewhere."
    detail = text.strip().splitlines()[0][:300] if text.strip() else cls.__name__
    error = cls(f"{doing}: the broker answered with code {code} ({detail}).", hint=hint)
    return error.with_context(**context)
