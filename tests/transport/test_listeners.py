"""A producer's listener is replaced while the broker closes the producer."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from eos.errors import ConnectionLost
from eos.transport.listeners import Listeners
from eos.wire import commands

CLOSED = commands.CloseProducer(producer_id=1, request_id=0)


class Between:
    """A lock that calls ``run`` once, after its first release."""

    def __init__(self, run) -> None:
        self._lock, self._run = threading.Lock(), run

    def __enter__(self):
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()
        run, self._run = self._run, lambda: None
        run()


def listener() -> tuple[SimpleNamespace, list[Exception]]:
    told: list[Exception] = []
    return SimpleNamespace(on_closed=told.append), told


def test_a_replacing_listener_is_notified_instead():
    listeners, (old, told_old), (new, told_new) = Listeners(), listener(), listener()
    listeners.add_producer(1, old)
    listeners.replace_producer(1, old, new)
    listeners.dispatch(CLOSED)
    assert (len(told_old), len(told_new)) == (0, 1)


def test_the_listener_of_a_closed_producer_can_not_be_replaced():
    listeners, (old, told), (new, _) = Listeners(), listener(), listener()
    listeners.add_producer(1, old)
    listeners.dispatch(CLOSED)
    with pytest.raises(ConnectionLost):
        listeners.replace_producer(1, old, new)
    assert len(told) == 1


def test_a_listener_that_is_replaced_during_a_close_is_refused_or_notified():
    listeners, (old, _), (new, told_new) = Listeners(), listener(), listener()
    listeners.add_producer(1, old)
    refused: list[ConnectionLost] = []

    def replace() -> None:
        try:
            listeners.replace_producer(1, old, new)
        except ConnectionLost as error:
            refused.append(error)

    listeners._lock = Between(replace)  # type: ignore[assignment]
    listeners.dispatch(CLOSED)
    assert refused or told_new
