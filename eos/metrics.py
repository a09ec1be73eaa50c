"""Prometheus metrics of a driver's sinks: ``pip install prometheus-client``.

::

    from prometheus_client import start_http_server
    from eos.metrics import PrometheusListener

    start_http_server(9464)
    sink = PulsarSink(..., listeners=[PrometheusListener()])

docs/monitoring.md lists all metrics and their labels: sink ids and fixed names.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Final

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from eos.events import (
    EpochEnded,
    EpochListener,
    EpochOutcome,
    EpochStarted,
    StateChanged,
    StepEnded,
    UnfinishedAttempt,
    reason_label,
    state_label,
)
from eos.forking import lock_of_process
from eos.protocol import FINAL, UNFINISHED, ReasonKind, State

_EPOCH_BUCKETS_S: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_STEP_BUCKETS_S: Final = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_WRITTEN: Final = (EpochOutcome.COMMITTED, EpochOutcome.EMPTY)


@dataclass(frozen=True)
class SinkFigures:
    """The state of a sink at the time ``since`` (``time.monotonic()``)."""

    sink_id: str
    unfinished: tuple[UnfinishedAttempt, ...]
    owed: int
    """Epochs that were attempted and are neither written nor abandoned."""
    committed_at: datetime | None
    """Time of the last commit."""
    since: float = field(default_factory=time.monotonic)


def sink_families(figures: Iterable[SinkFigures]) -> Iterator[GaugeMetricFamily]:
    """Yield the gauges that a driver and ``eos recovery metrics`` share."""
    count = GaugeMetricFamily(
        "eos_unfinished_transactions",
        "Attempts whose end is not in the commit log, by state: open, in_doubt, aborting.",
        labels=["sink", "state"],
    )
    age = GaugeMetricFamily(
        "eos_oldest_transaction_age_seconds",
        "Age of the oldest attempt in this state; 0 without one.",
        labels=["sink", "state"],
    )
    owed = GaugeMetricFamily(
        "eos_owed_epochs",
        "Epochs that were attempted and are neither written nor abandoned.",
        labels=["sink"],
    )
    committed = GaugeMetricFamily(
        "eos_last_commit_timestamp_seconds",
        "Time when an epoch was last committed or found to be empty.",
        labels=["sink"],
    )
    now = time.monotonic()
    for one in figures:
        for state in sorted(UNFINISHED):
            ages = [a.age_s + now - one.since for a in one.unfinished if a.state is state]
            count.add_metric([one.sink_id, state_label(state)], len(ages))
            age.add_metric([one.sink_id, state_label(state)], max(ages, default=0.0))
        owed.add_metric([one.sink_id], one.owed)
        if one.committed_at is not None:
            committed.add_metric([one.sink_id], one.committed_at.timestamp())
    yield from (count, age, owed, committed)


class PrometheusListener(EpochListener):
    """Exports metrics of its sinks' epochs; docs/monitoring.md lists them.

    Any number of listeners may share a registry, for any number of sinks.

    Args:
        registry: receives the metrics; by default the one that ``start_http_server`` exports.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._metrics = _metrics_in(registry)

    def on_epoch_started(self, event: EpochStarted) -> None:
        """Create the sink's counters as 0: a counter that appears as 1 shows no increase."""
        self._metrics.expect(event.sink_id)

    def on_step_ended(self, event: StepEnded) -> None:
        """Record the duration."""
        self._metrics.steps.labels(event.sink_id, event.step.label).observe(event.duration_s)

    def on_state_changed(self, event: StateChanged) -> None:
        """Update unfinished attempts, committed rows and claims."""
        metrics, sink = self._metrics, event.sink_id
        metrics.update(event)
        match event.state:
            case State.CLAIMED:
                metrics.claims.labels(sink).inc()
            case State.ABORTED:
                metrics.aborts.labels(sink, reason_label(event.reason)).inc()
            case State.COMMITTED:
                for one in event.written:
                    metrics.rows.labels(sink, one.kind).inc(one.records)
                    metrics.bytes.labels(sink, one.kind).inc(one.bytes)

    def on_epoch_ended(self, event: EpochEnded) -> None:
        """Count the outcome and record the duration."""
        metrics, sink = self._metrics, event.sink_id
        metrics.epochs.labels(sink, event.outcome.value).inc()
        if event.outcome in _WRITTEN:
            metrics.durations.labels(sink).observe(event.duration_s)
        if event.outcome is EpochOutcome.FENCED and metrics.loses_claim(sink):
            metrics.claims_lost.labels(sink).inc()


class _Metrics(Collector):
    """All metrics of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        # Query ids, keys and topics are never labels: their number is unbounded.
        self.epochs = counter(
            "eos_epochs",
            "Calls of a sink for an epoch, by outcome: committed, empty, skipped, aborted, failed, "
            "in_doubt, fenced.",
            ["sink", "outcome"],
        )
        self.aborts = counter(
            "eos_aborted_attempts",
            "Attempts that were aborted, by the kind of reason.",
            ["sink", "reason"],
        )
        self.rows = counter("eos_rows", "Rows committed, by kind of output.", ["sink", "kind"])
        self.bytes = counter("eos_bytes", "Bytes committed, by kind of output.", ["sink", "kind"])
        self.durations = Histogram(
            "eos_epoch_duration_seconds",
            "Time from the call for an epoch until it was committed or found to be empty.",
            ["sink"],
            buckets=_EPOCH_BUCKETS_S,
            registry=registry,
        )
        self.steps = Histogram(
            "eos_step_duration_seconds",
            "Duration of each step of an epoch.",
            ["sink", "step"],
            buckets=_STEP_BUCKETS_S,
            registry=registry,
        )
        self.claims = counter("eos_claims", "Claims that this driver has taken.", ["sink"])
        self.claims_lost = counter(
            "eos_claims_lost", "Claims of this driver that another one has taken over.", ["sink"]
        )
        self._lock = lock_of_process()
        self._figures: dict[str, SinkFigures] = {}
        self._claimed: set[str] = set()
        registry.register(self)

    def expect(self, sink_id: str) -> None:
        """Create the counters of a sink."""
        for outcome in EpochOutcome:
            self.epochs.labels(sink_id, outcome.value)
        for kind in ReasonKind:
            self.aborts.labels(sink_id, kind.value.lower())
        self.claims.labels(sink_id)
        self.claims_lost.labels(sink_id)

    def update(self, event: StateChanged) -> None:
        """Update the sink's state after this record of the log."""
        with self._lock:
            if event.state is State.CLAIMED:
                self._claimed.add(event.sink_id)
            before = self._figures.get(event.sink_id)
            committed_at = before.committed_at if before else None
            if event.state in FINAL:
                committed_at = event.at
            self._figures[event.sink_id] = SinkFigures(
                event.sink_id, event.unfinished, event.owed, committed_at
            )

    def loses_claim(self, sink_id: str) -> bool:
        """Whether the sink had a claim; removes it."""
        with self._lock:
            has_claim = sink_id in self._claimed
            self._claimed.discard(sink_id)
            # Unfinished attempts now belong to the other driver, which shows them.
            self._figures.pop(sink_id, None)
        return has_claim

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges with their current values."""
        with self._lock:
            figures = list(self._figures.values())
        return sink_families(figures)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the gauges without values."""
        return sink_families(())


_lock: Final = lock_of_process()
_by_registry: Final[weakref.WeakKeyDictionary[CollectorRegistry, weakref.ref[_Metrics]]] = (
    weakref.WeakKeyDictionary()
)


def _metrics_in(registry: CollectorRegistry) -> _Metrics:
    """Return the metrics of a registry, created once: it refuses duplicate names."""
    with _lock:
        known = _by_registry.get(registry)
        metrics = known() if known is not None else None
        if metrics is None:
            metrics = _Metrics(registry)
            _by_registry[registry] = weakref.ref(metrics)  # the registry holds it
        return metrics
