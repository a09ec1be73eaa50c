"""Reads a query's Spark checkpoint: which inputs are in which epoch, and which epochs are done.

Input n is the n-th file, and usually epoch n. But if a driver dies after Spark has recorded a new
file (``sources/``) and before it has recorded the epoch (``offsets/``), one epoch has two files
(measured).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from pathlib import Path


class Checkpoint:
    """Reads the folder at each call; it may not exist yet.

    Args:
        readings: number of times that the query reads its input.
    """

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
        epochs = self.planned()
        ends = [self._end_of(epoch) for epoch in epochs]
        places = (bisect_left(ends, number + 1) for number in range(count))
        return [str(epochs[place]) if place < len(epochs) else None for place in places]

    def planned(self) -> list[int]:
        """The epochs that Spark has planned, in order; the last one may not be done."""
        return self._numbers("offsets")

    def sources_of(self, epoch: int) -> list[object]:
        """The offset of each source at the end of an epoch; None if it has none yet."""
        return [_parsed(source) for source in self._lines(epoch)[2:]]

    def watermark_s(self, epoch: int) -> float:
        """The watermark of the epoch in seconds; 0.0 at first."""
        settings = _parsed(self._lines(epoch)[1])
        assert isinstance(settings, dict)
        return float(settings.get("batchWatermarkMs", 0)) / 1000

    def _lines(self, epoch: int) -> list[str]:
        """ "v1", Spark's own settings, then a line for each source."""
        return (self._folder / "offsets" / str(epoch)).read_text().splitlines()

    def _numbers(self, name: str) -> list[int]:
        try:
            names = [path.name for path in (self._folder / name).iterdir()]
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if name.isdecimal())

    def _end_of(self, epoch: int) -> int:
        """The number of inputs in this epoch and earlier ones."""
        # logOffset counts files: `Job.input` reads one file per offset.
        sources = self.sources_of(epoch)
        ends = [
            int(source["logOffset"]) + 1
            for source in sources
            if isinstance(source, dict) and "logOffset" in source
        ]
        if not ends:
            raise RuntimeError(
                f"Epoch {epoch} of the query has no input. The workload must read Job.input."
            )
        return min(ends) if len(ends) >= self._readings else 0


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:  # "-": a source without an offset
        return None
