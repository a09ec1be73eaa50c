"""``eos-catalog`` as a user has it, in this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from catalog.cli import main
from eos.standalone import PulsarStandalone
from tests.support.command_line import Ended, command_line


@pytest.fixture
def cli(monkeypatch, capsys) -> Callable[..., Ended]:
    """``cli("list", "--json")``; nothing of the environment gets in."""
    return command_line("eos-catalog", main, monkeypatch, capsys)


@pytest.fixture
def on_broker(cli, pulsar_standalone: PulsarStandalone, monkeypatch) -> Callable[..., Ended]:
    """The same, with a broker in its environment."""
    monkeypatch.setenv("EOS_SERVICE_URL", pulsar_standalone.service_url)
    monkeypatch.setenv("EOS_ADMIN_URL", pulsar_standalone.admin_url)
    return cli
