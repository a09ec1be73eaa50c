"""A service's state by key, in a compacted topic, changed in the transactions of its outputs."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Self, TypeVar, overload

from eos.client._accumulator import checked_message
from eos.client._client import PulsarClient
from eos.client._consumer import Consumer
from eos.client._reader import Reader
from eos.client._state_owner import StateOwner
from eos.client._state_store import (
    COLUMNS,
    OWNER_KEY,
    Key,
    MemoryStore,
    SqliteStore,
    StateStore,
    changes_of,
    message_of,
)
from eos.client._topics_consumer import TopicsConsumer
from eos.client._transaction import Transaction, TransactionState, poisoning
from eos.errors import (
    BrokerError,
    BrokerNotReady,
    ConfigurationError,
    ConnectionLost,
    EosError,
    Fatal,
    InputError,
    InvalidTransactionStatus,
    TransactionNotFound,
    TransactionStillOpen,
    Unauthorized,
)
from eos.ids import MessageId, TopicName, TxnId
from eos.wire.commands import TxnAction

# The first compaction creates it. Until then no subscription would protect the messages.
_COMPACTION: Final = "__compaction"
_PAUSE_S: Final = 0.2  # without a message: an open transaction is in the way
_ENTRY_MESSAGES: Final = 1000
_PROGRESS_S: Final = 1.0
_UNENDED: Final = (TransactionState.OPEN, TransactionState.FLUSHING)
T = TypeVar("T")

logger = logging.getLogger(__name__)


class KeyedState(Mapping[Key, bytes]):
    """The values of keys, restored from ``topic`` when the state is opened::

        with (
            client.consumer("words", "counter") as words,
            KeyedState(client, "counts", words) as counts,
        ):
            while messages := words.receive_batch(1000, timeout_s=5):
                with counts.transaction() as txn:
                    for message in messages:
                        count = int(counts.get(message.key, b"0")) + 1
                        counts.put(message.key, b"%d" % count, txn)
                    words.acknowledge(messages, txn)

    A change belongs to its transaction: state, outputs and acknowledgements are committed together,
    or not at all. Whichever process opens the topic last owns it: it first aborts the open
    transaction of the previous owner. From then on, no transaction in which an earlier owner has
    used the state can be committed. For one thread at a time.

    All keys are ``str``, or all ``bytes``. After a commit of unknown outcome, the next use restores
    the state again.

    Args:
        topic: an exact name, for this state only; created if it is missing, unless it is a
            partition.
        inputs: the consumer whose messages change the state, ``exclusive``: those that the previous
            owner had acknowledged in its open transaction are delivered again.
        spill_folder: keep the state in a temporary SQLite file there, instead of in memory.
        on_progress: called during a restore, with the number of messages read so far.

    Raises:
        Fenced: there is a newer owner; from all methods.
        ConfigurationError: ``inputs`` may have other consumers beside it.
        TransactionStillOpen: a foreign transaction is open in the topic.
        EosError: the broker refuses, or does not answer.
    """

    def __init__(
        self,
        client: PulsarClient,
        topic: str,
        inputs: Consumer | TopicsConsumer | None = None,
        *,
        spill_folder: str | Path | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        if inputs is not None and not inputs.is_exclusive:
            # Another consumer may acknowledge in a transaction that has ended: brokers accept that,
            # and never deliver the message again (measured).
            raise ConfigurationError("The inputs of a state need a consumer of type exclusive.")

        self.topic = str(TopicName.parse(topic))
        self._client = client
        self._on_progress = on_progress
        self._timeout_s = client.lookup.timeout_s
        self._key_type: type | None = None  # of committed keys, also deleted ones
        self._txn: Transaction | None = None  # the last one that used the state
        self._changes: dict[Key, bytes | None] = {}  # of this transaction
        self._is_current = False
        self._owner = StateOwner(client, self.topic)
        self._store: StateStore = MemoryStore()
        try:
            if spill_folder is not None:
                self._store = SqliteStore(Path(spill_folder))
            self._protect()
            self._restore()
            if inputs is not None:
                # After an unload its queue may have messages of a commit that was under way: their
                # acknowledgement would conflict (measured).
                inputs.redeliver()
        except BaseException:
            self.close()
            raise

    def _protect(self) -> None:
        from eos.retry import attempts  # lazy: executors have no tenacity

        try:
            attempts(self._timeout_s)(self._client.subscribe_durably, self.topic, _COMPACTION)
        except Unauthorized as error:
            # A policy may ask for another name, but the broker needs this one.
            logger.warning(
                "%s: unless it has the subscription %s, brokers delete its messages: run "
                "`pulsar-admin topics create-subscription -s %s -m earliest %s`. %s",
                *(self.topic, _COMPACTION, _COMPACTION, self.topic, error.message),
            )

    # --- reading ------------------------------------------------------------------------------

    def __getitem__(self, key: Key) -> bytes:
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    @overload
    def get(self, key: Key, /) -> bytes | None: ...

    @overload
    def get(self, key: Key, /, default: T) -> bytes | T: ...

    def get(self, key: Key, /, default: object = None) -> object:
        """Return the value of ``key``, with the changes of the open transaction."""
        self._settle()
        value = self._changes[key] if key in self._changes else self._store.get(key)
        return default if value is None else value

    def __iter__(self) -> Iterator[Key]:
        self._settle()
        for key in self._store:
            if key not in self._changes:
                yield key
        yield from [key for key, value in self._changes.items() if value is not None]

    def __len__(self) -> int:
        self._settle()
        added = sum(
            (value is not None) - (self._store.get(key) is not None)
            for key, value in self._changes.items()
        )
        return len(self._store) + added

    # A state is itself only: its transactions keep it in a set.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    # --- changing -----------------------------------------------------------------------------

    def transaction(self, *, timeout_s: float = 60.0) -> Transaction:
        """Begin a transaction, as ``PulsarClient.transaction``, that uses this state."""
        txn = self._client.transaction(timeout_s=timeout_s)
        try:
            self.use_in(txn)
        except BaseException:
            with contextlib.suppress(EosError):
                txn.abort()  # nobody else has it
            raise
        return txn

    def use_in(self, txn: Transaction) -> None:
        """Let ``txn`` be committed only by the owner; ``put`` and ``delete`` do it, too.

        Raises:
            Fatal: the transaction that used the state before is still open.
        """
        self._settle()
        if txn is self._txn:
            return
        if self._txn is not None:
            self._drop(self._txn)
        with poisoning(txn):
            if not self._owner.producer.is_usable:
                self._read_on(self._owner.last_mark)
            # Outside of the transaction: a successor reads it, and aborts the transaction. Stored
            # before anything is sent in it, which would hide the successor's messages otherwise.
            self._owner.mark(str(txn.id))
        txn.admit_lingering(self)
        self._txn = txn

    def _drop(self, txn: Transaction) -> None:
        """Abort a transaction that can't be committed any more."""
        try:
            txn.check()
        except EosError:
            with contextlib.suppress(EosError):
                txn.abort()
            self._settle()
        else:
            raise Fatal(
                f"Transaction {txn.id} uses this state.",
                hint="Commit or abort it first, best by a `with` block.",
            )

    def put(self, key: Key, value: bytes, txn: Transaction) -> None:
        """Set the value of ``key`` in ``txn``.

        Raises:
            InputError: the key or the value can't be stored. ``txn`` is poisoned, as by all errors.
        """
        self._change(key, value, txn)

    def delete(self, key: Key, txn: Transaction) -> None:
        """Remove ``key``, if it is there, in ``txn``; errors as of ``put``."""
        self._change(key, None, txn)

    def _change(self, key: Key, value: bytes | None, txn: Transaction) -> None:
        with poisoning(txn):
            self.use_in(txn)
            self._check_key(key)
            limit = self._owner.producer.max_batch_bytes
            message, _ = checked_message(value, key, None, None, limit)
            self._changes[key] = message.value
            txn.check()

    def _check_key(self, key: Key) -> None:
        if not isinstance(key, str | bytes) or not key:
            raise InputError(f"A key must be a text or bytes, and not empty: {key!r:.100}.")
        if key in (OWNER_KEY, OWNER_KEY.encode()):
            raise InputError(f"The key {OWNER_KEY} is used by the state itself.")
        # The broker compares bytes as base64: as a text that would be the same key.
        known = self._key_type or next(map(type, self._changes), type(key))
        if type(key) is not known:
            raise InputError("All keys of a state must be str, or all must be bytes.")

    # --- called by the transaction --------------------------------------------------------------

    def send_lingering(self) -> None:
        """Send all changes, as the transaction is being committed."""
        txn = self._txn
        assert txn is not None
        try:
            messages = [message_of(key, value) for key, value in self._changes.items()]
            for first in range(0, len(messages), _ENTRY_MESSAGES):
                self._owner.producer.send_many(messages[first : first + _ENTRY_MESSAGES], txn=txn)
            self._owner.producer.flush()
        except EosError as error:
            txn.poison(error)

    def drop_lingering(self, txn: Transaction, reason: EosError) -> None:
        """Part of the interface: ``_settle`` drops the changes of an aborted transaction."""

    def _settle(self) -> None:
        """Apply or drop the changes of a transaction that has ended, or restore if in doubt."""
        txn = self._txn
        if txn is not None and txn.state not in _UNENDED:
            changes, self._changes, self._txn = self._changes, {}, None
            if txn.state is TransactionState.COMMITTED:
                was_current, self._is_current = self._is_current, False  # if the store fails
                self._store.apply(changes)
                self._key_type = next(map(type, changes), self._key_type)
                self._is_current = was_current
            elif txn.state is TransactionState.UNKNOWN:
                self._is_current = False
        if not (self._is_current and self._store.is_usable):
            self._restore()

    # --- restoring --------------------------------------------------------------------------

    def _restore(self) -> None:
        """Read all that was committed."""
        self._is_current, self._key_type = False, None
        self._store.clear()
        started = time.monotonic()
        count = self._read_on(None)
        self._is_current = True
        logger.info(
            "%s: %d keys from %d messages in %.1f s.",
            *(self.topic, len(self._store), count, time.monotonic() - started),
        )

    def _read_on(self, start: MessageId | None) -> int:
        """Read what was committed since ``start``, until no other owner can commit more."""
        from eos.retry import attempts  # lazy: executors have no tenacity

        # A producer that was fenced meanwhile fails with the first of these errors.
        retry_on = (ConnectionLost, BrokerNotReady, BrokerError)
        return attempts(self._timeout_s, retry_on=retry_on)(self._read_once, start)

    def _read_once(self, start: MessageId | None) -> int:
        self._owner.prepare()
        count, is_alone = 0, False
        with self._client.reader(
            self.topic, start=start, columns=COLUMNS, read_compacted=True
        ) as reader:
            while not is_alone:
                count = self._read_to(reader, self._owner.mark(""), count)
                is_alone = self._owner.is_alone()
        return count

    def _read_to(self, reader: Reader, own: MessageId, count: int) -> int:
        last_txn = aborted = ""
        moved = reported = time.monotonic()
        while True:
            for batch in reader.read(idle_s=_PAUSE_S):
                changes = changes_of(batch, self.topic, self._key_type)
                self._store.apply(changes.values)
                self._owner.saw(changes.owners)
                self._key_type, last_txn = changes.key_type, changes.txn or last_txn
                count, moved = count + batch.num_rows, time.monotonic()
                if self._on_progress is not None and moved - reported > _PROGRESS_S:
                    self._on_progress(count)
                    reported = moved
                if reader.next_id is not None and reader.next_id.place > own.place:
                    break
            # The previous owner can't send any more. Its last transaction may be open: it hides
            # later messages, here and in the topics of its outputs.
            if last_txn != aborted:
                self._abort(last_txn)
                aborted, moved = last_txn, time.monotonic()
            if reader.next_id is not None and reader.next_id.place > own.place:
                return count
            if time.monotonic() - moved > self._timeout_s:
                raise TransactionStillOpen(
                    f"{self.topic}: a transaction is open at {reader.next_id}.",
                    hint="A foreign writer uses the topic, or the previous owner had another role. "
                    "Wait until it expires, or end it: `eos recovery orphans` finds it.",
                )

    def _abort(self, txn: str) -> None:
        from eos.retry import attempts

        end = self._client.coordinators.end
        try:
            attempts(self._timeout_s)(
                end, TxnId.parse(txn), TxnAction.ABORT, timeout_s=self._timeout_s
            )
        except (TransactionNotFound, InvalidTransactionStatus):
            pass  # it has ended, or is being committed: then the reader waits for its messages
        except (Unauthorized, ValueError) as error:
            logger.warning("%s: %s is not aborted; it will expire: %s", self.topic, txn, error)

    def close(self) -> None:
        """Give up the topic. An open transaction can't be committed any more."""
        self._owner.close()
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
