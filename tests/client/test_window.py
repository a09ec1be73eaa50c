"""The bounded window of entries in flight, with a broker that acknowledges at any time."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from concurrent.futures import Future

import pytest

from eos.chaos.cluster.proxy import FrameAction
from eos.client import PulsarClient
from eos.client._window import ENTRY_OVERHEAD_BYTES, Budget, PendingEntry, Window
from eos.errors import ConnectionLost, EosError, Fatal, RequestTimeout
from eos.ids import MessageId
from eos.wire import commands
from tests.transport.scripted import wait_until

ID = MessageId(1, 1)


def make(
    *,
    max_bytes: int = 10_000,
    timeout_s: float = 5.0,
    failures: list | None = None,
    budget: Budget | None = None,
) -> Window:
    return Window(
        "t",
        budget or Budget(max_bytes),
        timeout_s=timeout_s,
        on_failure=(failures if failures is not None else []).append,
    )


def admit(window: Window, size: int = 100, count: int = 1) -> tuple[int, Future[MessageId]]:
    entry = window.entry(size)
    return window.admit(entry, count, window.check), entry.acknowledgement


def test_entries_are_numbered_by_their_messages():
    window = make()
    assert [admit(window, count=count)[0] for count in (1, 5, 1, 2)] == [0, 1, 6, 7]


def test_room_comes_back_with_the_receipt_and_a_waiting_sender_goes_on():
    window = make(max_bytes=2 * (100 + ENTRY_OVERHEAD_BYTES))
    sequence_id, acknowledgement = admit(window)
    admit(window)
    got_room = threading.Event()

    def wait() -> None:
        admit(window)
        got_room.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not got_room.wait(0.1)
    assert window.acknowledge(sequence_id, ID)
    assert got_room.wait(5)
    thread.join()
    assert acknowledgement.result(timeout=0) == ID


def test_small_entries_count_for_more_than_their_bytes_because_they_cost_memory():
    window = make(max_bytes=5 * ENTRY_OVERHEAD_BYTES + 4, timeout_s=0.05)
    for _ in range(5):
        admit(window, size=0)
    with pytest.raises(RequestTimeout):
        admit(window, size=0)


def test_an_entry_over_the_limit_goes_alone():
    window = make(max_bytes=1000, timeout_s=0.05)
    sequence_id, _ = admit(window, size=10**9)
    window.acknowledge(sequence_id, ID)
    admit(window, size=10**9)
    with pytest.raises(RequestTimeout):
        admit(window, size=1)


def test_all_producers_of_a_client_share_the_room():
    """64 partitions with a window each would take 64 times the memory."""
    budget = Budget(2 * (100 + ENTRY_OVERHEAD_BYTES))
    first, second = make(budget=budget), make(budget=budget)
    sequence_id, _ = admit(first)
    admit(first)
    thread = threading.Timer(0.1, lambda: first.acknowledge(sequence_id, ID))
    thread.start()
    admit(second)  # it has nothing in flight, so it waits for the other's acknowledgement
    thread.join()


def test_the_producer_whose_receipts_stop_is_the_one_that_fails():
    """It may no longer be checked; the producers that wait for its room are not at fault."""
    budget = Budget(2 * (100 + ENTRY_OVERHEAD_BYTES))
    silent, other = make(budget=budget, timeout_s=0.2), make(budget=budget, timeout_s=0.2)
    admit(silent)
    admit(silent)
    admit(other)
    other.check()
    with pytest.raises(RequestTimeout, match="No acknowledgement"):
        silent.check()


def test_a_large_entry_has_its_turn_among_small_ones():
    budget = Budget(4 * (100 + ENTRY_OVERHEAD_BYTES))
    large, small = make(budget=budget), make(budget=budget)
    known = [admit(small)[0] for _ in range(2)]
    sent: list[str] = []

    def send(window: Window, size: int, name: str) -> threading.Thread:
        def run() -> None:
            admit(window, size)
            sent.append(name)

        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: thread.is_alive() and len(budget._turns) == len(threads) + 1)
        return thread

    threads: list[threading.Thread] = []
    threads.append(send(large, 10**6, "large"))
    threads.append(send(small, 100, "small"))  # it would fit, but must wait its turn
    for sequence_id in known:
        assert sent == []
        small.acknowledge(sequence_id, ID)
    threads[0].join(5)
    assert sent == ["large"]
    large.acknowledge(0, ID)
    threads[1].join(5)
    assert sent == ["large", "small"]


def test_a_producer_that_fails_gives_its_room_back():
    budget = Budget(100 + ENTRY_OVERHEAD_BYTES)
    first, second = make(budget=budget), make(budget=budget, timeout_s=0.2)
    admit(first)
    first.fail(ConnectionLost("x"))
    admit(second)
    second.check()


def test_a_failure_settles_all_entries_once_and_is_fresh_for_everyone():
    failures: list[EosError] = []
    window = make(failures=failures)
    acknowledgements = [admit(window)[1] for _ in range(3)]
    window.fail(ConnectionLost("first"))
    window.fail(ConnectionLost("second"))
    errors = [acknowledgement.exception(timeout=0) for acknowledgement in acknowledgements]
    assert [error.message for error in errors + failures] == ["first"] * 4
    assert len({id(error) for error in errors + failures}) == 4
    assert not window.acknowledge(0, ID)
    for use in (window.flush, window.check, lambda: admit(window)):
        with pytest.raises(ConnectionLost, match="first"):
            use()


def test_callbacks_run_without_the_lock():
    """A callback that waits for another thread of the client must not wait forever."""
    window = make()
    _, acknowledgement = admit(window)
    entered = threading.Event()

    def look(_: object) -> None:
        thread = threading.Thread(target=lambda: (window.close(), entered.set()))
        thread.start()
        thread.join(30)

    acknowledgement.add_done_callback(look)
    window.fail(ConnectionLost("x"))
    assert entered.is_set()


def test_a_flush_does_not_wait_for_what_comes_after_it():
    window = make()
    first, _ = admit(window)
    flushed = threading.Event()
    thread = threading.Thread(target=lambda: (window.flush(), flushed.set()))
    thread.start()
    assert not flushed.wait(0.1)
    admit(window)
    window.acknowledge(first, ID)
    assert flushed.wait(5)
    thread.join()


def test_a_closed_window_takes_nothing_and_still_gets_its_receipts():
    window = make()
    sequence_id, acknowledgement = admit(window)
    assert window.close()
    assert not window.close()
    with pytest.raises(Fatal, match="is closed"):
        admit(window)
    assert window.acknowledge(sequence_id, ID)
    assert acknowledgement.result(timeout=0) == ID
    window.flush()


def test_a_refused_admission_changes_nothing():
    window = make()

    def refuse() -> None:
        raise Fatal("no")

    with pytest.raises(Fatal):
        window.admit(window.entry(1), 1, refuse)
    assert admit(window)[0] == 0


def test_send_waits_while_too_many_bytes_are_in_flight_and_goes_on(proxy, name):
    """Send 1 MB through a window of 64 KB to a broker that delays its answers."""
    release = threading.Event()
    in_flight_max = []

    def hold(_: commands.SendReceipt) -> FrameAction:
        release.wait(20)
        return FrameAction.PASS

    with PulsarClient(proxy.service_url, timeout_s=15, max_pending_bytes=64 * 1024) as client:
        producer = client.entry_producer(name, create=True)
        acknowledgements: list[Future[MessageId]] = []

        def send() -> None:
            for _ in range(100):
                acknowledgements.append(producer.send(b"x" * 10_000))
                in_flight_max.append(client.producers._budget._used_bytes)

        with proxy.fault(commands.SendReceipt, hold, times=10**6):
            thread = threading.Thread(target=send)
            thread.start()
            wait_until(lambda: len(acknowledgements) == 5)
            thread.join(0.3)
            assert thread.is_alive()
            assert len(acknowledgements) == 5  # a sixth one would exceed the window
            release.set()
            thread.join(15)
            assert not thread.is_alive()
        assert (
            len({acknowledgement.result(timeout=10) for acknowledgement in acknowledgements}) == 100
        )
        assert max(in_flight_max) <= 64 * 1024


def test_a_broker_that_stops_acknowledging_ends_the_waiting_send_in_time(through, proxy, name):
    producer = through.entry_producer(name, create=True)
    producer._window._timeout_s = 2
    through.producers._budget._max_bytes = 3000
    with proxy.fault(commands.SendReceipt, FrameAction.DROP, times=100):
        producer.send(b"x" * 1000)
        with pytest.raises(RequestTimeout, match="No acknowledgement"):
            producer.send(b"x" * 1000)
    with pytest.raises(RequestTimeout):
        producer.close()


class Interrupted(Budget):
    """Simulates a Ctrl-C before the first call of the named method."""

    def __init__(self, before: str) -> None:
        super().__init__(10_000)
        self._before: str | None = before

    def _may_interrupt(self, name: str) -> None:
        if self._before == name:
            self._before = None
            raise KeyboardInterrupt

    def take(self, entry: PendingEntry) -> None:
        self._may_interrupt("take")
        super().take(entry)

    def free(self, entries: Iterable[PendingEntry]) -> None:
        self._may_interrupt("free")
        super().free(entries)


def test_an_interrupt_while_an_entry_is_admitted_leaves_what_the_sender_can_end():
    window = make(budget=Interrupted("take"))
    entry = window.entry(100)
    with pytest.raises(KeyboardInterrupt):
        window.admit(entry, 1, window.check)
    assert window.is_in_flight(entry)
    window.fail(ConnectionLost("gone"))
    assert not window.is_in_flight(entry)
    with pytest.raises(ConnectionLost):
        entry.acknowledgement.result(timeout=0)


def test_what_an_interrupted_failure_left_in_the_budget_is_freed_by_the_next_sender():
    budget = Interrupted("free")
    first = make(budget=budget, timeout_s=0.05)
    second = make(budget=budget, timeout_s=5)
    admit(first, size=10_000)
    with pytest.raises(KeyboardInterrupt):
        first.fail(ConnectionLost("gone"))
    second_timeout = make(budget=budget, timeout_s=0.05)
    assert admit(second_timeout, size=100)[0] == 0
    assert admit(second, size=100)[0] == 0


def test_an_interrupted_failure_has_poisoned_or_is_not_yet_one():
    failures: list[EosError] = []

    def interrupted(error: EosError) -> None:
        failures.append(error)
        if len(failures) == 1:
            raise KeyboardInterrupt

    window = Window("t", Budget(1000), timeout_s=1, on_failure=interrupted)
    with pytest.raises(KeyboardInterrupt):
        window.fail(ConnectionLost("gone"))
    assert window.is_open
    window.fail(ConnectionLost("gone again"))
    assert not window.is_open
    assert len(failures) == 2


def test_a_turn_that_an_interrupt_left_behind_blocks_nobody():
    budget = Budget(10_000)
    left = budget.turn()
    left.__enter__()  # never exited, as after an interrupt in its last lines
    window = make(budget=budget, timeout_s=0.05)
    assert admit(window)[0] == 0


def test_a_callback_that_sends_while_its_thread_waits_for_room_takes_no_turn_away():
    budget = Budget(2 * ENTRY_OVERHEAD_BYTES)
    silent, waiting = (make(budget=budget, timeout_s=0.05) for _ in range(2))
    other = make(budget=budget)
    sent: list[int] = []

    def send(_: Future[MessageId]) -> None:
        sequence_id, _ = admit(other, size=10)
        sent.append(sequence_id)
        other.acknowledge(sequence_id, ID)

    _, acknowledgement = admit(silent, size=ENTRY_OVERHEAD_BYTES)
    acknowledgement.add_done_callback(send)
    assert admit(waiting, size=ENTRY_OVERHEAD_BYTES)[0] == 0
    assert sent == [0]
