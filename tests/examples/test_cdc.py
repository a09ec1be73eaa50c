"""The demo of change data: its generator, what Spark makes of a message, and its verdict."""

from __future__ import annotations

import json

import pytest

from examples.cdc.cdc_run import CdcRun, conclude, draw, report_on
from examples.cdc.shop import Shop


def test_the_messages_of_the_shop_are_its_rows():
    shop, rows = Shop(), {}
    for _ in range(2000):
        key, value, is_delete = shop.change()
        event = json.loads(value)
        number = json.loads(key)["id"]
        before = {k: v for k, v in rows.get(number, {}).items() if k != "lsn"}
        assert (event["before"] is None) is (event["op"] == "c")
        assert (event["op"] == "d") is is_delete
        if event["op"] == "d":
            assert {**event["before"], "lsn": 0}.keys() == rows.pop(number).keys()
        else:
            assert event["op"] == "c" or before["id"] == number
            rows[number] = {**event["after"], "lsn": event["source"]["lsn"]}
    assert rows == shop.rows
    assert shop.deletes > 100


@pytest.mark.broker
def test_spark_finds_each_keys_last_change(spark):
    from examples.cdc.follow_changes import changes_of, messages_of

    shop = Shop()
    events = [shop.change() for _ in range(300)]
    values = [(value,) for _, value, _ in events] + [(b"",), (None,)]
    changes = changes_of(spark.createDataFrame(values, "value binary"))
    assert changes.count() == len(events)
    sent = {row.key: row.value for row in messages_of(changes).collect()}
    assert {int(k): json.loads(v) for k, v in sent.items() if v is not None} == shop.rows
    assert {json.loads(key)["id"] for key, _, _ in events} == {int(key) for key in sent}


def run_with(found: dict) -> CdcRun:
    shop = Shop()
    for _ in range(100):
        shop.change()
    outputs = ("Delta table", "PostgreSQL", "compacted topic")
    samples = {name: [(0.0, 0), (9.0, 5)] for name in ("the shop", "Delta table", "PostgreSQL")}
    return CdcRun(
        shop,
        found={name: found.get(name, shop.rows) for name in outputs},
        kills=[("driver", 3.0), ("broker", 5.0)],
        samples=samples,
        attempts_failed=1,
    )


def test_equal_outputs_are_good(tmp_path):
    run = run_with({})
    assert conclude(run).exit_code == 0
    assert report_on(run).lines[1].cells == ("0", "0", "0")
    draw(run, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_each_difference_is_named():
    rows = run_with({}).shop.rows
    known = next(iter(rows))
    changed = {**rows, known: {**rows[known], "city": "?"}}
    fewer = {key: row for key, row in rows.items() if key != known}
    verdict = conclude(run_with({"PostgreSQL": changed, "Delta table": fewer}))
    assert verdict.exit_code == 1
    assert verdict.anomalies == (
        "Delta table: 1 rows are missing", "PostgreSQL: 1 rows have wrong values"
    )  # fmt: skip
    more = conclude(run_with({"compacted topic": {**rows, -1: {}}}))
    assert more.anomalies == ("compacted topic: 1 rows are too many",)
