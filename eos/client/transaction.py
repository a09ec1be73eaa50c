"""One transaction as a writer sees it: what it touches, and whether it may still be committed."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from eos.client.coordinators import Coordinators
from eos.errors import (
    EosError,
    Indeterminate,
    InvalidTransactionStatus,
    Retriable,
    TransactionExpired,
    TransactionNotFound,
    TransactionPoisoned,
)
from eos.ids import TxnId
from eos.wire.commands import TxnAction

if TYPE_CHECKING:
    from eos.client.producer import Producer

logger = logging.getLogger(__name__)

END_DEADLINE_S: Final = 60.0


class Transaction:
    """An open transaction. Made by ``PulsarClient.transaction`` (begun here, ended here) or
    ``PulsarClient.join`` (begun elsewhere; only written to here).

    As a context manager it commits at the end of the block, and aborts when the block raises::

        with client.transaction(timeout_s=60) as txn:
            producer.send(b"...", txn=txn)
    """

    def __init__(self, txn_id: TxnId, coordinators: Coordinators) -> None:
        self.id = txn_id
        self._coordinators = coordinators
        self._lock = threading.Lock()
        self._registering = threading.Lock()
        self._registered: set[str] = set()
        self._producers: set[Producer] = set()
        self._poison: EosError | None = None
        self._ending = False

    @property
    def registered(self) -> tuple[str, ...]:
        """The exact partitions that this process added to the transaction, in order."""
        with self._lock:
            return tuple(sorted(self._registered))

    def register(self, topics: Iterable[str]) -> None:
        """Add exact partition names to the transaction; those it has already cost nothing.

        Raises:
            TransactionExpired: the transaction has ended.
        """
        with self._registering:
            missing = sorted(set(topics) - self._registered)
            if not missing:
                return
            self.check()
            try:
                self._coordinators.add_partitions(self.id, missing)
            except (TransactionNotFound, InvalidTransactionStatus) as error:
                expired = TransactionExpired(f"Transaction {self.id} has ended: {error.message}")
                self.poison(expired)
                raise expired from error
            except EosError as error:
                self.poison(error)
                raise
            with self._lock:
                self._registered.update(missing)

    def enlist(self, producer: Producer) -> None:
        """``producer`` is about to write in this transaction."""
        self.register([producer.topic])
        with self._lock:
            self._producers.add(producer)

    def poison(self, reason: EosError) -> None:
        """Never commit this transaction: something about a send is in doubt."""
        with self._lock:
            if self._poison is None:
                self._poison = reason

    def check(self) -> None:
        """Nothing, while the transaction may be written to.

        Raises:
            TransactionPoisoned: it may not, or not any more.
        """
        with self._lock:
            if self._poison is not None:
                raise _poisoned(self.id, self._poison)
            if self._ending:
                raise TransactionPoisoned(f"Transaction {self.id} is ending or has ended.")

    def commit(self) -> None:
        """Wait for every receipt, then END_TXN(commit), repeated until the outcome is known.

        Raises:
            TransactionPoisoned: a send is in doubt; the transaction was aborted.
            TransactionExpired: it outlived its time to live; nothing of it is readable.
            Indeterminate: END_TXN was sent and its answer lost; it may be committed or not.
        """
        with self._lock:
            already, self._ending = self._ending, True
        if already:
            raise TransactionPoisoned(f"Transaction {self.id} is ending or has ended.")
        self._flush()
        if self._poison is not None:
            self._end(TxnAction.ABORT)
            raise _poisoned(self.id, self._poison) from self._poison
        self._end(TxnAction.COMMIT)

    def abort(self) -> None:
        """Wait for the sends that are under way, then END_TXN(abort).

        An abort that overtook the first send to a fresh partition would leave the partition's
        readers pinned by it (measured). A transaction that has ended already is left as it is.
        """
        with self._lock:
            self._ending = True
        self._flush()
        self._end(TxnAction.ABORT)

    def _flush(self) -> None:
        with self._lock:
            producers = list(self._producers)
        for producer in producers:
            with contextlib.suppress(EosError):  # the poison tells
                producer.flush()

    def _end(self, action: TxnAction) -> None:
        # Late, so that executors, which never end a transaction, need no tenacity.
        from eos.retry import attempts

        deadline = time.monotonic() + END_DEADLINE_S
        doubtful = ended_before = False
        try:
            for attempt in attempts(END_DEADLINE_S, retry_on=(Retriable, Indeterminate)):
                with attempt:
                    try:
                        left_s = max(0.1, deadline - time.monotonic())
                        self._coordinators.end(self.id, action, timeout_s=left_s)
                    except (TransactionNotFound, InvalidTransactionStatus):
                        ended_before = True
                    except EosError:
                        doubtful = True
                        raise
        finally:
            for producer in self._producers:
                producer.release(self)
        if ended_before and action is TxnAction.COMMIT:
            raise _ended_before(self.id, doubtful=doubtful)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.commit()
            return
        try:
            self.abort()
        except EosError:
            logger.warning("transaction %s was not aborted; it expires by itself", self.id)


def _poisoned(txn_id: TxnId, reason: EosError) -> TransactionPoisoned:
    if isinstance(reason, TransactionPoisoned):
        return reason
    return TransactionPoisoned(
        f"Transaction {txn_id} is poisoned: {reason.message}",
        hint="Begin a new transaction and send everything again.",
    )


def _ended_before(txn_id: TxnId, *, doubtful: bool) -> EosError:
    """What 24 or 21 means: only after a doubtful END_TXN may our own commit have caused it."""
    if doubtful:
        return Indeterminate(
            f"Transaction {txn_id} has ended; whether committed is not known.",
            hint="Read the topics to find out.",
        )
    return TransactionExpired(f"Transaction {txn_id} had ended before the commit: it expired.")
