"""New lines in the logs of drivers, a file for each driver."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from eos.chaos.cluster.driver_process import DriverLog, DriverProcess, log_of, logs_in


def test_only_new_lines_of_any_driver_count(tmp_path):
    log_of(tmp_path, 1).write_text("an error of before\n")
    log = DriverLog(tmp_path)
    assert log.line_with("error") == ""
    with log_of(tmp_path, 1).open("a") as first:
        first.write("nothing\n")
    log_of(tmp_path, 2).write_text("start\n  an error of now\n")
    assert log.line_with("error") == "an error of now"
    assert log.await_line("error") == "an error of now"


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("Traceback\n  ValueError: why\nlater\n", "ValueError: why", "exit code 1: later"),
        ("Traceback\nmy.BadConfig: no password\n\n", "", "exit code 1: my.BadConfig: no password"),
        ("", "", "exit code 1: nothing in its log"),
    ],
)
def test_error_of_any_name_is_told(text, error, words, tmp_path):
    driver = DriverProcess.__new__(DriverProcess)
    driver.log_file = log_of(tmp_path, 1)
    driver.log_file.write_text(text)
    driver._process = cast("Any", SimpleNamespace(poll=lambda: 1))
    assert driver.last_error() == error
    assert driver.last_words() == words


def test_missing_line_is_empty(tmp_path):
    assert DriverLog(tmp_path).await_line("error", timeout_s=0.0) == ""


def test_logs_are_ordered_by_driver(tmp_path):
    for driver in (2, 11, 1):
        log_of(tmp_path, driver).touch()
    assert logs_in(tmp_path) == [log_of(tmp_path, driver) for driver in (1, 2, 11)]
