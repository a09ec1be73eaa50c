"""Recovery without Spark: a function call finishes the epochs of a dead driver."""

from __future__ import annotations

import pytest

from eos import failpoints
from eos.client import PulsarClient
from eos.errors import ConfigurationError, Fenced
from eos.recovery.resolve import resolve
from eos.steps import Step
from tests.support.judge import drain
from tests.support.plain_driver import PlainDriver, rows_of


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
