"""A root, and a log with a little history in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from eos.commit_log import _log_table as table_module
from eos.commit_log import _own_commit as own_commit
from tests.support.logs import small_log


@pytest.fixture
def root(tmp_path):
    # With a space in the path: URL encoding must not break it.
    return tmp_path / "commit log"


@pytest.fixture
def log(root):
    """The log of sink "orders", with seven records."""
    return small_log(root)


@pytest.fixture(params=["alone", "by delta"])
def way(request, monkeypatch):
    """The way in which appends are committed, if there is a choice."""
    if request.param == "by delta":
        monkeypatch.setattr(table_module, "_FRESH_S", -1.0)
    return request.param


_BY_DELTA, _ALONE = table_module.write_deltalake, own_commit.commit


def replace_commit(
    monkeypatch: pytest.MonkeyPatch, function: Callable[[Callable[[], object]], object] | None
) -> None:
    """From now on call ``function`` for each commit, with the function that commits; None: stop.

    For both ways of committing; it returns the result of the commit, or nothing.
    """

    def by_delta(*args, **options):
        return function(partial(_BY_DELTA, *args, **options))

    def alone(*args, **options):
        return function(partial(_ALONE, *args, **options)) is not False

    monkeypatch.setattr(table_module, "write_deltalake", by_delta if function else _BY_DELTA)
    monkeypatch.setattr(own_commit, "commit", alone if function else _ALONE)
