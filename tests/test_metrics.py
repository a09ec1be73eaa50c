"""The metrics of a driver: values and labels, as real Prometheus text."""

from __future__ import annotations

import re
import time
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from eos.commit_log import CommitLog
from eos.errors import Fenced, InDoubt, InputError
from eos.metrics import PrometheusListener
from eos.protocol import State
from tests.support.watched import Doubtful, FolderDriver, folder_kind

__all__ = ["folder_kind"]

ROWS = ["a", "bc", "def"]
ROOT = Path(__file__).parent.parent


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def listener(registry) -> PrometheusListener:
    return PrometheusListener(registry)


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, {"sink": "orders", **labels})


def fail() -> None:
    raise InputError("no such column")


def test_epochs_are_counted_by_outcome_with_rows_bytes_and_times(tmp_path, registry, listener):
    driver = FolderDriver(tmp_path, listener)
    for epoch in "012":
        driver.run(epoch, ROWS)
    driver.run("3", [])
    with pytest.raises(InputError):
        driver.run("4", ROWS, before_write=fail)
    driver.close()
    successor = FolderDriver(tmp_path, listener)
    successor.run("0", ROWS)
    successor.close()
    outcomes = {"committed": 3, "empty": 1, "aborted": 1, "skipped": 1}
    for outcome, count in outcomes.items():
        assert value(registry, "eos_epochs_total", outcome=outcome) == count
    assert value(registry, "eos_rows_total", kind="folder") == 9
    assert value(registry, "eos_bytes_total", kind="folder") == 18
    assert value(registry, "eos_aborted_attempts_total", reason="input") == 1
    assert value(registry, "eos_epoch_duration_seconds_count") == 4
    assert value(registry, "eos_step_duration_seconds_count", step="write") == 5
    assert 0 < value(registry, "eos_step_duration_seconds_sum", step="prepare") < 60
    assert value(registry, "eos_claims_total") == 2
    assert value(registry, "eos_claims_lost_total") == 0
    assert value(registry, "eos_owed_epochs") == 1
    assert abs(value(registry, "eos_last_commit_timestamp_seconds") - time.time()) < 60


def test_a_transaction_in_doubt_is_shown_with_its_age_until_it_is_resolved(
    tmp_path, registry, listener
):
    driver = FolderDriver(tmp_path, listener, participant=Doubtful(tmp_path / "orders"))
    with pytest.raises(InDoubt):
        driver.run("7", ROWS)
    driver.close()
    assert value(registry, "eos_epochs_total", outcome="in_doubt") == 1
    assert value(registry, "eos_unfinished_transactions", state="in_doubt") == 1
    assert value(registry, "eos_unfinished_transactions", state="open") == 0
    first = value(registry, "eos_oldest_transaction_age_seconds", state="in_doubt")
    time.sleep(0.05)
    assert value(registry, "eos_oldest_transaction_age_seconds", state="in_doubt") > first > 0
    assert value(registry, "eos_rows_total", kind="folder") is None
    successor = FolderDriver(tmp_path, listener)
    successor.run("7", ROWS)
    successor.close()
    assert value(registry, "eos_epochs_total", outcome="skipped") == 1
    assert value(registry, "eos_unfinished_transactions", state="in_doubt") == 0
    assert value(registry, "eos_oldest_transaction_age_seconds", state="in_doubt") == 0
    assert value(registry, "eos_rows_total", kind="folder") == 3, "whoever finishes it counts it"


def test_a_lost_claim_is_counted_once(tmp_path, registry, listener):
    driver = FolderDriver(tmp_path, listener)
    driver.run("0", ROWS)
    FolderDriver(tmp_path).run("1", ROWS)
    for epoch in "23":
        with pytest.raises(Fenced):
            driver.run(epoch, ROWS)
    driver.close()
    assert value(registry, "eos_claims_lost_total") == 1
    assert value(registry, "eos_epochs_total", outcome="fenced") == 2
    assert value(registry, "eos_unfinished_transactions", state="open") is None


def test_two_sinks_with_a_listener_each_count_in_one_registry(tmp_path, registry):
    for sink_id in ("orders", "ticks"):
        driver = FolderDriver(tmp_path, PrometheusListener(registry), sink_id=sink_id)
        driver.run("0", ROWS)
        driver.close()
    for sink_id in ("orders", "ticks"):
        assert value(registry, "eos_epochs_total", sink=sink_id, outcome="committed") == 1


def test_epochs_and_keys_add_no_series(tmp_path, registry, listener):
    driver = FolderDriver(tmp_path, listener)
    driver.run("key-0", ROWS)
    driver.observer.close()
    before = set(re.findall(r"^\w+\{[^}]*\}", generate_latest(registry).decode(), re.M))
    for number in range(1, 6):
        driver.run(f"key-{number}", ROWS)
    driver.close()
    text = generate_latest(registry).decode()
    assert set(re.findall(r"^\w+\{[^}]*\}", text, re.M)) == before
    assert "key-" not in text


def test_a_real_scrape_can_be_parsed(tmp_path, registry, listener):
    driver = FolderDriver(tmp_path, listener)
    driver.run("0", ROWS)
    driver.close()
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            text = answer.read().decode()
        with pytest.raises(OSError, match="in use"):
            start_http_server(server.server_port, addr="127.0.0.1", registry=registry)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    ours = {name: family for name, family in families.items() if not name.endswith("_created")}
    assert all(name.startswith("eos_") and family.documentation for name, family in ours.items())
    assert ours["eos_epochs"].type == "counter"
    assert ours["eos_step_duration_seconds"].type == "histogram"
    assert ours["eos_unfinished_transactions"].type == "gauge"


def test_every_metric_is_in_the_manual_with_its_type_and_labels(tmp_path, registry, listener):
    driver = FolderDriver(tmp_path, listener)
    driver.run("0", ROWS)
    with pytest.raises(InputError):
        driver.run("1", ROWS, before_write=fail)
    driver.close()
    manual = (ROOT / "docs" / "monitoring.md").read_text()
    for family in registry.collect():
        name = family.name + "_total" * (family.type == "counter")
        labels = sorted({label for s in family.samples for label in s.labels} - {"le"})
        shown = ", ".join(f"`{label}`" for label in labels)
        assert f"| `{name}` | {family.type} | {shown} |" in manual


def test_older_unfinished_attempts_are_shown_after_the_claim(tmp_path, registry, listener):
    driver = FolderDriver(tmp_path, participant=Doubtful(tmp_path / "orders"))
    with pytest.raises(InDoubt):
        driver.run("7", ROWS)
    successor = FolderDriver(tmp_path, listener, participant=Doubtful(tmp_path / "orders"))
    with pytest.raises(InDoubt):
        successor.run("8", ROWS)
    successor.close()
    assert value(registry, "eos_unfinished_transactions", state="in_doubt") == 1
    newest = CommitLog.open_read_only(tmp_path / "log", "orders").history.unfinished
    assert [record.state for record in newest] == [State.PREPARED]
