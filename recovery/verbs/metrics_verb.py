"""``eos recovery metrics``: sinks in Prometheus' text format, for a textfile collector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from eos.cli.reports import Exit, Report, escape, new_console, unwritable
from eos.errors import ConfigurationError, pip_install
from eos.events import UnfinishedAttempt
from eos.recovery._sink_view import SinkView
from eos.recovery._survey import Survey, survey
from eos.recovery._target import Target

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

    from eos.metrics import SinkFigures


class MetricsReport(Report):
    """The metrics as text."""

    text: str
    out: str | None  # the file they were written to
    seen: Exit
    problems: list[str]  # data missing from the text, and why

    @property
    def exit(self) -> Exit:
        """The exit code for reading the logs."""
        return self.seen

    def render(self, console: Console) -> None:
        """The text itself, or the name of the file."""
        if self.out is None:
            console.file.write(self.text)
        else:
            console.print(f"[green]Written:[/] {escape(self.out)}")
        errors = new_console(stderr=True)
        for problem in self.problems:
            errors.print(f"[yellow]Unknown:[/] {escape(problem)}")


def metrics(
    target: Target,
    sink: Annotated[str | None, typer.Argument(help="Only this sink; all by default.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write to this file, replacing it atomically. Default: standard output."),
    ] = None,
) -> MetricsReport:
    """Print every sink in Prometheus' text format, for node exporter's textfile collector.

    Reads the commit logs only; no driver needs to run. With --admin-url, also asks the broker about
    unfinished transactions. Needs the package prometheus-client.

        eos recovery metrics --commit-log /data/eos --out /var/lib/node_exporter/eos.prom

    Exit codes: 0 complete; 1 a log is broken; 2 something could not be reached; 64 wrong options.
    """
    found = survey(target, sink)
    registry = _registry(found)
    # Not at the top: the other verbs work without it.
    from prometheus_client import generate_latest, write_to_textfile

    if out is not None:
        try:
            out = out.resolve()  # replace the file that a link points to, not the link
            if out.exists() and not out.is_file():
                # The file is replaced by a rename; run as root, that would replace a device.
                raise ConfigurationError(f"--out {out} exists and is not a regular file.")
            # By a rename: a collector must never read half of the file.
            write_to_textfile(str(out), registry)
        except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
            raise unwritable(f"--out {out}", error) from None
    return MetricsReport(
        text=generate_latest(registry).decode(),
        out=None if out is None else str(out),
        seen=found.seen,
        problems=[*(f"{lost.sink_id}: {lost.error}" for lost in found.broken), *found.problems],
    )


def _registry(found: Survey) -> CollectorRegistry:
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.registry import Collector
    except ImportError:
        raise ConfigurationError(
            "The package prometheus-client is not installed.",
            hint=f"Run: {pip_install('metrics')}.",
        ) from None

    class Found(Collector):
        def collect(self) -> Iterator[Metric]:
            return _families(found)

    registry = CollectorRegistry()
    registry.register(Found())
    return registry


def _families(found: Survey) -> Iterator[Metric]:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    from eos.metrics import sink_families

    readable = GaugeMetricFamily(
        "eos_log_readable", "1 when the commit log can be read, else 0.", labels=["sink"]
    )
    records = CounterMetricFamily(
        "eos_log_records", "Records that were ever appended to the commit log.", labels=["sink"]
    )
    claimed = GaugeMetricFamily(
        "eos_claim_timestamp_seconds", "When the sink was claimed last.", labels=["sink"]
    )
    at_broker = GaugeMetricFamily(
        "eos_broker_transactions",
        "Unfinished transactions by their status at the broker; gone: it has forgotten them.",
        labels=["sink", "status"],
    )
    for lost in found.broken:
        readable.add_metric([lost.sink_id], 0)
    for one in found.sinks:
        readable.add_metric([one.sink_id], 1)
        records.add_metric([one.sink_id], one.last_seq)
        if one.claim is not None:
            claimed.add_metric([one.sink_id], one.claim.since.timestamp())
        words = Counter(attempt.at_broker for attempt in one.unfinished if attempt.at_broker)
        for word, count in sorted(words.items()):
            at_broker.add_metric([one.sink_id, word.lower()], count)
    yield from sink_families(_figures(one) for one in found.sinks)
    yield from (readable, records, claimed, at_broker)


def _figures(sink: SinkView) -> SinkFigures:
    from eos.metrics import SinkFigures

    return SinkFigures(
        sink.sink_id,
        # `opened_at` is by the driver's clock: if that is ahead, the age is unknown by as much.
        tuple(UnfinishedAttempt(one.state, abs(one.age_s)) for one in sink.unfinished),
        len(sink.owing),
        max((one.written_at for one in sink.progress if one.written_at), default=None),
    )
