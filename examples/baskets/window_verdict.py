"""Reads both outputs with plain readers; compares their rows with what the input must produce."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple

from deltalake import DeltaTable, QueryBuilder

from examples._demo.demo_topic import read_all
from examples.baskets.basket_year import Basket, ShopDay


class ShopDayCount(NamedTuple):
    """An output row: the ``baskets`` of a window, and their ``messages`` in the input topic."""

    window: ShopDay
    baskets: int
    messages: int


@dataclass(frozen=True)
class OutputVerdict:
    """The comparison for one output. All zero but ``rows`` for exactly-once.

    Attributes:
        extra: rows of windows that already have a row, or that do not exist.
    """

    rows: int
    extra: int
    missing: int
    wrong: int


@dataclass(frozen=True)
class BasketVerdict:
    """The comparison for the whole run.

    Attributes:
        messages: readable messages in the input topic, without the final event.
        duplicates: those of them whose basket has an earlier message.
        unsent: baskets of the data set that are not in the input topic.
        fakes: readable messages of aborted transactions.
        differing: rows that only one output has, or that it has more often.
    """

    messages: int
    duplicates: int
    unsent: int
    fakes: int
    windows: int
    topic: OutputVerdict
    table: OutputVerdict
    differing: int

    @property
    def anomalies(self) -> tuple[str, ...]:
        """Everything that is wrong, in words."""
        found = [
            (self.unsent, "baskets missing from the input topic"),
            (self.fakes, "readable messages of aborted transactions"),
            (self.differing, "rows in only one of the outputs"),
        ]
        for name, output in (("topic", self.topic), ("table", self.table)):
            found += [
                (output.extra, f"extra rows in the {name}"),
                (output.missing, f"windows missing from the {name}"),
                (output.wrong, f"windows with a wrong count in the {name}"),
            ]
        return tuple(f"{number:,} {text}" for number, text in found if number)


def compare(
    baskets: Iterable[Basket],
    last: Basket,
    sent: Iterable[int],
    topic: Iterable[ShopDayCount],
    table: Iterable[ShopDayCount],
) -> BasketVerdict:
    """Compare the rows that plain readers found with the data set.

    Args:
        baskets: the data set.
        last: the final event, which closes the windows and has no closed one itself.
        sent: the basket of each message in the input topic.
        topic, table: the rows of the two outputs.
    """
    known = {basket.basket: basket for basket in baskets}
    # The final event closes the windows, and has no closed one itself.
    messages = Counter(basket for basket in sent if basket != last.basket)
    expected = _expected(known, messages)
    rows = Counter(topic), Counter(table)
    return BasketVerdict(
        messages=messages.total(),
        duplicates=sum(n - 1 for basket, n in messages.items() if basket in known),
        unsent=len(known.keys() - messages.keys()),
        fakes=sum(n for basket, n in messages.items() if basket not in known),
        windows=len(expected),
        topic=_verdict_on(expected, rows[0]),
        table=_verdict_on(expected, rows[1]),
        differing=((rows[0] - rows[1]) + (rows[1] - rows[0])).total(),
    )


def _expected(known: dict[int, Basket], messages: Counter[int]) -> dict[ShopDay, tuple[int, int]]:
    """Return for each window its baskets, from the data set, and their messages, as read."""
    baskets: Counter[ShopDay] = Counter()
    read: Counter[ShopDay] = Counter()
    for basket in known.values():
        window = basket.window
        baskets[window] += 1
        read[window] += messages[basket.basket]
    return {window: (n, read[window]) for window, n in baskets.items()}


def _verdict_on(
    expected: dict[ShopDay, tuple[int, int]], rows: Counter[ShopDayCount]
) -> OutputVerdict:
    found: Counter[ShopDay] = Counter()
    for row, times in rows.items():
        found[row.window] += times
    wrong = {
        row.window
        for row in rows
        if row.window in expected and (row.baskets, row.messages) != expected[row.window]
    }
    return OutputVerdict(
        rows=rows.total(),
        extra=sum(n - (window in expected) for window, n in found.items()),
        missing=len(expected.keys() - found.keys()),
        wrong=len(wrong),
    )


def sent_baskets(service_url: str, topic: str) -> list[int]:
    """Return the basket of each readable message of the input topic.

    Raises:
        TimeoutError: the topic is stuck.
    """
    return [json.loads(message.data())["basket"] for message in read_all(service_url, topic)]


def counts_in_topic(service_url: str, topic: str) -> list[ShopDayCount]:
    """Return the readable rows of the output topic.

    Raises:
        TimeoutError: the topic is stuck.
    """
    rows = (json.loads(message.data()) for message in read_all(service_url, topic))
    return [
        _count(row["store"], date.fromisoformat(row["day"]), row["baskets"], row["messages"])
        for row in rows
    ]


def counts_in_table(uri: str) -> list[ShopDayCount]:
    """Return the rows of the table."""
    reader = QueryBuilder().register("counts", DeltaTable(uri))
    rows = reader.execute("select store, day, baskets, messages from counts").read_all()
    columns = (rows[name].to_pylist() for name in ("store", "day", "baskets", "messages"))
    return [_count(*row) for row in zip(*columns, strict=True)]


def _count(store: int, day: date, baskets: int, messages: int) -> ShopDayCount:
    return ShopDayCount(ShopDay(store, day), baskets, messages)
