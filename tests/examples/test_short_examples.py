"""The short examples run unchanged from their files; plain clients read their output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from eos.recovery.resolve import resolve
from tests.support.checkout import ROOT
from tests.support.judge import Seen, drain

ORDERS = [
    {"id": number, "customer": f"c{number % 7}", "amount": number / 2} for number in range(400)
]
LARGE = [order for order in ORDERS if order["amount"] >= 100]


class Example:
    """Runs examples with this broker, and with folders and names that no other test uses."""

    def __init__(self, service_url: str, folder: Path, name: str) -> None:
        self.service_url = service_url
        self.folder = folder
        self.name = name

    def source(self, file: str) -> str:
        """Return the text of an example, with the broker, folders and names of this test."""
        text = (ROOT / "examples" / file).read_text()
        text = text.replace("pulsar://localhost:6650", self.service_url)
        text = text.replace("/tmp/eos", str(self.folder))
        for word in ("orders", "large-orders", "orders-table", "history", "both", "invoices"):
            text = text.replace(f'"{word}"', f'"{self.name}-{word}"')
        return text

    def run(self, file: str) -> None:
        """Run it in this process: ``getOrCreate`` returns the session of the tests."""
        exec(compile(self.source(file), file, "exec"), {"__name__": "__main__"})

    def put(self, where: str, rows: list[dict], name: str) -> None:
        """Write a file of JSON lines for the examples that read files."""
        path = self.folder / where / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def read_topic(self, word: str) -> list[Seen]:
        """Return the messages that a plain ``pulsar-client`` reads."""
        return drain(self.service_url, f"persistent://public/default/{self.name}-{word}")

    def read_table(self, where: str) -> list[dict]:
        """Return the rows that a plain reader of Delta tables finds."""
        reader = QueryBuilder().register("found", DeltaTable(str(self.folder / where)))
        found = reader.execute("select id, customer, amount from found").read_all()
        return pa.table(found).to_pylist()


@pytest.fixture
def example(pulsar_standalone, tmp_path, name) -> Example:
    return Example(pulsar_standalone.service_url, tmp_path, name)


@pytest.fixture
def filled(spark, example) -> Example:
    """After ``file_to_topic.py``: the topic ``orders`` exists."""
    example.put("orders", ORDERS[:300], "a")
    example.run("file_to_topic.py")
    example.put("orders", ORDERS[300:], "b")
    example.run("file_to_topic.py")
    return example


def rows_of(seen: list[Seen]) -> list[dict]:
    """In the order of their ids."""
    return by_id([json.loads(one.value) for one in seen])


def by_id(rows: list[dict]) -> list[dict]:
    return sorted(rows, key=lambda row: row["id"])


def test_files_go_to_a_topic_and_a_second_run_adds_only_new_files(filled):
    seen = filled.read_topic("orders")
    assert rows_of(seen) == ORDERS
    assert {one.key for one in seen} == {order["customer"] for order in ORDERS}


def test_a_topic_goes_to_a_topic_once(filled):
    filled.run("topic_to_topic.py")
    filled.run("topic_to_topic.py")
    assert rows_of(filled.read_topic("large-orders")) == LARGE


def test_a_topic_goes_to_a_table_once(filled):
    filled.run("topic_to_table.py")
    filled.run("topic_to_table.py")
    assert by_id(filled.read_table("orders-table")) == ORDERS


def test_a_backfill_skips_the_days_that_it_has_written(spark, example, capsys):
    days = [{"id": n, "day": f"2026-11-{1 + n % 3:02}", "amount": n / 2} for n in range(90)]
    example.put("history", [one for one in days if one["day"] < "2026-11-03"], "early")
    example.run("batch_backfill.py")
    example.put("history", [one for one in days if one["day"] >= "2026-11-03"], "late")
    example.run("batch_backfill.py")
    first, second = "2026-11-01 written\n2026-11-02 written\n", "2026-11-03 written\n"
    assert capsys.readouterr().out == first + first.replace("written", "skipped") + second
    assert [row["id"] for row in rows_of(example.read_topic("history"))] == list(range(90))


def test_messages_are_consumed_and_produced_in_one_transaction(filled):
    filled.run("consume_transform_produce.py")
    filled.run("consume_transform_produce.py")
    seen = filled.read_topic("invoices")
    found = {json.loads(one.value)["order"]: json.loads(one.value)["total"] for one in seen}
    assert found == {order["id"]: round(order["amount"] * 1.2, 2) for order in ORDERS}
    assert len(seen) == len(ORDERS)


def test_topic_and_table_get_the_same_rows(spark, example):
    example.put("orders", ORDERS, "a")
    example.run("topic_and_table.py")
    assert rows_of(example.read_topic("both")) == by_id(example.read_table("both-table")) == ORDERS


@pytest.mark.chaos
def test_a_driver_killed_between_the_two_commits_leaves_each_row_once_in_both(example):
    """Recovery without Spark completes the table, and the next driver writes the rest."""
    script = example.folder / "script.py"
    script.write_text(example.source("topic_and_table.py"))

    def drive(kill: str = "") -> int:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "EOS_FAILPOINTS": kill}
        done = subprocess.run([sys.executable, str(script)], env=env, check=False, timeout=150)
        return done.returncode

    def counts() -> tuple[Counter, Counter]:
        topic = Counter(json.loads(one.value)["id"] for one in example.read_topic("both"))
        return topic, Counter(row["id"] for row in example.read_table("both-table"))

    example.put("orders", ORDERS[:100], "a")
    assert drive() == 0
    example.put("orders", ORDERS[100:250], "b")
    assert drive("ending-part=kill@1") != 0
    topic, table = counts()
    assert (topic.total(), table.total()) == (250, 100)
    resolve(f"{example.name}-both", commit_log=str(example.folder / "log"))
    assert [one.total() for one in counts()] == [250, 250]
    example.put("orders", ORDERS[250:], "c")
    assert drive() == 0
    topic, table = counts()
    assert topic == table == Counter(range(len(ORDERS)))
