"""OpenTelemetry spans of epochs, in their driver: ``pip install opentelemetry-api``.

::

    from eos.tracing import TracingListener

    sink = PulsarSink(..., listeners=[TracingListener()])

An epoch is a span, ``eos epoch``, in the caller's context. Its steps are child spans, such as
``eos write``, and records of the commit log are its events. Configure the export of spans with the
OpenTelemetry SDK, as for any other program; without the SDK nothing is recorded.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode, TracerProvider

from eos import __version__
from eos.events import (
    EpochEnded,
    EpochEvent,
    EpochListener,
    EpochOutcome,
    EpochStarted,
    StateChanged,
    StepEnded,
)

_SUCCESSES = (EpochOutcome.COMMITTED, EpochOutcome.EMPTY, EpochOutcome.SKIPPED)
_Attributes = dict[str, str | int]


class TracingListener(EpochListener):
    """Records the epochs of its sinks as spans.

    Args:
        tracer_provider: the global one by default.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer = trace.get_tracer("eos", __version__, tracer_provider)
        # A sink has one epoch at a time. Events that come after its end still belong to it.
        self._spans: dict[str, Span] = {}

    def on_epoch_started(self, event: EpochStarted) -> None:
        """Start the span."""
        self._spans[event.sink_id] = self._tracer.start_span(
            "eos epoch", start_time=_ns(event.at), attributes=_attributes(event)
        )

    def on_step_ended(self, event: StepEnded) -> None:
        """Add a child span."""
        span = self._spans.get(event.sink_id)
        if span is None:
            return
        child = self._tracer.start_span(
            f"eos {event.step.label}",
            context=trace.set_span_in_context(span),
            start_time=_ns(event.at - timedelta(seconds=event.duration_s)),
            attributes=_attributes(event),
        )
        if not event.is_complete:
            child.set_status(Status(StatusCode.ERROR, "failed: the epoch's span has the reason"))
        child.end(end_time=_ns(event.at))

    def on_state_changed(self, event: StateChanged) -> None:
        """Add an event to the span."""
        span = self._spans.get(event.sink_id)
        if span is None or not span.is_recording():
            return
        attributes = _attributes(event)
        if event.attempt is not None:
            attributes["eos.attempt"] = event.attempt
        if event.transaction is not None:
            attributes["eos.transaction"] = event.transaction
        if event.reason is not None:
            attributes["eos.reason"] = str(event.reason)
        span.add_event(event.state.value, attributes, timestamp=_ns(event.at))

    def on_epoch_ended(self, event: EpochEnded) -> None:
        """End the span, with the outcome."""
        span = self._spans.get(event.sink_id)
        if span is None:
            return
        span.set_attribute("eos.outcome", event.outcome.value)
        span.set_attribute("eos.attempts", event.attempts)
        if event.records is not None:
            span.set_attribute("eos.rows", event.records)
        if event.bytes is not None:
            span.set_attribute("eos.bytes", event.bytes)
        if event.transaction is not None:
            span.set_attribute("eos.transaction", event.transaction)
        if event.outcome not in _SUCCESSES:
            span.set_status(Status(StatusCode.ERROR, str(event.reason)))
        span.end(end_time=_ns(event.at))


def _attributes(event: EpochEvent) -> _Attributes:
    attributes: _Attributes = {"eos.sink": event.sink_id}
    if event.query_id is not None:
        attributes["eos.query"] = event.query_id
    if event.epoch is not None:
        attributes["eos.epoch"] = event.epoch
    return attributes


def _ns(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000) * 1000
