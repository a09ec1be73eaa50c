"""``log compact`` and ``log export``."""

from __future__ import annotations

import errno
import json
import os
import resource

import prometheus_client
import pytest

from eos.commit_log import SCHEMA
from eos.recovery.verbs import log_verbs
from tests.support.logs import exported_rows, small_log


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".csv"])
def test_export_writes_every_record_with_every_column_in_order(
    recovery, make_driver, root, name, tmp_path, suffix
):
    driver = make_driver()
    driver.run("0")
    path = tmp_path / f"out{suffix}"
    ended = recovery("log", "export", name, path, "--commit-log", root, "--json")
    assert (ended.code, ended.json["records"]) == (0, 4)
    rows = exported_rows(path)
    assert list(rows[0]) == SCHEMA.names
    assert [int(row["seq"]) for row in rows] == [1, 2, 3, 4]
    assert [row["state"] for row in rows] == ["CLAIMED", *driver.states("0")]


def test_export_refuses_existing_files_and_unknown_formats(
    recovery, make_driver, root, name, tmp_path
):
    make_driver().run("0")
    path = tmp_path / "out.csv"
    path.write_text("mine")
    ended = recovery("log", "export", name, path, "--commit-log", root)
    assert (ended.code, path.read_text()) == (64, "mine")
    ended = recovery("log", "export", name, tmp_path / "out.xls", "--commit-log", root)
    assert ended.code == 64
    assert ".parquet" in ended.err


@pytest.mark.parametrize("ending", ["parquet", "jsonl", "csv"])
def test_failed_export_leaves_no_file(recovery, root, tmp_path, ending):
    small_log(root, "orders")
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limit[1]))
    try:
        ended = recovery("log", "export", "orders", tmp_path / f"a.{ending}", "--commit-log", root)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert (ended.code, "can't be written: File too large" in ended.err) == (64, True), ended.err
    assert not (tmp_path / f"a.{ending}").exists()


def test_lists_in_a_csv_file_are_json(recovery, root, tmp_path):
    small_log(root, "orders")
    assert recovery("log", "export", "orders", tmp_path / "a.csv", "--commit-log", root).code == 0
    for row in exported_rows(tmp_path / "a.csv"):
        assert isinstance(json.loads(row["partitions"]), list)
        assert json.loads(row["participants"])[0]["kind"] == "pulsar"


@pytest.mark.parametrize(
    ("code", "ends_with"), [(errno.ENOSPC, 2), (errno.EIO, 2), (errno.EACCES, 64)]
)
def test_full_disk_is_no_wrong_option(recovery, root, tmp_path, monkeypatch, code, ends_with):
    small_log(root, "orders")

    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setitem(log_verbs._WRITERS, ".csv", refuse)
    monkeypatch.setattr(prometheus_client, "write_to_textfile", refuse)
    for verb in (["log", "export", "orders", tmp_path / "a.csv"], ["metrics", "--out", "a.prom"]):
        ended = recovery(*verb, "--commit-log", root)
        assert (ended.code, os.strerror(code) in ended.err) == (ends_with, True), ended


def test_compact_shows_a_plan_then_joins_files_without_loss(recovery, make_driver, root, name):
    driver = make_driver()
    for epoch in range(3):
        driver.run(str(epoch))
    before = driver.records()
    assert recovery("log", "compact", name, "--commit-log", root).code == 1
    ended = recovery("log", "compact", name, "--commit-log", root, "--apply", "--yes")
    assert ended.code == 0
    assert f"{len(before)} rows" in ended.out
    assert driver.records() == before
    driver.run("3")  # a running driver continues
    assert driver.states("3")[-1] == "COMMITTED"
