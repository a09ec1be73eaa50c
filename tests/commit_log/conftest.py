"""A root, and a log with a little history in it."""

from __future__ import annotations

import pytest

from tests.support.logs import small_log


@pytest.fixture
def root(tmp_path):
    # A blank in the path: URL encoding must not get in the way.
    return tmp_path / "commit log"


@pytest.fixture
def log(root):
    """Of sink "orders", seven records."""
    return small_log(root)
