"""A transaction of a writer: its partitions and producers, and whether it may be committed."""

from __future__ import annotations

import contextlib
import copy
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Final, Protocol, Self

from eos.client._window import HasInFlight, drain
from eos.client.coordinators import Coordinators
from eos.errors import (
    BrokerNotReady,
    ConfigurationError,
    ConnectionLost,
    CoordinatorNotFound,
    EosError,
    Fatal,
    Indeterminate,
    InvalidTransactionStatus,
    NotAllowed,
    ProtocolError,
    Retriable,
    TopicNotFound,
    TransactionExpired,
    TransactionNotFound,
    TransactionPoisoned,
    TransactionsDisabled,
    Unauthorized,
)
from eos.ids import TxnId
from eos.waiting import boot_time
from eos.wire.commands import TxnAction

logger = logging.getLogger(__name__)

END_DEADLINE_S: Final = 60.0

_CLOCK_TOLERANCE_S: Final = 1.0
_REPEATED: Final = (Retriable, Indeterminate, ProtocolError, NotAllowed, TopicNotFound)
_REFUSALS: Final = (Unauthorized, TransactionsDisabled, ConfigurationError)


class TransactionState(Enum):
    """The state of a transaction. Only OPEN accepts sends, only OPEN and FLUSHING accept poison."""

    OPEN = "is open"
    FLUSHING = "is being committed"
    UNKNOWN = "may be committed or not"  # from END_TXN(commit) until its answer
    COMMITTED = "was committed"
    FAILED = "was not committed"
    ABORTED = "was aborted"


class TransactionWriter(HasInFlight, Protocol):
    """The interface of a producer that writes in a transaction."""

    @property
    def topic(self) -> str:
        """The exact topic."""

    def release(self, txn: Transaction) -> None:
        """``txn`` has ended."""


class BatchingProducer(Protocol):
    """The interface of a producer with pending batches, some of them in a transaction."""

    def send_lingering(self) -> None:
        """Send all pending messages; raises no ``EosError``."""

    def drop_lingering(self, txn: Transaction, reason: EosError) -> None:
        """Fail the pending messages of ``txn`` without sending them."""


class Transaction:
    """An open transaction. Only the client that began it ends it.

    Made by ``PulsarClient.transaction``, or by ``join`` if it was begun elsewhere. As a context
    manager it commits at the end of the block, and aborts if the block raises::

        with client.transaction(timeout_s=60) as txn:
            producer.send(b"...", txn=txn)
    """

    def __init__(
        self, txn_id: TxnId, coordinators: Coordinators, *, expires_at: float | None = None
    ) -> None:
        self.id = txn_id
        self._coordinators = coordinators
        self._expires_at = expires_at  # by boot_time; None: begun elsewhere
        self._lock = threading.Lock()
        self._registering = threading.Lock()
        self._registered: set[str] = set()
        self._subscriptions: set[tuple[str, str]] = set()
        self._producers: set[TransactionWriter] = set()
        self._batching: set[BatchingProducer] = set()
        self._is_ending = False
        self._poison: EosError | None = None
        self._state = TransactionState.OPEN
        self._doubtful = False

    @property
    def state(self) -> TransactionState:
        """What this process knows of its end."""
        return self._state

    @property
    def registered(self) -> tuple[str, ...]:
        """The exact partitions that this process added to the transaction, sorted."""
        with self._lock:
            return tuple(sorted(self._registered))

    def register(self, topics: Iterable[str]) -> None:
        """Add exact partition names to the transaction; known ones need no request.

        Raises:
            TransactionExpired: the transaction has ended.
        """
        with self._registering:
            missing = sorted(set(topics) - self._registered)
            if not missing:
                return
            self._add(lambda: self._coordinators.add_partitions(self.id, missing))
            with self._lock:
                self._registered.update(missing)

    def _add(self, add: Callable[[], None]) -> None:
        self.check()
        with poisoning(self):
            try:
                try:
                    add()
                except (BrokerNotReady, ConnectionLost, CoordinatorNotFound):
                    # The coordinator may have moved: retry with a new lookup. Adding a partition or
                    # subscription is idempotent, so nothing is in doubt here.
                    add()
            except (TransactionNotFound, InvalidTransactionStatus) as error:
                ended = f"Transaction {self.id} has ended: {error.message}"
                raise TransactionExpired(ended) from None

    def enlist(self, producer: TransactionWriter) -> None:
        """Register ``producer``, which is about to write in this transaction."""
        self.register([producer.topic])
        with self._lock:
            self._producers.add(producer)

    def admit_lingering(self, producer: BatchingProducer) -> None:
        """Register a message of this transaction that will be pending in ``producer``, locked.

        Raises:
            EosError: as ``check``.
        """
        with self._lock:
            self._check_locked()
            if self._is_ending:
                raise Fatal(f"Transaction {self.id} is ending.", hint="Use another transaction.")
            self._batching.add(producer)

    def enlist_subscription(self, acks: TransactionWriter, subscription: str) -> None:
        """Register ``acks``, which is about to acknowledge messages in this transaction.

        Raises:
            TransactionExpired: the transaction has ended.
        """
        with self._registering:
            known = (acks.topic, subscription)
            if known not in self._subscriptions:
                self._add(lambda: self._coordinators.add_subscription(self.id, *known))
                self._subscriptions.add(known)
        with self._lock:
            self._producers.add(acks)

    def poison(self, reason: EosError) -> None:
        """Forbid the commit of this transaction, as a send is in doubt."""
        with self._lock:
            if self._poison is None and self._state in (
                TransactionState.OPEN,
                TransactionState.FLUSHING,
            ):
                self._poison = copy.copy(reason)

    def check(self) -> None:
        """Check that the transaction can be written to.

        Raises:
            TransactionPoisoned: it must not be committed, or was aborted.
            TransactionExpired: it has exceeded its time to live.
            Fatal: it is being committed, or was: a message sent now would hide committed ones.
        """
        # Of a transaction that has ended, the broker accepts messages and acknowledgements: they
        # hide later messages, or are never delivered again (measured).
        if self._expires_at is not None and boot_time() >= self._expires_at:
            self.poison(TransactionExpired(f"Transaction {self.id} has expired."))
        with self._lock:
            self._check_locked()

    def _check_locked(self) -> None:
        if self._poison is not None:
            raise _poisoned(self.id, self._poison)
        if self._state in (TransactionState.FAILED, TransactionState.ABORTED):
            raise TransactionPoisoned(f"Transaction {self.id} has ended: it {self._state.value}.")
        if self._state is not TransactionState.OPEN:
            raise Fatal(
                f"Transaction {self.id} is ending or has ended: it {self._state.value}.",
                hint="Use another transaction.",
            )

    def commit(self) -> None:
        """Wait for all acknowledgements, then send END_TXN(commit) until the outcome is known.

        Raises:
            TransactionPoisoned: a send is in doubt; the transaction was not committed.
            TransactionExpired: it exceeded its time to live; none of its messages is readable.
            Indeterminate: it may be committed or not: no answer came, or another client ended it.
            Fatal: it was committed before, or another thread commits it now.
        """
        self._send_lingering()
        with self._registering, self._lock:  # after a registration in progress
            self._check_ended_locked()
            self._state = TransactionState.FLUSHING
        try:
            self._flush()
        except BaseException:  # Ctrl-C: END_TXN was not sent, so it can only be aborted
            self._set(TransactionState.FAILED)
            raise
        with self._lock:
            poison = self._poison
            self._state = TransactionState.UNKNOWN if poison is None else TransactionState.FAILED
        if poison is not None:
            self.settle()
            try:
                self._end(TxnAction.ABORT)
            except EosError as error:
                logger.warning("Transaction %s was not aborted; it will expire: %s", self.id, error)
            raise _poisoned(self.id, poison)
        try:
            was_open = self._end(TxnAction.COMMIT)
        except EosError as error:
            if not self._doubtful:  # refused with a clear reason
                self._set(TransactionState.FAILED)
                raise
            raise Indeterminate(
                f"Transaction {self.id} may be committed or not: {error.message}",
                hint="Read the topics to find out, before you send again.",
            ) from error
        if was_open:
            self._set(TransactionState.COMMITTED)
        else:
            self._raise_ended_before()

    def _send_lingering(self) -> None:
        with self._lock:
            self._check_ended_locked()
            # I3: from here on no message may wait in it.
            self._is_ending = True
            producers = list(self._batching)
        for producer in producers:
            producer.send_lingering()

    def _check_ended_locked(self) -> None:
        if self._poison is not None and self._state is TransactionState.OPEN:
            return  # commit() aborts it
        if self._state is TransactionState.UNKNOWN:
            raise Indeterminate(f"Transaction {self.id} {self._state.value}.")
        self._check_locked()

    def _raise_ended_before(self) -> None:
        """Raise the meaning of 24 or 21: it expired only if nothing else can have ended it."""
        now = boot_time() + _CLOCK_TOLERANCE_S
        if self._doubtful or self._expires_at is None or now < self._expires_at:
            raise Indeterminate(
                f"Transaction {self.id} has ended; whether committed is not known.",
                hint="Read the topics to find out, before you send again.",
            )
        self._set(TransactionState.FAILED)
        raise TransactionExpired(f"Transaction {self.id} had ended before the commit: it expired.")

    def abort(self) -> None:
        """Wait for sends in flight, then send END_TXN(abort). May be repeated.

        An expired transaction is left as it is.

        Raises:
            Fatal: it was committed, or is being committed.
            Indeterminate: a commit began, and its outcome is unknown.
        """
        with self._registering, self._lock:
            if self._state not in (
                TransactionState.OPEN,
                TransactionState.FAILED,
                TransactionState.ABORTED,
            ):
                self._check_ended_locked()
            self._state = TransactionState.ABORTED
        self.settle()
        self._end(TxnAction.ABORT)

    def settle(self) -> None:
        """Wait, for at most two timeouts, until this process has nothing of it in flight."""
        with self._lock:
            producers = list(self._batching)
        reason = TransactionPoisoned(f"Transaction {self.id} was ended before this was sent.")
        for producer in producers:
            producer.drop_lingering(self, reason)
        drain(self._snapshot(), self._coordinators.timeout_s)

    def _set(self, state: TransactionState) -> None:
        with self._lock:
            self._state = state

    def _snapshot(self) -> list[TransactionWriter]:
        with self._lock:
            return list(self._producers)

    def _flush(self) -> None:
        for producer in self._snapshot():
            with contextlib.suppress(EosError):  # it has poisoned the transaction
                producer.flush()

    def _end(self, action: TxnAction) -> bool:
        """Send END_TXN until it is answered. False: the transaction had ended before."""
        # Lazy: executors, which never end a transaction, have no tenacity.
        from eos.retry import attempts

        deadline = time.monotonic() + END_DEADLINE_S
        was_open = True
        try:
            for attempt in attempts(END_DEADLINE_S, retry_on=_REPEATED):
                with attempt:
                    left_s = max(0.1, deadline - time.monotonic())
                    was_open = self._end_once(action, left_s)
        finally:
            for producer in self._snapshot():
                producer.release(self)
        return was_open

    def _end_once(self, action: TxnAction, left_s: float) -> bool:
        one_try_s = min(left_s, self._coordinators.timeout_s)
        try:
            self._coordinators.end(self.id, action, timeout_s=one_try_s)
        except (TransactionNotFound, InvalidTransactionStatus):
            return False
        except EosError as error:
            refused = isinstance(error, _REFUSALS) or type(error) is Fatal
            self._doubtful = self._doubtful or not refused
            raise
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            if self._state not in (
                TransactionState.COMMITTED,
                TransactionState.ABORTED,
            ):  # the block may have ended it
                self.commit()
        elif self._state is TransactionState.OPEN:
            try:
                self.abort()
            except EosError:
                logger.warning("Transaction %s was not aborted; it will expire.", self.id)


@contextlib.contextmanager
def poisoning(txn: Transaction | None, *, by_ours: bool = True) -> Iterator[None]:
    """Poison ``txn`` if the block raises: it lacks a message then and must not be committed.

    ``by_ours``: also by an ``EosError``; otherwise only by others, Ctrl-C for example.
    """
    try:
        yield
    except BaseException as error:
        if txn is not None and (by_ours or not isinstance(error, EosError)):
            txn.poison(reason_of(error, "A call"))
        raise


def reason_of(error: BaseException, doing: str) -> EosError:
    """Return ``error``; for one of another class, Ctrl-C for example, an ``EosError`` of it."""
    if isinstance(error, EosError):
        return error
    return ConnectionLost(f"{doing} was ended by {type(error).__name__}.")


def _poisoned(txn_id: TxnId, reason: EosError) -> TransactionPoisoned:
    if isinstance(reason, TransactionPoisoned):
        return copy.copy(reason)
    error = TransactionPoisoned(
        f"Transaction {txn_id} is poisoned: {reason.message}",
        hint=f"{reason.hint} Begin a new transaction and send everything again.".strip(),
    )
    error.__cause__ = reason
    return error
