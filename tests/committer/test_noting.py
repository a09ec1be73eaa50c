"""Step 10 beside Spark's own work: readable before it is noted, noted before the next OPEN."""

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
def before_noting(driver, monkeypatch):
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


def test_an_epoch_is_readable_before_it_is_noted(pulsar_standalone, driver, topic, before_noting):
    noted = threading.Event()
    before_noting.append(lambda: noted.wait(30))
    driver.run("0", notes_later=True)
    assert values(pulsar_standalone, topic) == rows_of("0")
    assert driver.states("0") == ["OPEN", "PREPARED"]
    noted.set()
    driver.committer.await_noted()
    assert driver.states("0") == ["OPEN", "PREPARED", "COMMITTED"]


def test_the_next_epoch_waits_for_the_note(driver, before_noting, caplog, monkeypatch):
    ended, end = [], driver.participant.commit

    def counted(part, **options):
        ended.append(len(ended))
        return end(part, **options)

    monkeypatch.setattr(driver.participant, "commit", counted)
    noted = threading.Event()
    before_noting.append(lambda: noted.wait(30))
    with caplog.at_level(logging.WARNING, "eos"):
        driver.run("0", notes_later=True)
        threading.Timer(0.5, noted.set).start()
        driver.run("1", notes_later=True)
        driver.committer.await_noted()
    assert caplog.text == ""
    epoch = ["OPEN", "PREPARED", "COMMITTED"]
    assert [record.state for record in driver.records()] == ["CLAIMED", *epoch, *epoch]
    # Whoever does not wait takes the epoch for one that an earlier run has left, and ends it anew.
    assert ended == [0, 1]


def test_a_note_that_failed_is_told_at_once_and_by_the_next_call(
    pulsar_standalone, make_driver, driver, topic, before_noting, caplog
):
    def fail():
        raise ConnectionLost("the store is away")

    before_noting.append(fail)
    with caplog.at_level(logging.WARNING, "eos"):
        driver.run("0", notes_later=True)
        with pytest.raises(ConnectionLost, match="the store is away"):
            driver.run("1")
    assert "epoch 0 is committed; noting that it is failed" in caplog.text
    successor = make_driver()
    assert successor.run("0").status == "skipped"
    assert successor.states("0") == ["OPEN", "PREPARED", "COMMITTED"]
    assert values(pulsar_standalone, topic) == rows_of("0")
