"""The built-in participants fulfil the contract; those that are broken on purpose do not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eos.testing import SinkContract
from tests.testing.outputs import FolderOutput, TableOutput, TopicOutput

BROKEN = Path(__file__).with_name("broken.py")


class TestFolder(SinkContract):
    @pytest.fixture
    def output(self, tmp_path):
        return FolderOutput(tmp_path / "out")


class TestTable(SinkContract):
    @pytest.fixture
    def output(self, tmp_path):
        return TableOutput(tmp_path / "table")


class TestTopic(SinkContract):
    @pytest.fixture
    def output(self, pulsar_standalone, client, name):
        topic = f"persistent://public/default/{name}"
        client.entry_producer(topic, create=True).close()
        return TopicOutput(pulsar_standalone.service_url, topic)


@pytest.mark.chaos
def test_each_broken_participant_is_caught():
    """Run their suites in another process; each must fail."""
    environment = {**os.environ, "PYTHONPATH": str(BROKEN.parents[2])}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rf", "-p", "no:cacheprovider", str(BROKEN)],
        cwd=BROKEN.parents[2],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    failed = set(re.findall(r"^FAILED \S+::(Test\w+)::", ran.stdout, re.M))
    wanted = set(re.findall(r"^class (Test\w+)\(", BROKEN.read_text(), re.M))
    assert len(wanted) >= 10
    assert wanted - failed == set(), ran.stdout[-3000:]
