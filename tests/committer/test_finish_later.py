"""Step 10 in the background: after an epoch is readable, before the next OPEN."""

from __future__ import annotations

import logging
import threading

import pytest

from eos.errors import ConnectionLost
from eos.protocol import State
from tests.support.judge import drain
from tests.support.plain_driver import rows_of


@pytest.fixture
def driver(make_driver):
    return make_driver()


@pytest.fixture
def before_step_10(driver, monkeypatch):
    """A list of actions; the next one runs before COMMITTED is appended."""
    actions, append = [], driver.log.append

    def held(draft):
        if draft.state is State.COMMITTED and actions:
            actions.pop(0)()
        return append(draft)

    monkeypatch.setattr(driver.log, "append", held)
    return actions


def values(pulsar_standalone, topic: str) -> list[bytes]:
    return [seen.value for seen in drain(pulsar_standalone.service_url, topic)]


def test_an_epoch_is_readable_before_step_10(pulsar_standalone, driver, topic, before_step_10):
    proceed = threading.Event()
    before_step_10.append(lambda: proceed.wait(30))
    driver.run("0", finish_later=True)
    assert values(pulsar_standalone, topic) == rows_of("0")
    assert driver.states("0") == ["OPEN", "PREPARED"]
    proceed.set()
    driver.committer.await_finished()
    assert driver.states("0") == ["OPEN", "PREPARED", "COMMITTED"]


def test_the_next_epoch_waits_for_step_10(driver, before_step_10, caplog, monkeypatch):
    ended, end = [], driver.participant.commit

    def counted(part, **options):
        ended.append(len(ended))
        return end(part, **options)

    monkeypatch.setattr(driver.participant, "commit", counted)
    proceed = threading.Event()
    before_step_10.append(lambda: proceed.wait(30))
    with caplog.at_level(logging.WARNING, "eos"):
        driver.run("0", finish_later=True)
        threading.Timer(0.5, proceed.set).start()
        driver.run("1", finish_later=True)
        driver.committer.await_finished()
    assert caplog.text == ""
    epoch = ["OPEN", "PREPARED", "COMMITTED"]
    assert [record.state for record in driver.records()] == ["CLAIMED", *epoch, *epoch]
    # Without the wait, the epoch would look like one that an earlier run has left, and end twice.
    assert ended == [0, 1]


def test_a_failed_step_10_is_logged_at_once_and_raised_by_the_next_call(
    pulsar_standalone, make_driver, driver, topic, before_step_10, caplog
):
    def fail():
        raise ConnectionLost("the store is away")

    before_step_10.append(fail)
    with caplog.at_level(logging.WARNING, "eos"):
        driver.run("0", finish_later=True)
        with pytest.raises(ConnectionLost, match="the store is away"):
            driver.run("1")
    assert "Epoch 0 is committed, but not recorded as such" in caplog.text
    successor = make_driver()
    assert successor.run("0").status == "skipped"
    assert successor.states("0") == ["OPEN", "PREPARED", "COMMITTED"]
    assert values(pulsar_standalone, topic) == rows_of("0")
