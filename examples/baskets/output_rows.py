"""The rows that plain readers find after the end: ``pulsar-client`` and ``deltalake``."""

from __future__ import annotations

import json
from datetime import date

from deltalake import DeltaTable, QueryBuilder

from examples._demo.plain_reader import read_all
from examples.baskets.basket_year import ShopDay
from examples.baskets.window_verdict import ShopDayCount


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
