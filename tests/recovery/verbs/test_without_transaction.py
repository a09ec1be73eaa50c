"""Every verb on a log with epochs without a transaction: failed and abandoned ones."""

from __future__ import annotations

import pytest

from eos.protocol import BATCH, State
from tests.protocol.epochs import claim, step
from tests.support.logs import (
    GIVEN_UP,
    abandoned_epoch,
    aborted_epoch,
    exported_rows,
    failed_epoch,
    log_of,
)

STATES = ["CLAIMED", "FAILED", "ABANDONED", "OPEN", "ABORTING", "ABORTED", "ABANDONED", "FAILED"]


@pytest.fixture
def where(root, pulsar_standalone):
    """Epoch 1 failed and key a was aborted, and both were abandoned; epoch 2 failed."""
    run = claim()
    aborted = aborted_epoch(run, "a", query_id=BATCH)
    given_up = step(aborted[-1], State.ABANDONED, run, GIVEN_UP)
    log_of(root, run, *abandoned_epoch(run, "1"), *aborted, given_up, failed_epoch(run, "2"))
    broker = pulsar_standalone
    urls = ("--service-url", broker.service_url, "--admin-url", broker.admin_url)
    return ("--commit-log", root, *urls)


@pytest.mark.parametrize(
    ("verb", "code"),
    [
        (("status",), 1),
        (("show", "orders"), 1),
        (("show", "orders", "--epoch", "1"), 0),
        (("show", "orders", "--epoch", "2"), 1),
        (("show", "orders", "--epoch", "a"), 0),
        (("resolve",), 0),
        (("abort", "orders"), 0),
        (("verify", "--silence-s", "1"), 1),
        (("log", "repair", "orders"), 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_every_verb_reads_epochs_without_a_transaction(recovery, where, verb, code):
    shown = recovery(*verb, *where)
    assert shown.code == code
    assert "None" not in shown.out + shown.err
    assert recovery(*verb, *where, "--json").json["exit_code"] == code


def test_orphans_and_doctor_read_epochs_without_a_transaction(recovery, where):
    ended = recovery("orphans", *where, "--json")
    assert ended.json["problems"] == []
    checks = recovery("doctor", *where, "--json").json["checks"]
    assert {one["name"]: one["verdict"] for one in checks}["commit logs"] == "ok"


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".csv"])
def test_export_writes_epochs_without_a_transaction(recovery, where, tmp_path, suffix):
    path = tmp_path / f"out{suffix}"
    assert recovery("log", "export", "orders", path, *where).code == 0
    rows = exported_rows(path)
    assert [row["state"] for row in rows] == STATES
    without = [row["seq"] for row in rows if row["txn_least"] in (None, "")]
    assert [int(seq) for seq in without] == [1, 2, 3, 8]
    assert rows[2]["reason"] == "DECIDED: Ada: test data"


def test_compact_keeps_unwritten_epochs(recovery, where, root):
    assert recovery("log", "compact", *where, "--apply", "--yes").code == 0
    (one,) = recovery("status", *where, "--json").json["sinks"][0]["owing"]
    assert (one["epoch"], one["state"]) == ("2", "FAILED")
