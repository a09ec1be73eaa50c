"""Everybody who looks on: watching readers, the control workload, the fresh reader at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final

import pulsar

from eos.chaos.checker.history import Control, Position, ReaderSights
from eos.chaos.observers._control import ControlWriter
from eos.chaos.observers.readers import Read, Watcher, drain, keep, open_client, read_text

WATCHERS: Final = 2
_CATCH_UP_S: Final = 30.0
_POLL_S: Final = 0.1


class Observers:
    """Watch the exact ``topics`` while the block runs, past the fault proxy; a context manager.

    ``stuck``: what could not be read to its end, each as a line of text.
    """

    def __init__(
        self, service_url: str, topics: list[str], control_topic: str, read: Read = read_text
    ) -> None:
        self.stuck: list[str] = []
        self._service_url = service_url
        self._topics = topics
        self._read = read
        self._watchers = [
            [Watcher(f"watcher {n + 1}", service_url, topic, read) for topic in topics]
            for n in range(WATCHERS)
        ]
        self._control_topic = control_topic
        self._control = ControlWriter(service_url, control_topic)
        self._stack = ExitStack()

    def __enter__(self) -> Observers:
        client = open_client(self._service_url)
        for topic in (*self._topics, self._control_topic):
            keep(client, topic)
        client.close()
        with ExitStack() as stack:
            for watchers in self._watchers:
                for watcher in watchers:
                    stack.enter_context(watcher)
            stack.enter_context(self._control)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def drain(self, name: str) -> ReaderSights:
        """What a fresh reader finds now; a topic that can't be read to its end is stuck."""
        try:
            return drain(self._service_url, self._topics, name, read=self._read)
        except (TimeoutError, pulsar.PulsarException) as error:
            self.stuck.append(f"{name}: {error}")
            return ReaderSights(name, ())

    def watched(self, fresh: ReaderSights) -> tuple[ReaderSights, ...]:
        """What the watchers saw, as soon as each has seen the last message that ``fresh`` found.

        What they lack after a while, the checker names: a message that a reader who was there all
        the time does not get is skipped.
        """
        ends = {sight.topic: sight.position for sight in fresh.sights}
        deadline = time.monotonic() + _CATCH_UP_S
        while time.monotonic() < deadline and not self._have_reached(ends):
            time.sleep(_POLL_S)
        return self._readers()

    def control(self) -> Control:
        """What became of the control workload; ends it."""
        return self._control.result()

    def _have_reached(self, ends: Mapping[str, Position]) -> bool:
        everybody = [watcher for watchers in self._watchers for watcher in watchers]
        return all(one.has_reached(ends[one.topic]) for one in everybody if one.topic in ends)

    def _readers(self) -> tuple[ReaderSights, ...]:
        # In order within each partition, and that is all that a reader of several has.
        return tuple(
            ReaderSights(
                f"watcher {n + 1}", tuple(s for watcher in watchers for s in watcher.sights)
            )
            for n, watchers in enumerate(self._watchers)
        )
