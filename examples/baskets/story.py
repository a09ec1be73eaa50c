"""The demo's course: a producer, a Spark query between two topics, and who kills parts of both."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from eos.commit_log import CommitLog
from eos.standalone import PulsarCluster
from examples.baskets.data import Year
from examples.baskets.feed import FeedTask
from examples.baskets.gauge import BacklogGauge
from examples.baskets.job import SINK_ID, BasketsJob
from examples.baskets.killer import Killer
from examples.baskets.run import BasketsRun
from examples.child import Child, Event
from examples.driver import Driver
from examples.flights.story import StoryFailed
from examples.flights.topic import Topic

PARTITIONS: Final = 4
DELAY: Final = timedelta(days=14)
"""Of the watermark, 4 s of the run: when a broker dies, partitions are not read equally far."""
_PER_TRANSACTION: Final = 400
_PAUSE_S: Final = 0.3
_FOR_EVER: Final = {"retentionTimeInMinutes": -1, "retentionSizeInMB": -1}
_TICK_S: Final = 0.25
_SILENCE_S: Final = 120.0
_MAX_UNPLANNED: Final = 5


@dataclass(frozen=True)
class Places:
    """Where the run keeps what it makes; ``logs``: what the programs print."""

    folder: Path
    logs: Path

    @property
    def table(self) -> str:
        """The Delta table."""
        return str(self.folder / "table")

    @property
    def commit_log(self) -> str:
        """The root of the commit logs."""
        return str(self.folder / "commit-log")


class BasketsStory:
    """Runs it once.

    Args:
        rows: only the first so many baskets are sent; None: all of ``year``.
        tell: gets one line of text for each thing that happens.
        show: gets the run, several times a second.
    """

    def __init__(
        self,
        cluster: PulsarCluster,
        year: Year,
        rows: int | None,
        places: Places,
        *,
        tell: Callable[[str], None],
        show: Callable[[BasketsRun], None],
    ) -> None:
        self._cluster = cluster
        self._places = places
        self._tell = tell
        self._show = show
        self._feed: Child | None = None
        # Without it, what no subscription has still to read is deleted when a topic moves, and the
        # judge would miss it.
        cluster.admin("POST", "/v2/namespaces/public/default/retention", _FOR_EVER)
        self.source = Topic.create(cluster, "baskets", PARTITIONS)
        self.target = Topic.create(cluster, "shop-days", PARTITIONS)
        self.run = BasketsRun(year)
        self._feeding = FeedTask(
            service_url=cluster.service_url,
            topic=self.source.url,
            rows=rows,
            per_transaction=_PER_TRANSACTION,
            pause_s=_PAUSE_S,
            delay_s=DELAY.total_seconds(),
        )

    def play(self) -> BasketsRun:
        """From the first event to the last closed window.

        Raises:
            StoryFailed: a program failed, and did not get over it.
        """
        run = self.run
        job = self._job()
        with ExitStack() as stack:
            stack.enter_context(BacklogGauge(self.source, run.backlog))
            killer = stack.enter_context(Killer(self._cluster, self.target.url, run, self._tell))
            self._tell("starting Spark: a driver and two executors")
            while not self._live(job, killer, stack):
                self._tell("driver started again, on the same checkpoint")
        run.records = CommitLog.open_read_only(job.commit_log, SINK_ID).records()
        return run

    def _live(self, job: BasketsJob, killer: Killer, stack: ExitStack) -> bool:
        """One life of the driver; whether it has finished."""
        run, log = self.run, self._places.logs / "baskets.log"
        heard_at = time.monotonic()
        with Driver("examples.baskets.job", job.to_json(), log, Path(job.scratch_dir)) as driver:
            # What an earlier life was told, and did not get to.
            if killer.has_ordered_death and run.strike("driver") is None:
                driver.order("die")
            if run.is_fed:
                driver.order("finish")
            while True:
                self._hear_feed(driver)
                self._show(run)
                try:
                    event = driver.next_event(_TICK_S)
                except TimeoutError:
                    if time.monotonic() - heard_at > _SILENCE_S:
                        raise StoryFailed(f"the driver is silent; see {log}") from None
                    continue
                heard_at = time.monotonic()
                run.events.append(event)
                if event.event == "started" and self._feed is None:
                    self._feed = stack.enter_context(self._start_feed())
                if event.event in ("finished", "died"):
                    return event.event == "finished" or self._note_death(event, driver, killer)
                killer.look(event, driver)

    def _start_feed(self) -> Child:
        self._tell("the producer starts: a year of baskets, 400 in a transaction")
        log = self._places.logs / "feed.log"
        return Child("examples.baskets.feed", self._feeding.to_json(), log)

    def _hear_feed(self, driver: Driver) -> None:
        while self._feed is not None and not self.run.is_fed:
            try:
                event = self._feed.next_event(0)
            except TimeoutError:
                return
            if event.event == "died":
                raise StoryFailed(f"the producer ended; see {self._places.logs / 'feed.log'}")
            self.run.hear_feed(event)
            if event.event == "fed":
                self._tell("the producer has sent everything; the last event closes all windows")
                driver.order("finish")

    def _note_death(self, event: Event, driver: Driver, killer: Killer) -> bool:
        """It was planned, or the query ended in an error: its restart goes on."""
        is_first = self.run.strike("driver") is None
        if killer.has_ordered_death and is_first and driver.exit_code == -signal.SIGKILL:
            killer.note_death(event)
            return False
        self.run.unplanned += 1
        log = self._places.logs / "baskets.log"
        if self.run.unplanned > _MAX_UNPLANNED:
            raise StoryFailed(f"the query ends again and again; see {log}")
        self._tell(f"the query ended in an error (exit code {driver.exit_code}); see {log}")
        return False

    def _job(self) -> BasketsJob:
        scratch = self._places.folder / "scratch"
        scratch.mkdir()
        last = self.run.year.last(DELAY)
        closed_at = datetime.fromtimestamp(last.at_ms / 1000, UTC) - DELAY
        return BasketsJob(
            scratch_dir=str(scratch),
            checkpoint=str(self._places.folder / "checkpoint"),
            service_url=self._cluster.service_url,
            admin_url=self._cluster.admin_url,
            source=self.source.url,
            target=self.target.url,
            table=self._places.table,
            commit_log=self._places.commit_log,
            delay_s=DELAY.total_seconds(),
            closed_at=closed_at.isoformat(),
        )
