"""The observers of a run: watching readers, the control workload, a fresh reader at the end."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from typing import Any, Final

import pulsar

from eos.chaos._records import text_of
from eos.chaos.checker.history import Control, Position, ReaderSightings
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.observers.readers import (
    Background,
    Read,
    Watcher,
    drain,
    keep,
    open_client,
    read_text,
)
from eos.retry import Patience

_EVERY_S: Final = 0.1
_EXPIRY_S: Final = 20.0


class ControlWriter(Background):
    """Sends a message to its own topic every tenth of a second; a context manager."""

    def __init__(self, service_url: str, topic: str) -> None:
        super().__init__("control")
        self._service_url = service_url
        self._topic = topic
        self._acknowledged: set[str] = set()
        self._sent: set[str] = set()

    def result(self) -> Control:
        """Stop sending, and return the acknowledged and the readable messages.

        Raises:
            RuntimeError: nothing was acknowledged, or sending ended too early: it proves nothing.
        """
        is_whole = self._thread.is_alive()
        self.__exit__()  # nothing may be sent after the reader's sentinel
        if not is_whole or not self._acknowledged:
            raise RuntimeError("the control workload has sent too little, which proves nothing")
        seen = drain(self._service_url, [self._topic], "control reader")
        return Control(
            acknowledged=frozenset(self._acknowledged),
            unknown=frozenset(self._sent - self._acknowledged),
            seen=frozenset(sight.record for sight in seen.sightings if sight.record is not None),
        )

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            try:
                with closing(open_client(self._service_url)) as client:
                    producer = client.create_producer(self._topic)
                    while not self._over.wait(_EVERY_S):
                        number += 1
                        self._send(producer, f"control/{number}")
                    producer.flush()
            except pulsar.PulsarException:  # a broker is down: with a new client, later
                self._over.wait(0.5)

    def _send(self, producer: Any, record_id: str) -> None:
        def on_answer(result: object, _: object) -> None:
            if result == pulsar.Result.Ok:
                self._acknowledged.add(record_id)

        self._sent.add(record_id)  # before it is sent: without an answer it is unknown
        producer.send_async(text_of(record_id).encode(), on_answer)


WATCHERS: Final = 2
GRACE_S: Final = 60.0  # tolerated time after the time to live of a transaction
_CATCH_UP_S: Final = 30.0
_POLL_S: Final = 0.1


class Observers:
    """Watch partitions while the block runs, bypassing the fault proxy; a context manager.

    ``stuck`` has a line of text for each topic that could not be read to its end.
    """

    def __init__(
        self,
        service_url: str,
        topics: list[str],
        control_topic: str,
        read: Read = read_text,
        keys: str = "",
    ) -> None:
        self.stuck: list[str] = []
        self._service_url = service_url
        self._topics = topics
        self._read = read
        self._keys = keys
        self._watchers = [
            [Watcher(f"watcher {n + 1}", service_url, topic, read, keys) for topic in topics]
            for n in range(WATCHERS)
        ]
        self._control_topic = control_topic
        self._control = ControlWriter(service_url, control_topic)
        self._stack = ExitStack()

    def __enter__(self) -> Observers:
        # Before anything is sent, or the broker may trim unread messages.
        with closing(open_client(self._service_url)) as client:
            for topic in (*self._topics, self._control_topic):
                keep(client, topic)
        with ExitStack() as stack:  # if one can't begin, the others end
            for watchers in self._watchers:
                for watcher in watchers:
                    stack.enter_context(watcher)
            stack.enter_context(self._control)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def drain(self, name: str) -> ReaderSightings:
        """Read everything with a fresh reader; a topic that can't be read to its end is stuck."""
        try:
            return drain(self._service_url, self._topics, name, read=self._read, keys=self._keys)
        except (TimeoutError, pulsar.PulsarException) as error:
            self.stuck.append(f"{name}: {error}")
            return ReaderSightings(name, ())

    def watched(self, fresh: ReaderSightings) -> tuple[ReaderSightings, ...]:
        """Wait until the watchers have reached the end of ``fresh``; return their sightings."""
        # By position, and for a limited time: the checker finds missing ones as skipped.
        ends = {sight.topic: sight.position for sight in fresh.sightings}
        deadline = time.monotonic() + _CATCH_UP_S
        while time.monotonic() < deadline and not self._have_reached(ends):
            time.sleep(_POLL_S)
        return self._readers()

    def control(self) -> Control:
        """End the control workload, and return its result."""
        return self._control.result()

    def _have_reached(self, ends: Mapping[str, Position]) -> bool:
        watchers = [watcher for group in self._watchers for watcher in group]
        return all(one.has_reached(ends[one.topic]) for one in watchers if one.topic in ends)

    def _readers(self) -> tuple[ReaderSightings, ...]:
        # In order within each partition; readers of several partitions guarantee no more.
        return tuple(
            ReaderSightings(
                f"watcher {n + 1}", tuple(s for watcher in watchers for s in watcher.sightings)
            )
            for n, watchers in enumerate(self._watchers)
        )


def stuck_in(target: FaultTarget) -> list[str]:
    """Blocked readers and expired transactions after the run, each as a line of text."""
    # The inputs' last transaction may hold readers back until it expires.
    patience = Patience(_EXPIRY_S)
    while True:
        ended = target.recovery("orphans", "--json")
        try:
            lines = lines_of(json.loads(ended.stdout))
        except (ValueError, KeyError, TypeError):
            lines = [told(ended) or "eos recovery orphans has no report"]
        if not lines or patience.is_over:
            return lines
        patience.pause()


def told(ended: subprocess.CompletedProcess[str]) -> str:
    """How a verb of ``eos recovery`` ended, and its last words; "" after exit code 0."""
    if not ended.returncode:
        return ""
    text = (ended.stdout + ended.stderr).strip()[-500:]
    return f"eos recovery {ended.args[4]}, exit code {ended.returncode}: {text}"


def lines_of(report: dict[str, list[dict[str, object]]]) -> list[str]:
    """The lines for a report of ``eos recovery orphans --json``."""
    # A young open transaction is allowed: a driver that dies between NEW_TXN and OPEN leaves an
    # empty one, which expires.
    old = [one for one in report["orphans"] if float(str(one["ttl_left_s"])) < -GRACE_S]
    return [
        *(
            f"transaction {one['txn']} is past its time to live: {one['ttl_left_s']} s"
            for one in old
        ),
        *(
            f"{one['topic']} is readable up to {one['max_read']}: {one['cause']}"
            for one in report["held_back"]
        ),
        *(str(problem) for problem in report["problems"]),
    ]
