"""What Spark's checkpoint says of the job's query: which inputs are in which epoch, and are done.

An input is a file, the n-th from 0. Mostly it is an epoch of its own; but a driver that dies
between Spark's note of a new file (``sources/``) and its note of an epoch (``offsets/``) leaves two
for one epoch (measured).
"""

from __future__ import annotations

import json
from bisect import bisect_left
from pathlib import Path


class Checkpoint:
    """Reads the folder afresh with each call; it may not be there yet.

    Args:
        readings: how often the query reads its input.
    """

    def __init__(self, folder: str, readings: int = 1) -> None:
        self._folder = Path(folder)
        self._readings = readings

    def noted(self) -> list[int]:
        """The epochs that are done, in order."""
        return self._numbers("commits")

    def inputs_done(self) -> int:
        """How many inputs are in epochs that are done: those before this number."""
        noted = self.noted()
        return self._end_of(noted[-1]) if noted else 0

    def epochs_of_inputs(self, count: int) -> list[str | None]:
        """The epoch of each of the first ``count`` inputs; None: it is in none."""
        epochs = self.planned()
        ends = [self._end_of(epoch) for epoch in epochs]
        places = (bisect_left(ends, number + 1) for number in range(count))
        return [str(epochs[place]) if place < len(epochs) else None for place in places]

    def planned(self) -> list[int]:
        """The epochs that Spark has planned, in order; the last one may not be done."""
        return self._numbers("offsets")

    def sources_of(self, epoch: int) -> list[object]:
        """Where each source of the query is at the end of an epoch; None: it had nothing yet."""
        return [_parsed(source) for source in self._lines(epoch)[2:]]

    def watermark_s(self, epoch: int) -> float:
        """Event time before which the epoch expects nothing more; 0.0 when there is none yet."""
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
        """How many inputs are in this epoch and those before it."""
        # Files are counted by logOffset, and `Job.input` takes one file with each count.
        sources = self.sources_of(epoch)
        ends = [
            int(source["logOffset"]) + 1
            for source in sources
            if isinstance(source, dict) and "logOffset" in source
        ]
        if not ends:
            raise RuntimeError(f"epoch {epoch} of the query has no input: does it read Job.input?")
        return min(ends) if len(ends) >= self._readings else 0


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:  # "-": a source that had nothing yet
        return None
