"""The error tree: ``Retriable``, ``Fatal`` or ``Indeterminate`` says how the caller can react.

Errors cross from executors to the driver, so each survives pickling, and none may contain a token,
a password or row data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_UNPRINTABLE: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Replace characters that control a terminal: escape sequences, changes of text direction.

    For all text from a peer. Line ends and tabs stay.
    """
    return _UNPRINTABLE.sub("\ufffd", text)


def named(error: BaseException) -> str:
    """Return the class and the first line of another package's error."""
    return f"{type(error).__name__}: {error}".partition("\n")[0].removesuffix(": ").rstrip(".")


def pip_install(*extras: str) -> str:
    """Return the command that installs the packages of some extras of this distribution."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        needed = [one.partition(";") for one in requires("eos-pulsar") or ()]
    except PackageNotFoundError:  # executors may have only a zip
        return f"pip install 'eos-pulsar[{','.join(extras)}]'"
    wanted = {f" extra == '{extra}'" for extra in extras}
    found = dict.fromkeys(repr(name) for name, _, marker in needed if marker in wanted)
    return f"pip install {' '.join(found)}"


class EosError(Exception):
    """Base of all errors of this project.

    Args:
        message: the problem, in one sentence.
        hint: how the user can solve it; the last part of the error's text.
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
        """Add context that was unknown where the error was raised; existing values stay."""
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


def reported_error(kind: str, message: str, hint: str) -> EosError:
    """Rebuild an error that a task reported; an unknown class becomes ``TransactionPoisoned``."""
    # By name: data from an executor is never unpickled.
    cls = globals().get(kind)
    if not (isinstance(cls, type) and issubclass(cls, EosError)):
        cls = TransactionPoisoned
    return cls(message, hint=hint)


def _rebuild(cls: type[EosError], message: str, hint: str, context: dict[str, str]) -> EosError:
    return cls(message, hint=hint, **context)


class Retriable(EosError):
    """Nothing is decided and nothing is lost: retry."""


class Fatal(EosError):
    """A retry changes nothing: a person must act; the hint says how."""


class Indeterminate(EosError):
    """The outcome is unknown. The commit log and the witness know it, now or later."""


# --- configuration and input -------------------------------------------------------------------


class ConfigurationError(Fatal):
    """An option or setting is wrong; the message names it and the allowed values."""


class InputError(Fatal):
    """The rows can't be written; the message names the column or the row."""


class MessageTooLarge(InputError):
    """A message is larger than the broker accepts (``maxMessageSize``, 5 MiB by default)."""


class UsedAfterFork(Fatal):
    """A forked child uses an object of its parent, without the parent's threads or connections."""

    default_hint = (
        'Start processes without a fork: multiprocessing.get_context("spawn"). Or create a new '
        "client in the child. A sink or commit log can't be created there once the parent has "
        "used one."
    )


class DuplicateEpochCall(Fatal):
    """The same sink was called twice for one epoch in one run."""


class NewLineage(Fatal):
    """A new query uses a sink that another query wrote to, or the sink's log was lost."""


class UnfinishedEpoch(Fatal):
    """An earlier epoch of the query was attempted but not written: no later epoch may follow."""


class RewoundCheckpoint(Fatal):
    """Spark asks for committed epochs again with a new plan: its checkpoint is old."""


class NewCluster(Fatal):
    """A cluster, table or database lacks data of the commit log: another one, or an older copy."""


# --- protocol and broker -----------------------------------------------------------------------


class ProtocolError(Fatal):
    """The peer violated the Pulsar protocol.

    Attributes:
        place: ledger and entry id, if a single entry can't be read.
    """

    place: tuple[int, int] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (*super().__reduce__(), {"place": self.place})


class DecryptionFailed(ProtocolError):
    """An encrypted entry can't be decrypted: no private key of it is here, or it is damaged."""

    default_hint = (
        "Give the private key of one of these names (Encryption, or key_location), or choose with "
        "crypto_failure_action what happens to such entries."
    )


class ConnectionLost(Retriable):
    """The connection to the broker ended or could not be opened."""

    default_hint = "Check that the broker runs and that the service URL is right."


class Unreachable(ConnectionLost):
    """No connection could be opened: no request was sent."""


class Untrusted(ConfigurationError):
    """The certificate of a peer can't be verified."""


class RequestTimeout(Indeterminate):
    """The broker did not answer in time: it may or may not have processed the request."""

    default_hint = (
        "The broker may be overloaded, or a publish rate limit may throttle this client: a "
        "connection above the limit gets no answers at all. Raise request_timeout_s (timeout_s of "
        "a client) or the limit, or lower max_batch_bytes. `eos recovery doctor` with --admin-url "
        "shows the limits."
    )


class BrokerNotReady(Retriable):
    """The broker can't serve the request now (loading, unloading, busy, limits)."""


class TransactionStillOpen(Retriable):
    """A transaction is open before the end of the range to read: the range is incomplete."""


class ConsumerBusy(BrokerNotReady):
    """Another consumer uses the subscription."""


class ProducerBusy(BrokerNotReady):
    """The topic or namespace is at its producer limit, or has a producer of this name."""


class Unauthorized(Fatal):
    """Authentication or authorization failed."""

    default_hint = "Check the token, password or certificate, and the permissions of its role."


class TopicNotFound(Fatal):
    """The topic or its namespace does not exist."""

    default_hint = "Check the name, or create it: `eos catalog create`, or with create=True."
    deleted_hint = (
        "It existed before and was deleted. Restart the driver: it reports what is missing and how "
        "to continue."
    )


class SubscriptionNotFound(Fatal):
    """The subscription does not exist, and the broker does not create it automatically."""

    default_hint = "Create the subscription, or set allowAutoSubscriptionCreation=true."


class TopicTerminated(Fatal):
    """The topic was terminated: it accepts no more messages."""


class DataLost(Fatal):
    """Data to be read was deleted."""


class IncompatibleSchema(Fatal):
    """The topic's schemas are incompatible with these messages."""


class InvalidTopicName(Fatal):
    """The broker rejects the topic's name."""


class NotAllowed(Fatal):
    """The broker does not allow this operation."""

    default_hint = (
        "See the broker's log for the reason. A topic whose name ends in -partition-N belongs to a "
        "partitioned topic: create that topic, or choose another name."
    )


class TransactionsDisabled(Fatal):
    """The broker runs without transactions."""

    default_hint = (
        "Set transactionCoordinatorEnabled=true in the broker's configuration, run "
        "`bin/pulsar initialize-transaction-coordinator-metadata -c CLUSTER -cs METADATA_STORE` "
        "and restart the brokers."
    )


class CoordinatorNotFound(Retriable):
    """The transaction coordinator has moved or is not loaded: repeat the lookup."""


class TransactionNotFound(Indeterminate):
    """Code 24: the transaction has ended. It was committed, was aborted or has expired."""


class InvalidTransactionStatus(Indeterminate):
    """Code 21: the transaction has ended or is ending. The text does not prove the outcome."""


class TransactionConflict(Indeterminate):
    """Code 23: the request conflicts with another operation of the transaction."""


class BrokerError(Indeterminate):
    """An unknown error code: it says nothing about the outcome."""


# --- the commit --------------------------------------------------------------------------------


class TransactionPoisoned(Retriable):
    """The transaction must never be committed; its work runs again in a new one."""


class TransactionExpired(TransactionPoisoned):
    """The transaction exceeded its time to live and the broker aborted it."""


class Fenced(Fatal):
    """Another driver has claimed the sink: this one must stop."""

    default_hint = (
        "Another driver or the recovery tool holds this sink's claim. Make sure that only one "
        "query writes with this sink_id, then restart the one that should (with a new sink object, "
        "or after close() of this one)."
    )


class CommitLogError(Fatal):
    """The commit log is broken, rolled back or unwritable; the message names the file."""


class CommitLogUnreadable(CommitLogError):
    """The commit log can't be read (permissions, no answer): whether it is broken is unknown."""


class InDoubt(Indeterminate):
    """A transaction is unfinished and its outcome can't be proved now."""

    default_hint = (
        "No outcome was assumed. Restart when all outputs (broker, tables, databases) are healthy "
        "and can be reached: recovery asks again."
    )


class CommitUnconfirmed(Indeterminate):
    """A commit to a Delta table was not confirmed; it may have taken effect."""

    default_hint = (
        "The table's transaction version shows the outcome. A retry duplicates nothing: the table "
        "accepts a version once."
    )


def no_usable_host(option: str, problems: Mapping[str, EosError]) -> EosError:
    """Return the error for an ``option`` none of whose hosts is usable.

    Args:
        problems: the error of each host, by the host's name. One that is retriable makes the
            result retriable.
    """
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
    return cls(f"No host of {option} is usable. {' '.join(said)}", hint=" ".join(hints).strip())


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
    """Return the error for the broker's answer ``code`` to the operation ``doing``."""
    # An answer that we do not understand proves nothing.
    cls, hint = BROKER_ERRORS.get(code, BrokerError), None
    if code == 1 and text.startswith("Encryption is required"):  # has no own code
        cls, hint = NotAllowed, "Encrypt with encryption_keys and key_location (Encryption)."
    if code == 0 and not text.strip():
        hint = (
            "The broker's log has the reason. A topic that was terminated while it was empty can't "
            "be read by any client once it was unloaded: delete it."
        )
    detail = text.strip().splitlines()[0][:300] if text.strip() else cls.__name__
    error = cls(f"{doing}: the broker answered with code {code} ({detail}).", hint=hint)
    return error.with_context(**context)
