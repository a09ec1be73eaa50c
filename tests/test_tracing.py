"""Spans of epochs: parents, durations and outcomes."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from eos.errors import InputError
from eos.steps import Step
from eos.tracing import TracingListener
from tests.support.plain_driver import QUERY
from tests.support.watched import FolderDriver, folder_kind

__all__ = ["folder_kind"]

ROWS = ["a", "bc", "def"]


@pytest.fixture
def exported() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exported) -> TracerProvider:
    made = TracerProvider()
    made.add_span_processor(SimpleSpanProcessor(exported))
    return made


def test_an_epoch_is_a_span_of_the_caller_and_its_steps_are_children(tmp_path, provider, exported):
    driver = FolderDriver(tmp_path, TracingListener(provider))
    with provider.get_tracer("test").start_as_current_span("the caller's") as caller:
        result = driver.run("7", ROWS)
    driver.close()
    spans = {span.name: span for span in exported.get_finished_spans()}
    epoch = spans.pop("eos epoch")
    assert epoch.parent.span_id == caller.get_span_context().span_id
    del spans["the caller's"]
    assert list(spans) == [f"eos {step.label}" for step in Step]
    for step in Step:
        child = spans[f"eos {step.label}"]
        assert child.parent.span_id == epoch.context.span_id
        took_s = (child.end_time - child.start_time) / 1e9
        assert took_s == pytest.approx(result.steps_s[step.label], abs=1e-4)
    assert [event.name for event in epoch.events] == ["CLAIMED", "OPEN", "PREPARED", "COMMITTED"]
    attributes = dict(epoch.attributes)
    assert (attributes["eos.sink"], attributes["eos.epoch"]) == ("orders", "7")
    assert (attributes["eos.outcome"], attributes["eos.rows"]) == ("committed", 3)
    assert epoch.status.status_code is StatusCode.UNSET


def test_a_step_that_is_reported_later_belongs_to_its_epoch(tmp_path, provider, exported, caplog):
    driver = FolderDriver(tmp_path, TracingListener(provider))
    driver.run("0", ROWS, query_id=QUERY, finish_later=True)
    driver.close()
    spans = {span.name: span for span in exported.get_finished_spans()}
    assert spans["eos finish"].parent.span_id == spans["eos epoch"].context.span_id
    assert not caplog.records, "the SDK warns of what is added to a span that has ended"


def test_a_failed_epoch_is_an_error_and_so_is_its_step(tmp_path, provider, exported):
    def fail():
        raise InputError("no such column")

    driver = FolderDriver(tmp_path, TracingListener(provider))
    with pytest.raises(InputError):
        driver.run("7", ROWS, before_write=fail)
    driver.close()
    spans = {span.name: span for span in exported.get_finished_spans()}
    assert spans["eos write"].status.status_code is StatusCode.ERROR
    assert spans["eos end"].status.status_code is StatusCode.UNSET
    assert spans["eos epoch"].status.status_code is StatusCode.ERROR
    assert spans["eos epoch"].status.description == "INPUT: no such column"


def test_without_the_sdk_nothing_is_recorded_and_nothing_fails(tmp_path):
    driver = FolderDriver(tmp_path, TracingListener())
    assert driver.run("7", ROWS).status == "written"
    driver.close()
