"""The run and its report: the same flights and kills for both services, judged by the input."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import matplotlib

matplotlib.use("Agg")
import pyarrow as pa
import pyarrow.compute as pc
from matplotlib import pyplot as plt

from eos import PulsarClient
from eos.testing import PulsarStandalone
from examples._demo.demo_command import Conclusion, DemoFailed, DemoReport, ReportLine, log_tail
from examples._demo.demo_topic import read_all
from examples._demo.epoch_chart import BLUE
from examples.flights.flight_files import read_flights
from examples.state.count_flights import BATCH, INPUT

_WAYS: Final = {"plain": "pulsar-client", "eos": "eos.KeyedState"}
_ORANGE: Final = "#c2571a"
_TOPIC: Final = "/v2/persistent/public/default"
_SEED: Final = 2013
_OWNER: Final = "__eos.owner"

Totals = dict[str, tuple[int, int]]
"""By route: flights, and the sum of their minutes late."""


@dataclass(frozen=True)
class CountedWay:
    """A service's results.

    Attributes:
        state: what its state topic has at the end, by a plain reader.
        sent: the numbers of each route's totals, in the order of their topic.
        seconds: the time from its first start to its last message.
        kills: their number.
        restored: the keys that each start has restored.
    """

    state: Totals
    sent: dict[str, list[int]]
    seconds: float
    kills: int
    restored: tuple[int, ...]

    def excess(self, expected: Totals) -> int:
        """Return how many flights it has counted too often."""
        return sum(max(0, self.state.get(key, (0, 0))[0] - one[0]) for key, one in expected.items())

    def missing(self, expected: Totals) -> int:
        """Return how many flights it has not counted."""
        return sum(max(0, one[0] - self.state.get(key, (0, 0))[0]) for key, one in expected.items())

    def wrong(self, expected: Totals) -> int:
        """Return the number of routes with another total than that of the input."""
        return sum(self.state.get(key) != one for key, one in expected.items())

    def unexpected(self, expected: Totals) -> int:
        """Return how many totals were sent twice or never, over all routes."""
        wanted = Counter((key, n) for key, one in expected.items() for n in range(1, one[0] + 1))
        sent = Counter((key, n) for key, numbers in self.sent.items() for n in numbers)
        return (sent - wanted).total() + (wanted - sent).total()


@dataclass(frozen=True)
class StateRun:
    """The totals of the input, and both services' results by name."""

    expected: Totals
    ways: dict[str, CountedWay]

    @property
    def flights(self) -> int:
        """The number of flights."""
        return sum(count for count, _ in self.expected.values())


def play(rows: int | None, kills: int, log_file: Path, log: Callable[[str], None]) -> StateRun:
    """Run both services, one after the other.

    Raises:
        DemoFailed: a service ended by itself, or did not finish.
    """
    flights = read_flights().slice(0, rows)
    routes = pc.binary_join_element_wise(flights["origin"], flights["dest"], "-")
    table = pa.table({"route": routes, "late": flights["arr_delay"]})
    grouped = table.group_by("route").aggregate([("route", "count"), ("late", "sum")])
    columns = (grouped[name].to_pylist() for name in ("route", "route_count", "late_sum"))
    expected = {route: (count, late or 0) for route, count, late in zip(*columns, strict=True)}
    with PulsarStandalone() as broker:
        with PulsarClient(broker.service_url) as client:
            log(f"sending {len(table):,} flights of {len(expected)} routes")
            with client.producer(INPUT, create=True) as producer:
                pairs = zip(table["route"].to_pylist(), table["late"].to_pylist(), strict=True)
                for route, late in pairs:
                    producer.send(json.dumps(late).encode(), key=route)
            client.create_unpartitioned("state-plain")
        ways = {way: _Service(broker, way, len(table), kills, log_file, log).run() for way in _WAYS}
    return StateRun(expected, ways)


class _Service:
    """One service, which is killed and started again."""

    def __init__(
        self,
        broker: PulsarStandalone,
        way: str,
        flights: int,
        kills: int,
        log_file: Path,
        log: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._way = way
        self._log_file = log_file
        self._log = log
        chance = random.Random(_SEED)  # the same moments for both
        most = max(1, flights // BATCH // kills // 2)  # steps of a life: half is left to the last
        self._lives = [(chance.randint(1, most), chance.uniform(0, 0.15)) for _ in range(kills)]
        self._began = time.monotonic()
        self._seconds = 0.0
        self._restored: list[int] = []

    def run(self) -> CountedWay:
        """Count all flights, and read the results plainly."""
        self._log(f"{_WAYS[self._way]}: counting, with {len(self._lives)} kills")
        for steps, pause_s in self._lives:
            self._live(steps, pause_s)
            self._broker.admin("PUT", f"{_TOPIC}/state-{self._way}/compaction")
        self._live(None, 0)
        messages = list(read_all(self._broker.service_url, f"state-{self._way}"))
        state = {one.partition_key(): one.data() for one in messages}
        state.pop(_OWNER, None)
        sent: dict[str, list[int]] = {}
        for message in read_all(self._broker.service_url, f"totals-{self._way}"):
            sent.setdefault(message.partition_key(), []).append(json.loads(message.data())[0])
        return CountedWay(
            {key: tuple(json.loads(total)) for key, total in state.items()},
            sent,
            self._seconds,
            len(self._lives),
            tuple(self._restored),
        )

    def _live(self, steps: int | None, pause_s: float) -> None:
        """Run the service for some steps, and kill it soon after; None: until all is counted."""
        words = ["examples.state.count_flights", self._broker.service_url, self._way]
        with (
            self._log_file.open("ab") as errors,
            subprocess.Popen(
                [sys.executable, "-m", *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            ) as process,
        ):
            assert process.stdout is not None
            try:
                self._restored.append(int(self._line(process)))
                while steps is None or steps > 0:
                    count = int(self._line(process))
                    if count:
                        self._seconds = time.monotonic() - self._began
                    if steps is not None:
                        steps -= 1
                    elif not count and not self._backlog():
                        return
                time.sleep(pause_s)
            finally:
                process.kill()

    def _line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise DemoFailed(f"{_WAYS[self._way]} ended by itself. {log_tail(self._log_file)}")
        return line

    def _backlog(self) -> int:
        stats: Any = self._broker.admin("GET", f"{_TOPIC}/{INPUT}/stats")
        return int(stats["subscriptions"][self._way]["msgBacklog"])


def report_on(run: StateRun) -> DemoReport:
    """Return the report."""
    kills = run.ways["eos"].kills
    return DemoReport(
        title="state of a service in Pulsar",
        conclusion=conclude(run),
        summary=f"{run.flights:,} flights, counted by {len(run.expected)} routes in two services "
        f"without Spark. Each was killed {kills} times, and restored its state from a topic.",
        table_title="the same flights and kills",
        columns=tuple(_WAYS.values()),
        lines=tuple(_lines(run)),
        caption="By a plain pulsar-client, compared with the input.",
        picture_title="Each route's total, compared with the input",
        picture_caption="A dot for each route. Above the line, flights were counted again.",
    )


def _lines(run: StateRun) -> Iterator[ReportLine]:
    expected, ways = run.expected, [run.ways[way] for way in _WAYS]
    for label, count in (
        ("flights counted too often", CountedWay.excess),
        ("flights not counted", CountedWay.missing),
        (f"routes with a wrong total, of {len(expected)}", CountedWay.wrong),
        ("totals sent twice or never", CountedWay.unexpected),
    ):
        numbers = [count(way, expected) for way in ways]
        yield ReportLine(label, tuple(f"{n:,}" for n in numbers), tuple(n > 0 for n in numbers))
    cells = tuple(f"{way.seconds:.1f} s" for way in ways)
    yield ReportLine("time, with all restarts", cells, (False, False))
    cells = tuple(f"{max(way.restored):,}" for way in ways)
    yield ReportLine("keys restored at a start, at most", cells, (False, False))


def conclude(run: StateRun) -> Conclusion:
    """Judge the results of ``eos`` by the input."""
    way, expected = run.ways["eos"], run.expected
    found = (
        (way.excess(expected), "flights were counted too often"),
        (way.missing(expected), "flights were not counted"),
        (way.wrong(expected), "routes have a wrong total"),
        (way.unexpected(expected), "totals were sent twice or never"),
        (len(way.state.keys() - expected.keys()), "keys are in no input"),
    )
    unproved = () if any(way.restored) else ("no start has restored a key",)
    return Conclusion(
        tuple(f"{count:,} {text}" for count, text in found if count),
        unproved,
        f"eos: after {way.kills} kills every total is that of the input, and each was sent once.",
    )


def draw(run: StateRun, *files: Path) -> None:
    """Draw each route's excess over its size; write the picture to ``files``."""
    figure: Any
    with matplotlib.rc_context({"font.size": 11, "font.family": "DejaVu Sans"}):
        figure, panels = plt.subplots(1, 2, figsize=(11, 3.4), sharey=True)
        sizes = [count for count, _ in run.expected.values()]
        for axes, (way, name), color in zip(panels, _WAYS.items(), (_ORANGE, BLUE), strict=True):
            counted = [run.ways[way].state.get(route, (0, 0))[0] for route in run.expected]
            axes.axhline(0, color="#777777", linewidth=1)
            axes.plot(
                sizes, [n - size for n, size in zip(counted, sizes, strict=True)], "o", color=color
            )
            axes.set_title(name, fontsize=12, loc="left")
            axes.set_xlabel("flights of the route, in the input")
            axes.xaxis.set_major_formatter("{x:,.0f}")
            axes.yaxis.set_major_formatter("{x:+,.0f}")
            axes.spines[["top", "right"]].set_visible(False)
        panels[0].set_ylabel("difference of the total")
        figure.tight_layout()
        for file in files:
            figure.savefig(file, dpi=120)
        plt.close(figure)
