"""A root, and a log with a little history in it."""

from __future__ import annotations

import pytest

from eos.commit_log import CommitLog
from tests.transaction.epochs import claim, committed_epoch


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
