"""The command line, run in this process, and drivers that die at a given step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from eos.client import PulsarClient
from eos.recovery.cli import main
from tests.support.command_line import Ended, command_line
from tests.support.plain_driver import PlainDriver, leave_behind


@pytest.fixture
def recovery(monkeypatch, capsys) -> Callable[..., Ended]:
    """``recovery("status", "--json")``; without the environment's options."""
    return command_line("eos recovery", main, monkeypatch, capsys)


@pytest.fixture
def root(tmp_path):
    """The root of the commit logs."""
    return tmp_path / "log"


@pytest.fixture
def make_driver(pulsar_standalone, client: PulsarClient, root, name):
    """A driver of the sink ``name``, which writes to the topic of that name."""
    made: list[PlainDriver] = []

    def make(**options: Any) -> PlainDriver:
        topic = f"persistent://public/default/{name}"
        if not made:
            client.entry_producer(topic, create=True).close()
        driver = PlainDriver(
            **{
                "service_url": pulsar_standalone.service_url,
                "topic": topic,
                "commit_log": root,
                "sink_id": name,
            }
            | options
        )
        made.append(driver)
        return driver

    yield make
    for driver in made:
        driver.close()


@pytest.fixture
def dies_behind() -> Callable[..., None]:
    """``dies_behind(driver, Step.PREPARE, "7")``: the driver dies after that step of epoch 7."""
    return leave_behind
