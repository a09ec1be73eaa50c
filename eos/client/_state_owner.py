"""The owner of a state's topic: its exclusive producer, and the marks that it leaves there."""

from __future__ import annotations

import contextlib
import copy
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from eos.client._client import PulsarClient
from eos.client._entry_producer import EntryProducer
from eos.client._state_store import COLUMNS, changes_of, owner_mark
from eos.errors import (
    BrokerError,
    BrokerNotReady,
    DataLost,
    EosError,
    Fatal,
    Fenced,
    RequestTimeout,
    Retriable,
    TopicNotFound,
)
from eos.ids import MessageId
from eos.wire.commands import ProducerAccessMode

# A broker's text: error 25 alone has more meanings.
_NEWER_OWNER: Final = re.compile(
    r"existing exclusive producer: (?P<name>[^\s)]+)|epoch has already moved"
)


class StateOwner:
    """Takes ``topic`` from its owner, and holds it until there is a newer one.

    Of producers that are opened at the same moment, brokers may keep several, in all access modes
    (measured). But one that has sent something is closed by each fencing one that is opened later.
    So a mark is sent, another producer opened, and a second mark sent. Without another owner's mark
    between the two, no other producer is open, or will be without a later mark.

    Attributes:
        producer: to be the only one of the topic, unless it has failed; see ``prepare``.
        last_mark: the last one that is known to be stored.

    Raises:
        EosError: the broker refuses, or does not answer.
    """

    def __init__(self, client: PulsarClient, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._name = ""
        self._is_confirmed = False
        self._end: EosError | None = None  # why it is not the owner any more
        self._seen: list[str] = []  # the owners of the last marks that were read
        self.last_mark: MessageId | None = None
        try:
            self.producer = self._retried(self._open, ProducerAccessMode.EXCLUSIVE_WITH_FENCING)
        except TopicNotFound as error:
            error.hint = f"Create it: pulsar-admin topics create {topic}"
            raise

    def _retried(self, call: Callable[..., EntryProducer], *args: object) -> EntryProducer:
        from eos.retry import attempts  # lazy: executors have no tenacity

        # BrokerError: a version conflict of topics that are moving has no code (measured).
        retry_on = (Retriable, RequestTimeout, BrokerError)
        return attempts(self._client.lookup.timeout_s, retry_on=retry_on)(call, *args)

    def _open(self, access: ProducerAccessMode, epoch: int | None = None) -> EntryProducer:
        return self._client.producers.open_one(
            self._topic, create=self.last_mark is None, access=access, topic_epoch=epoch
        )

    def prepare(self) -> None:
        """Replace a failed producer. The topic is then to be read: see ``is_alone``.

        Raises:
            Fenced: there is another owner.
            Fatal: the topic was deleted.
        """
        if self._end is not None:
            raise copy.copy(self._end)
        if not self._is_confirmed:
            self._name = uuid.uuid4().hex  # marks of an attempt that failed do not count
        self._seen = []
        if not self.producer.is_usable:
            self.producer.abandon()  # the broker may still have it
            self._check_topic()
            self.producer = self._retried(self._open_again)

    def _check_topic(self) -> None:
        """Check that the last mark is there, before a producer could be in a newer owner's way."""
        # An epoch of the deleted topic may be higher than that of a topic created again.
        if not self._is_confirmed:
            return
        owner = self._owner_after(self.last_mark)
        if owner is None:
            raise self._lost()
        if owner != self._name:
            self._end_with(self._fenced())

    def _owner_after(self, mark: MessageId | None) -> str | None:
        """Read the owner of ``mark``, or of the next one, if it is gone; None: it was the last."""
        with (
            contextlib.suppress(DataLost, TopicNotFound),
            self._client.reader(
                self._topic, start=mark, columns=COLUMNS, read_compacted=True
            ) as reader,
        ):
            for is_gone in (False, True):
                for batch in reader.read_to(reader.last_id if is_gone else mark):
                    if owners := changes_of(batch, self._topic, None).owners:
                        return owners[0]
        return None

    def _end_with(self, reason: EosError) -> NoReturn:
        self.producer.abandon()
        self._end = reason
        raise copy.copy(reason)

    def _open_again(self) -> EntryProducer:
        try:
            # It must not close the producer of a newer owner.
            return self._open(ProducerAccessMode.EXCLUSIVE, self.producer.topic_epoch)
        except TopicNotFound:
            raise self._lost() from None
        except BrokerNotReady as error:
            found = _NEWER_OWNER.search(error.message)
            if found is None or found["name"] in (self.producer.name, "null"):
                raise  # a foreign producer; or this one, until the broker notices its end
            raise self._fenced() from None

    def mark(self, txn: str) -> MessageId:
        """Leave a mark, and wait until it is stored: ``txn`` uses the state, or "": it is read."""
        (sent,) = self.producer.send_many([owner_mark(txn, self._name)])
        self.producer.flush()
        self.last_mark = sent.result()
        return self.last_mark

    def saw(self, owners: Sequence[str]) -> None:
        """Note the owners of marks that were read, in their order."""
        self._seen = [*self._seen, *owners][-2:]

    def is_alone(self) -> bool:
        """Whether no other owner can commit; False: send another mark, and read up to it.

        Called when the topic is read up to this owner's last mark, from its beginning, or from an
        earlier mark of this owner.

        Raises:
            Fenced: there is another owner.
        """
        seen, self._seen = self._seen, self._seen[-1:]
        if seen == [self._name, self._name]:
            self._is_confirmed = True
            return True
        if not self._is_confirmed:
            self.producer.abandon()
            self.producer = self._open(ProducerAccessMode.EXCLUSIVE_WITH_FENCING)
        elif seen != [self._name]:  # a compaction may have left the last mark only
            self._end_with(self._fenced())
        return False

    def _fenced(self) -> Fenced:
        return Fenced(
            f"{self._topic} has a newer owner.",
            hint="Another process has opened this state: stop this one.",
        )

    def _lost(self) -> Fatal:
        return Fatal(
            f"{self._topic} was deleted, and with it the state.",
            hint="`dict(state)` has the values that this process knows. Put them into a new state, "
            "or open this one again: it begins with those of the topic.",
        )

    def close(self) -> None:
        """Give up the topic. A transaction with messages or marks in flight is poisoned."""
        self.producer.abandon()
