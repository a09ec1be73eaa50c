"""The publish times of a batch read's messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from eos.errors import ConfigurationError


@dataclass(frozen=True)
class TimeWindow:
    """Publish times in milliseconds: ``start`` is included, ``end`` is not; None: no limit.

    ``slack_ms``: so much earlier and later in the topic its messages are looked for; None: in all
    of it.
    """

    start: int | None
    end: int | None
    slack_ms: int | None

    def select(self, batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
        """Return the messages in the window; it needs the column ``publish_time``.

        Raises:
            ConfigurationError: a message shows that the slack is too small for the topic.
        """
        times = batch.column("publish_time").cast(pa.int64())
        self._check(times, topic)
        masks = []
        if self.start is not None:
            masks.append(pc.greater_equal(times, self.start))
        if self.end is not None:
            masks.append(pc.less(times, self.end))
        return batch.filter(reduce(pc.and_, masks))

    def _check(self, times: pa.Array, topic: str) -> None:
        if self.slack_ms is None or not len(times):
            return
        # The broker's search assumes that times never decrease, or it goes by its own clock. Where
        # they are off by at most the slack, a found entry is off by at most twice the slack.
        first, last = pc.min_max(times).as_py().values()
        before = 0 if self.start is None else self.start - first
        after = 0 if self.end is None else last - self.end
        if max(before, after) <= 2 * self.slack_ms:
            return
        time_ms = first if before > after else last
        raise ConfigurationError(
            f"A message of {topic} was published at {_moment(time_ms)}, "
            "far from the messages around it, so the time window may lack messages.",
            hint=f"Set publishTimeSlackS to more than {max(before, after) / 2000:.0f}: as much as "
            "publish times differ between producers, or from the clock of a broker that adds its "
            "own.",
        )


def _moment(time_ms: int) -> str:
    try:
        return str(datetime.fromtimestamp(time_ms / 1000, UTC))
    except (ValueError, OverflowError, OSError):  # producers may set any number
        return f"{time_ms} ms"
