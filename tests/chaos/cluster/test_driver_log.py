"""What drivers say from a moment on, each in a file of its own."""

from __future__ import annotations

from eos.chaos.cluster.driver_log import DriverLog, log_of, logs_in


def test_only_what_is_said_from_now_on_counts_whoever_says_it(tmp_path):
    log_of(tmp_path, 1).write_text("an error of before\n")
    log = DriverLog(tmp_path)
    assert log.line_with("error") == ""
    with log_of(tmp_path, 1).open("a") as first:
        first.write("nothing\n")
    log_of(tmp_path, 2).write_text("start\n  an error of now\n")
    assert log.line_with("error") == "an error of now"
    assert log.await_line("error") == "an error of now"


def test_what_nobody_says_is_empty(tmp_path):
    assert DriverLog(tmp_path).await_line("error", timeout_s=0.0) == ""


def test_lives_are_in_order(tmp_path):
    for life in (2, 11, 1):
        log_of(tmp_path, life).touch()
    assert logs_in(tmp_path) == [log_of(tmp_path, life) for life in (1, 2, 11)]
