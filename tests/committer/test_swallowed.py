"""User code that catches the sink's errors: no epoch follows a failed one."""

from __future__ import annotations

import contextlib

import pytest

from eos.commit_log import CommitLog
from eos.committer import Policies
from eos.committer._call_guard import CallGuard
from eos.errors import DuplicateEpochCall, EosError, InDoubt, UnfinishedEpoch
from eos.protocol import BATCH
from tests.protocol.epochs import QUERY as QUERY_OF_RECORDS
from tests.protocol.epochs import claim, committed_epoch
from tests.support.judge import drain
from tests.support.plain_driver import QUERY, rows_of


def fail(_: object) -> None:
    raise ValueError("card 4111-1111-1111-1111 is not valid")


def swallowing(driver, epoch: str, **options) -> None:
    with contextlib.suppress(Exception):
        driver.run(epoch, **options)


def values(pulsar_standalone, topic: str) -> list[bytes]:
    return [seen.value for seen in drain(pulsar_standalone.service_url, topic)]


@pytest.mark.parametrize("restarted", [False, True])
def test_no_epoch_follows_an_aborted_one_until_it_is_written(
    pulsar_standalone, make_driver, topic, restarted
):
    driver = make_driver()
    driver.run("0")
    driver.during_write = fail
    swallowing(driver, "1")
    driver.during_write = lambda _: None
    if restarted:
        driver = make_driver()
    for later in ("2", "3"):
        with pytest.raises(UnfinishedEpoch, match=r"Epoch 1 ended in an error.*commits/1"):
            driver.run(later)
    assert values(pulsar_standalone, topic) == rows_of("0")
    assert driver.run("1").status == "written"
    assert driver.run("2").status == "written"
    assert values(pulsar_standalone, topic) == [r for n in range(3) for r in rows_of(str(n))]


def test_an_epoch_without_a_transaction_is_in_the_log_and_blocks_later_ones(make_driver):
    driver = make_driver(max_attempts=1, deadline_s=0.5)
    driver.run("0")
    begin, driver.participant.begin = driver.participant.begin, lambda attempt: fail(attempt)
    swallowing(driver, "1")
    driver.participant.begin = begin
    assert driver.states("1") == ["FAILED"]
    assert "4111" not in "".join(str(record.reason) for record in driver.records())
    again = make_driver()
    with pytest.raises(UnfinishedEpoch, match="Epoch 1 ended in an error"):
        again.run("2")
    assert again.run("1").status == "written"
    assert again.run("2").status == "written"
    assert again.states("1") == ["FAILED", "OPEN", "PREPARED", "COMMITTED"]


def test_an_error_that_a_fenced_driver_swallowed_blocks_later_epochs_in_the_next_run(
    pulsar_standalone, make_driver, topic
):
    """It can't write to the log, but there is a gap."""
    first = make_driver()
    for epoch in ("0", "1"):
        first.run(epoch)
    make_driver().run("a key", query_id=BATCH)  # which takes the claim
    for epoch in ("2", "3"):
        swallowing(first, epoch)
    second = make_driver()
    with pytest.raises(UnfinishedEpoch, match=r"epoch 2 to 3.*on_gap.*commits/2"):
        second.run("4")
    for epoch in ("2", "3", "4"):
        assert second.run(epoch).status == "written"
    expected = [row for key in ("0", "1", "a key", "2", "3", "4") for row in rows_of(key)]
    assert values(pulsar_standalone, topic) == expected


def test_a_new_query_on_a_known_sink_begins_at_its_first_epoch(make_driver):
    make_driver().run("0")
    other = make_driver()
    with pytest.raises(UnfinishedEpoch, match="epoch 0 to 2"):
        other.run("3", query_id="22222222-0000-4000-8000-000000000000")
    assert other.run("0", query_id="22222222-0000-4000-8000-000000000000").status == "written"


def test_a_function_may_skip_epochs_explicitly(make_driver):
    make_driver().run("0")
    assert make_driver(on_gap="continue").run("5").status == "written"
    driver = make_driver()
    driver.run("6")
    assert driver.run("9").status == "written"  # within one run nothing failed in between


def test_an_epoch_that_a_later_one_has_passed_does_not_block_and_stays_listed(make_driver):
    """As in logs that an older release has written."""
    driver = make_driver()
    driver.during_write = fail
    swallowing(driver, "1")
    driver.during_write = lambda _: None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eos.protocol._epochs._first_owed", lambda *_: None)
        driver.run("2")
    assert make_driver().run("3").status == "written"
    assert [record.epoch for record in make_driver().log.history.owing] == ["1"]


def test_a_failed_batch_key_does_not_block_another_key(make_driver):
    driver = make_driver()
    driver.during_write = fail
    swallowing(driver, "monday", query_id=BATCH)
    driver.during_write = lambda _: None
    assert driver.run("tuesday", query_id=BATCH).status == "written"
    assert [record.epoch for record in driver.log.history.owing] == ["monday"]


def test_an_overtaken_driver_is_fenced_even_if_it_knows_a_failed_epoch(make_driver):
    first = make_driver()
    first.during_write = fail
    swallowing(first, "0")
    second = make_driver()
    second.run("0")
    with pytest.raises(EosError, match="claimed"):
        first.run("1")
    assert second.run("1").status == "written"
    assert QUERY in second.log.history.streaming_queries


def test_a_committed_epoch_whose_record_was_dropped_has_not_failed(tmp_path):
    """Its checkpoint was set back, and the call failed before the epoch was skipped."""
    log = CommitLog.open(tmp_path / "log", "orders", keep_epochs=1)
    claimed = log.append(claim())
    for record in (one for n in range(4) for one in committed_epoch(claimed, str(n))):
        log.append(record)
    log.compact()
    assert log.history.newest(QUERY_OF_RECORDS, "0") is None
    guard, error = CallGuard(log, Policies()), InDoubt("an earlier epoch is in doubt")
    guard.record_failure(claimed, QUERY_OF_RECORDS, "0", error)
    assert log.history.owing == ()
    guard.record_failure(claimed, QUERY_OF_RECORDS, "4", error)
    assert [one.epoch for one in log.history.owing] == ["4"]


def test_a_second_sink_of_the_function_is_known_by_its_log_not_by_its_path(tmp_path):
    """Spark calls both with the same epoch: the second call's rows would be skipped."""
    CommitLog.open(tmp_path / "log", "orders").append(claim())
    (tmp_path / "link").symlink_to(tmp_path / "log")
    first, second = (
        CallGuard(CommitLog.open(tmp_path / name, "orders"), Policies()) for name in ("log", "link")
    )
    first.add(QUERY, "0", "run-1")
    with pytest.raises(DuplicateEpochCall):
        second.check(QUERY, "0", "run-1")
