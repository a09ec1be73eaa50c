"""Pure: what had to come out of the input, and what is wrong with what plain readers found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from examples.baskets.data import Basket, ShopDay


class ShopDayCount(NamedTuple):
    """A row that came out: ``baskets`` of a window, and the ``messages`` that told of them."""

    window: ShopDay
    baskets: int
    messages: int


@dataclass(frozen=True)
class OutputVerdict:
    """What is wrong with the rows of one output. All zero for exactly-once.

    Attributes:
        rows: how many there are.
        extra: rows of windows that have one already, or that never were.
        missing: windows without a row.
        wrong: windows with a row that counts otherwise than it should.
    """

    rows: int
    extra: int
    missing: int
    wrong: int


@dataclass(frozen=True)
class BasketVerdict:
    """What came of the run.

    Attributes:
        messages: how many a plain reader found in the input topic, the last event left out.
        copies: those of them that tell of a basket again.
        unsent: baskets of the data set that are not in the input topic.
        strangers: messages of the input topic of baskets that nobody bought: aborted, and readable.
        windows: how many there have to be.
        differing: rows that are in one output and not, or not as often, in the other.
    """

    messages: int
    copies: int
    unsent: int
    strangers: int
    windows: int
    topic: OutputVerdict
    table: OutputVerdict
    differing: int

    @property
    def anomalies(self) -> tuple[str, ...]:
        """Everything that is wrong, in words."""
        found = [
            (self.unsent, "baskets are not in the input topic"),
            (self.strangers, "messages of aborted transactions are readable"),
            (self.differing, "rows are in one output and not in the other"),
        ]
        for name, output in (("topic", self.topic), ("table", self.table)):
            found += [
                (output.extra, f"rows in the {name} are too many"),
                (output.missing, f"windows are missing in the {name}"),
                (output.wrong, f"windows in the {name} have a wrong count"),
            ]
        return tuple(f"{number:,} {text}" for number, text in found if number)


def judge(
    baskets: Iterable[Basket],
    last: Basket,
    sent: Iterable[int],
    topic: Iterable[ShopDayCount],
    table: Iterable[ShopDayCount],
) -> BasketVerdict:
    """Compare what plain readers found with what the data set holds.

    Args:
        baskets: the data set.
        last: the event behind it, which closes the windows and has none that is closed.
        sent: the basket of each message in the input topic.
        topic, table: the rows of the two outputs.
    """
    known = {basket.basket: basket for basket in baskets}
    messages = Counter(basket for basket in sent if basket != last.basket)
    expected = _expected(known, messages)
    rows = Counter(topic), Counter(table)
    return BasketVerdict(
        messages=messages.total(),
        copies=sum(n - 1 for basket, n in messages.items() if basket in known),
        unsent=len(known.keys() - messages.keys()),
        strangers=sum(n for basket, n in messages.items() if basket not in known),
        windows=len(expected),
        topic=_verdict_on(expected, rows[0]),
        table=_verdict_on(expected, rows[1]),
        differing=((rows[0] - rows[1]) + (rows[1] - rows[0])).total(),
    )


def _expected(known: dict[int, Basket], messages: Counter[int]) -> dict[ShopDay, tuple[int, int]]:
    """Baskets and messages of each window: from the data set, and from the input topic."""
    baskets: Counter[ShopDay] = Counter()
    told: Counter[ShopDay] = Counter()
    for basket in known.values():
        window = basket.window
        baskets[window] += 1
        told[window] += messages[basket.basket]
    return {window: (n, told[window]) for window, n in baskets.items()}


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
