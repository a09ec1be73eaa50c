"""The command line as a user has it, in this process; and sinks that a driver has left behind."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from eos import failpoints
from eos.client import PulsarClient
from eos.committer import OpenEpoch
from eos.steps import Step
from recovery.cli import main
from tests.support.plain_driver import PlainDriver


@dataclass(frozen=True)
class Ended:
    """One command's ending. ``out`` and ``err``: what it printed, on one line."""

    code: int
    out: str
    err: str
    raw: str

    @property
    def json(self) -> Any:
        """The JSON that it printed, and nothing besides."""
        assert self.raw, self.err
        return json.loads(self.raw)


@pytest.fixture
def recovery(monkeypatch, capsys) -> Callable[..., Ended]:
    """``recovery("status", "--json")``; nothing of the environment gets in."""
    for name in ("COMMIT_LOG", "SERVICE_URL", "ADMIN_URL", "TOKEN", "TOKEN_FILE", "BASIC_USER"):
        monkeypatch.delenv(f"EOS_{name}", raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*args: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["eos-recovery", *map(str, args)])
        capsys.readouterr()
        try:
            with pytest.raises(SystemExit) as caught:
                main()
        finally:
            logging.disable(logging.NOTSET)  # the program's own process ends with it; ours goes on
        printed = capsys.readouterr()
        code = caught.value.code
        assert code is None or isinstance(code, int)
        flat = (" ".join(text.split()) for text in printed)
        return Ended(code or 0, *flat, raw=printed.out)

    return run


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
            **{"service_url": pulsar_standalone.service_url, "topic": topic} | options,
            commit_log=root,
            sink_id=name,
        )
        made.append(driver)
        return driver

    yield make
    for driver in made:
        driver.close()


class Died(BaseException):
    """The driver's death: nothing catches it, nothing is done in passing."""


@pytest.fixture
def dies_behind(monkeypatch) -> Callable[..., None]:
    """``dies_behind(driver, Step.PREPARE, "7")``: epoch 7 ends there, and so does the driver."""

    def run(driver: PlainDriver, step: Step, epoch: str, **options: Any) -> None:
        def die() -> None:
            raise Died

        with monkeypatch.context() as dead:
            dead.setattr(OpenEpoch, "abort", lambda *_: None)
            with failpoints.armed(step, die), pytest.raises(Died):
                driver.run(epoch, **options)

    return run
