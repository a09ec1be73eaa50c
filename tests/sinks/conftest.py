"""Sinks of a test's own: names, log folder and broker filled in, connections freed at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from eos.commit_log import CommitLog
from eos.standalone import PulsarStandalone
from eos.transaction import LogRecord
from sinks import PulsarSink

MakeSink = Callable[..., PulsarSink]


@pytest.fixture
def make_sink(pulsar_standalone: PulsarStandalone, tmp_path, name: str) -> Iterator[MakeSink]:
    """Sinks of one id on one topic; further options as ``PulsarSink`` takes them."""
    sinks: list[PulsarSink] = []

    def make(**options: Any) -> PulsarSink:
        defaults = {
            "sink_id": name,
            "service_url": pulsar_standalone.service_url,
            "topic": name,
            "commit_log": str(tmp_path / "log"),
            "create_topics": True,
        }
        sinks.append(PulsarSink(**{**defaults, **options}))
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()


@pytest.fixture
def log(tmp_path, name: str) -> Callable[[], list[LogRecord]]:
    """Reads the sink's commit log afresh."""
    return lambda: CommitLog.open_read_only(tmp_path / "log", name).records()
