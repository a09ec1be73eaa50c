"""The next entry of a topic, looked at while topics move."""

from __future__ import annotations

from contextlib import contextmanager

from eos.errors import BrokerNotReady
from sources._entries import next_entry


def test_a_topic_that_moves_meanwhile_is_asked_again():
    """A broker can't be made to refuse at this very moment: so a client that is refused twice."""

    class Client:
        def __init__(self):
            self.refusals = 2

        @contextmanager
        def entry_reader(self, topic, start, *, permits):
            if self.refusals:
                self.refusals -= 1
                raise BrokerNotReady("Topic is temporarily unavailable")
            yield self

        def read(self, deadline):
            return iter(["the entry"])

    assert next_entry(Client(), "t", None, 20) == "the entry"
