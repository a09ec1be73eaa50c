"""The builders of records are shared with the tests of eos.transaction."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "transaction"))

from epochs import claim, committed_epoch

from eos.commit_log import CommitLog


@pytest.fixture
def root(tmp_path):
    # A blank in the path: URL encoding must not get in the way.
    return tmp_path / "commit log"


@pytest.fixture
def log(root):
    """A log of sink "orders": a claim and two committed epochs, seven records."""
    log = CommitLog.open(root, "orders")
    claimed = log.append(claim())
    for epoch in ("0", "1"):
        for record in committed_epoch(claimed, epoch):
            log.append(record)
    return log
