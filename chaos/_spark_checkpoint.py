"""Reads a query's Spark checkpoint: which inputs are in which epoch, and which epochs are done."""

from __future__ import annotations

import json
from bisect import bisect_left
from pathlib import Path
from typing import Any


class Checkpoint:
    """Reads the folder at each call; the query reads its input ``readings`` times."""

    def __init__(self, folder: str, readings: int = 1) -> None:
        self._folder = Path(folder)
        self._readings = readings

    def noted(self) -> list[int]:
        """The epochs that are done, in order."""
        return self._numbers("commits")

    def inputs_done(self) -> int:
        """The number of inputs in finished epochs."""
        noted = self.noted()
        return self._end_of(noted[-1]) if noted else 0

    def epochs_of_inputs(self, count: int) -> list[str | None]:
        """The epoch of each of the first ``count`` inputs, or None."""
        # Input n is the n-th file, and usually epoch n. But if a driver dies after Spark has
        # recorded a new file (sources/) and before the epoch (offsets/), one epoch has two files
        # (measured).
        epochs = self.planned()
        ends = [self._end_of(epoch) for epoch in epochs]
        places = (bisect_left(ends, number + 1) for number in range(count))
        return [str(epochs[place]) if place < len(epochs) else None for place in places]

    def planned(self) -> list[int]:
        """The epochs that Spark has planned, in order; the last one may not be done."""
        return self._numbers("offsets")

    def sources_of(self, epoch: int, key: str) -> list[dict[str, Any]]:
        """The offsets with ``key`` at the end of an epoch: of the readings that have begun.

        Raises:
            RuntimeError: there is no such source.
        """
        sources = map(_parsed, self._lines(epoch)[2:])
        # A query may have other sources as well.
        found = [one for one in sources if isinstance(one, dict) and key in one]
        if not found:
            raise RuntimeError(
                f"Epoch {epoch} of the query has no input. The workload must read Job.input."
            )
        return found

    def watermark_s(self, epoch: int) -> float:
        """The watermark of the epoch in seconds; 0.0 at first."""
        settings = _parsed(self._lines(epoch)[1])
        assert isinstance(settings, dict)
        return float(settings.get("batchWatermarkMs", 0)) / 1000

    def _lines(self, epoch: int) -> list[str]:
        # "v1", Spark's own settings, then a line for each source.
        return (self._folder / "offsets" / str(epoch)).read_text().splitlines()

    def _numbers(self, name: str) -> list[int]:
        try:
            names = [path.name for path in (self._folder / name).iterdir()]
        except FileNotFoundError:  # the query has not begun
            return []
        return sorted(int(name) for name in names if name.isdecimal())

    def _end_of(self, epoch: int) -> int:
        # logOffset counts files: `Job.input` reads one file per offset.
        ends = [int(one["logOffset"]) + 1 for one in self.sources_of(epoch, "logOffset")]
        # A query that reads twice has an input when both readings have it.
        return min(ends) if len(ends) >= self._readings else 0


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:  # "-": a source without an offset
        return None
