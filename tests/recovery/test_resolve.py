"""Recovery without Spark: a function call finishes the epochs of a dead driver."""

from __future__ import annotations

import logging
import shlex
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from eos import failpoints
from eos.client import PulsarClient
from eos.commit_log import CommitLog
from eos.committer import Committer
from eos.errors import ConfigurationError, Fenced, InDoubt
from eos.protocol import ABORTED, BATCH, COMMITTED, State, UnknownPart, unknown
from eos.pulsar.part import pulsar_part
from eos.recovery import _takeover
from eos.recovery.decide import decide
from eos.recovery.resolve import resolve
from eos.steps import Step
from tests.protocol.epochs import FAILED, FIGURES, RECEIPT_ID, claim, opened, step
from tests.support.judge import drain
from tests.support.logs import log_of
from tests.support.plain_driver import PlainDriver, rows_of
from tests.testing.outputs import TableOutput


@pytest.fixture
def driver(pulsar_standalone, client: PulsarClient, tmp_path, name):
    topic = f"persistent://public/default/{name}"
    client.entry_producer(topic, create=True).close()
    driver = PlainDriver(pulsar_standalone.service_url, tmp_path / "log", name, topic)
    yield driver
    driver.close()


def stop() -> None:
    raise KeyboardInterrupt


def test_a_prepared_epoch_is_committed_and_a_second_call_changes_nothing(driver, pulsar_standalone):
    with failpoints.armed(Step.PREPARE, stop), pytest.raises(KeyboardInterrupt):
        driver.run("0")
    where = {"commit_log": driver.commit_log, "service_url": pulsar_standalone.service_url}
    (record,) = resolve(driver.sink_id, **where)
    assert (record.state, record.records) == ("COMMITTED", 10)
    before = driver.records()
    assert resolve(driver.sink_id, **where) == []
    assert driver.records() == before
    assert [s.value for s in drain(driver.service_url, driver.topic)] == rows_of("0")


def test_running_driver_is_fenced(driver, pulsar_standalone):
    def overtake() -> None:
        resolve(
            driver.sink_id,
            commit_log=driver.commit_log,
            service_url=pulsar_standalone.service_url,
        )

    with failpoints.armed(Step.WRITE, overtake), pytest.raises(Fenced):
        driver.run("0")
    assert driver.states("0") == ["OPEN", "ABORTING", "ABORTED"]


def test_unknown_sink_is_refused_and_no_log_is_created(tmp_path, pulsar_standalone):
    with pytest.raises(ConfigurationError, match="does not exist"):
        resolve("unknown", commit_log=tmp_path, service_url=pulsar_standalone.service_url)
    assert list(tmp_path.iterdir()) == []


class SilentTopic(_takeover.GivenUpOutput):
    """A topic whose coordinator answers no END_TXN."""

    def abort(self, part, *, deadline_s, is_own):
        return unknown("no usable answer")


@pytest.fixture
def silent(monkeypatch):
    monkeypatch.setattr(_takeover, "open_participant", lambda _, part, __: SilentTopic(part))


def test_an_abort_without_an_answer_ends_with_the_time_to_live(silent, tmp_path, caplog):
    begun = opened(claim())
    log = log_of(tmp_path, claim(), begun, step(begun, State.ABORTING, claim(), FAILED))
    with caplog.at_level(logging.WARNING, "eos"):
        (last,) = resolve(log.sink_id, commit_log=tmp_path)
    assert (last.state, last.reason) == ("ABORTED", FAILED)
    assert "transaction (3,7) did not confirm its abort: no usable answer" in caplog.text


def test_before_its_end_an_abort_without_an_answer_is_in_doubt(silent, tmp_path):
    log = log_of(tmp_path, claim(), replace(opened(claim()), opened_at=datetime.now(UTC)))
    with pytest.raises(InDoubt, match=r"no usable answer.*needs no answer") as failed:
        resolve(log.sink_id, commit_log=tmp_path)
    log.refresh()
    (left,) = log.history.unfinished
    assert left.state == "ABORTING"
    assert f"After {left.expires_at:%Y-%m-%d %H:%M:%S} UTC" in failed.value.hint


GONE = UnknownPart(kind="acme", identity="x", output="acme:x", text="{}")


@pytest.fixture
def uninstalled(tmp_path):
    """An epoch that is OPEN in an output whose package is gone."""
    claimed = replace(claim(), participants=(GONE,))
    begun = replace(opened(claimed, query_id=BATCH), participants=(GONE,))
    return log_of(tmp_path / "log", claimed, begun)


def test_an_output_whose_package_is_gone_can_be_given_up(uninstalled, tmp_path):
    where = {"commit_log": tmp_path / "log"}
    with pytest.raises(InDoubt, match="Install its package"):
        resolve("orders", **where)
    (last,) = resolve("orders", **where, give_up=["acme:x"])
    assert (last.state, last.participants) == ("ABORTED", (GONE,))
    table = TableOutput(tmp_path / "table").participant()
    Committer(CommitLog.open(tmp_path / "log", "orders"), [table]).claim()


@pytest.mark.parametrize("verdict", ["aborted", "committed"])
def test_a_person_decides_about_an_output_whose_package_is_gone(uninstalled, tmp_path, verdict):
    newest = uninstalled.history.unfinished[0]
    written = [replace(GONE, records=1, bytes=1)]
    uninstalled.append(newest.advance(State.PREPARED, claim=newest, participants=written))
    where = {"commit_log": tmp_path / "log", "give_up": ["acme:x"]}
    with pytest.raises(InDoubt, match="given up"):
        resolve("orders", **where)
    last = decide("orders", epoch="0", verdict=verdict, because="it is gone", **where)
    assert last.state == verdict.upper()


def test_outputs_are_closed_if_one_cannot_be_opened(monkeypatch, tmp_path):
    claimed = claim()
    log_of(tmp_path, replace(claimed, participants=(*claimed.participants, GONE)))
    closed = []

    def open_participant(_sink_id, part, _access):
        if part == GONE:
            raise InDoubt("not installed")
        topic = SilentTopic(part)
        topic.close = lambda: closed.append(part)
        return topic

    monkeypatch.setattr(_takeover, "open_participant", open_participant)
    with pytest.raises(InDoubt, match="not installed"):
        resolve("orders", commit_log=tmp_path)
    assert closed == [*claimed.participants]


def test_the_loss_of_an_output_is_accepted_with_the_command_that_the_error_prints(
    monkeypatch, tmp_path
):
    class Ended(_takeover.GivenUpOutput):
        """The topic has the epoch, the other output has lost it."""

        def commit(self, part, *, deadline_s, is_own):
            return COMMITTED if part.can_expire else ABORTED

    monkeypatch.setattr(_takeover, "open_participant", lambda _, part, __: Ended(part))
    claimed = replace(claim(), participants=(*claim().participants, GONE))
    begun = opened(claimed, "repair of 7", query_id=BATCH)
    begun = replace(begun, participants=(*begun.participants, GONE))
    topic = replace(pulsar_part(begun), receipt_id=RECEIPT_ID, partitions=FIGURES)
    written = [topic, replace(GONE, records=4, bytes=300)]
    log_of(
        tmp_path, claimed, begun, begun.advance(State.PREPARED, claim=claimed, participants=written)
    )
    with pytest.raises(InDoubt, match="No run can bring it back") as failed:
        resolve("orders", commit_log=tmp_path)
    assert shlex.split(failed.value.hint.splitlines()[-1]) == [
        *("eos", "recovery", "decide", "orders", "--query", "batch", "--epoch", "repair of 7"),
        *("--as", "committed", "--because", "TEXT"),
    ]
