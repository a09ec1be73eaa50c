"""Runs made by hand: four epochs of three flights, with the kills of a good demo."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from eos.ids import TxnId
from eos.protocol import LogRecord, Reason, ReasonKind, State
from eos.pulsar.part import PulsarPart
from examples._demo.subprocesses import Event
from examples.flights.flight_files import Flights
from examples.flights.flights_run import FlightsRun, Kill
from tests.protocol.epochs import NOW

T0 = NOW.timestamp()
FLIGHTS = Flights(Path("unused"), (0, 3, 6, 9, 12))
POISONED = Reason(ReasonKind.POISONED, "attempt 1 of a task")


def record(
    epoch: int,
    state: str,
    at_s: float,
    *,
    txn: int,
    run_id: str = "r1",
    reason: Reason | None = None,
) -> LogRecord:
    """Return a record as the report needs it, ``at_s`` seconds after the first epoch began."""
    return LogRecord(
        sink_id="flights",
        query_id="q",
        epoch=str(epoch),
        attempt=1,
        state=State(state),
        run_id=run_id,
        participants=(PulsarPart(service_url="pulsar://b", receipt_topic="t", txn=TxnId(0, txn)),),
        records=3 if state in ("PREPARED", "COMMITTED") else None,
        reason=reason,
        written_at=NOW + timedelta(seconds=at_s),
    )


def eos_run() -> FlightsRun:
    """The executor killed in epoch 1, the driver in epoch 2: exactly once."""
    run = FlightsRun("eos", FLIGHTS)
    run.records = [
        record(0, "OPEN", 1, txn=1),
        record(0, "PREPARED", 2, txn=1),
        record(0, "COMMITTED", 3, txn=1),
        record(1, "OPEN", 11, txn=2),
        record(1, "ABORTING", 12, txn=2, reason=POISONED),
        record(1, "ABORTED", 13, txn=2, reason=POISONED),
        record(1, "OPEN", 14, txn=3),
        record(1, "PREPARED", 15, txn=3),
        record(1, "COMMITTED", 16, txn=3),
        record(2, "OPEN", 21, txn=4),
        record(2, "PREPARED", 22, txn=4),
        record(2, "COMMITTED", 28, txn=4, run_id="r2"),
        record(3, "OPEN", 31, txn=5, run_id="r2"),
        record(3, "PREPARED", 32, txn=5, run_id="r2"),
        record(3, "COMMITTED", 33, txn=5, run_id="r2"),
    ]
    run.events = [Event("started", -1, T0 - 5), *_events((0, 0, 4), (1, 10, 17))]
    run.events += [Event("begin", 2, T0 + 20), Event("died", -1, T0 + 23)]
    run.events += _events((2, 27, 29), (3, 30, 34))
    run.kills = [Kill("executor", 1, T0 + 11.5, 2), Kill("driver", 2, T0 + 23, 3)]
    run.drained = list(range(12))
    run.seen = [
        (T0 + at_s, flight)
        for epoch, at_s in enumerate((3.1, 16.1, 28.1, 33.1))
        for flight in FLIGHTS.ids(epoch)
    ]
    return run


def pulsar_client_run() -> FlightsRun:
    """The same kills: flight 3 was sent twice for the executor's death, 6 to 8 for the driver's."""
    run = FlightsRun("pulsar_client", FLIGHTS)
    run.events = _events((0, 0, 4), (1, 10, 17), (2, 20, 22))
    run.events += [Event("died", -1, T0 + 23), *_events((2, 27, 29), (3, 30, 34))]
    run.kills = [Kill("executor", 1, T0 + 11.5, 1), Kill("driver", 2, T0 + 23, 3)]
    run.drained = [*range(12), 3, 6, 7, 8]
    run.seen = [(T0 + 1, 0), (T0 + 2, 1), (T0 + 3, 2), (T0 + 11, 3), (T0 + 15, 3)]
    run.seen += [(T0 + 16, 4), (T0 + 16, 5), (T0 + 21, 6), (T0 + 21, 7), (T0 + 21, 8)]
    run.seen += [(T0 + 28, 6), (T0 + 28, 7), (T0 + 28, 8)]
    run.seen += [(T0 + 35, 9), (T0 + 35, 10), (T0 + 35, 11)]
    return run


def _events(*epochs: tuple[int, float, float]) -> list[Event]:
    return [
        Event(name, epoch, T0 + at_s)
        for epoch, begin_s, end_s in epochs
        for name, at_s in (("begin", begin_s), ("end", end_s))
    ]
