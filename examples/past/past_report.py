"""The report of the run: verdict, table, plan, picture. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot as plt

from examples._demo.demo_command import Conclusion, DemoReport, ReportLine
from examples._demo.epoch_chart import BLUE
from examples.past.past_run import ROUNDS, AskedWay, ByCarrier, PastRun, sql

_NAMES: Final = ("the topic, through the broker", "table + rest of the topic")
_GREY: Final = "#777777"


def report_on(run: PastRun) -> DemoReport:
    """Return the report."""
    past, present = len(run.flights.past), len(run.flights.present)
    read, files = run.files
    return DemoReport(
        title="past and present of a topic",
        conclusion=conclude(run),
        summary=f"{past + present:,} flights in a topic, the old ones offloaded to S3. All but the "
        f"last week were archived into a Delta table, and deleted from topic and bucket. The query "
        f"needs the flights since {run.flights.since:%Y-%m-%d}: from {read} of the table's {files} "
        "files, and from the topic.",
        table_title="the same query",
        columns=_NAMES,
        lines=tuple(_lines(run)),
        caption=f"Of {ROUNDS} rounds, with everything on one machine: the median of their times, "
        "and the mean of the processor time of the broker's process. By deltalake (the table) and "
        f"pulsar-client (the rest) there are {_flights(run.by_others):,} flights, "
        f"{_minutes(run.by_others):,} minutes late.",
        picture_title="The query's time, and the broker's part of it",
        picture_caption="Of the same rounds. A broker without clients works a little, too.",
        code=(
            ("The query", sql(run.flights.since)),
            (f"The scans of Spark's plan: {read} of {files} files", run.plan),
        ),
    )


def _lines(run: PastRun) -> Iterator[ReportLine]:
    ways = run.topic, run.history
    wanted, everything = run.flights.answer(run.flights.since), run.flights.answer()
    yield ReportLine(
        "flights that the query counted",
        tuple(f"{_flights(one.answer):,}" for one in ways),
        tuple(one.answer != wanted for one in ways),
    )
    yield _line("time", *(f"{one.seconds:.2f} s" for one in ways))
    yield _line("the broker's processor time", *(f"{one.broker_s:.2f} s" for one in ways))
    yield _line("an idle broker's, in that time", *(f"{_idle_s(one):.2f} s" for one in ways))
    for what, count in (("flights", _flights), ("minutes late", _minutes)):
        yield ReportLine(
            f"all {what}; written: {count(everything):,}",
            tuple(f"{count(one.everything):,}" for one in ways),
            tuple(count(one.everything) != count(everything) for one in ways),
        )
    yield _line("ledgers of the topic", *map(str, run.ledgers))
    yield _line("objects in S3", *map(str, run.objects))


def _line(label: str, *cells: str) -> ReportLine:
    return ReportLine(label, cells, (False, False))


def _flights(answer: ByCarrier) -> int:
    return sum(count for count, _ in answer.values())


def _minutes(answer: ByCarrier) -> int:
    return sum(late or 0 for _, late in answer.values())


def _idle_s(way: AskedWay) -> float:
    return way.idle * way.seconds


def conclude(run: PastRun) -> Conclusion:
    """Judge the answers, by carrier, by what was written."""
    since = run.flights.since
    written, wanted = run.flights.answer(), run.flights.answer(since)
    found = (
        (run.archived_rows, len(run.flights.past), "the table does not have the past alone"),
        (run.topic.everything, written, "the topic has other flights than were written"),
        (run.history.everything, written, "table and topic have other flights than were written"),
        (
            run.by_others,
            written,
            "deltalake and pulsar-client find other flights than were written",
        ),
        (run.topic.answer, wanted, "the query over the topic has another answer than the input"),
        (run.history.answer, wanted, "the query over both has another answer than the input"),
    )
    shown = (
        (run.ledgers[1] < run.ledgers[0], "no ledger was deleted from the topic"),
        (run.objects[1] < run.objects[0], "no object was deleted from S3"),
        (0 < run.files[0] < run.files[1], "no file of the table was skipped"),
    )
    topic, both = run.topic, run.history
    return Conclusion(
        tuple(text for one, other, text in found if one != other),
        tuple(text for is_so, text in shown if not is_so),
        f"eos: one SQL query over past and present, the right answer in both ways: "
        f"{topic.seconds:.1f} s with {topic.broker_s:.2f} s of the broker's processor, then "
        f"{both.seconds:.1f} s with {both.broker_s:.2f} s.",
    )


def draw(run: PastRun, *files: Path) -> None:
    """Draw the seconds of each way, and the broker's; write the picture to ``files``."""
    ways = run.history, run.topic  # the first is drawn at the bottom
    figure: Any
    with matplotlib.rc_context({"font.size": 11, "font.family": "DejaVu Sans"}):
        figure, (left, right) = plt.subplots(1, 2, figsize=(11, 2.9), sharey=True)
        names = [name.replace(", ", ",\n").replace(" + ", "\n+ ") for name in _NAMES[::-1]]
        for axes, title, values in (
            (left, "seconds", [one.seconds for one in ways]),
            (right, "the broker's processor seconds", [one.broker_s for one in ways]),
        ):
            bars = axes.barh(names, values, color=BLUE, height=0.6)
            axes.bar_label(bars, fmt="%.2f", padding=4)
            axes.set_title(title, fontsize=12, loc="left")
            axes.margins(x=0.15)
            axes.spines[["top", "right"]].set_visible(False)
        idle = [_idle_s(one) for one in ways]
        right.barh(names, idle, color=_GREY, height=0.6, label="an idle broker's, in that time")
        right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False)
        figure.tight_layout()
        for file in files:
            figure.savefig(file, dpi=120)
        plt.close(figure)
