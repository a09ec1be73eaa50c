"""A root, and a log with a little history in it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from eos.commit_log import _own_commit as own_commit
from eos.commit_log import _table as table_module
from tests.support.logs import small_log


@pytest.fixture
def root(tmp_path):
    # A blank in the path: URL encoding must not get in the way.
    return tmp_path / "commit log"


@pytest.fixture
def log(root):
    """Of sink "orders", seven records."""
    return small_log(root)


@pytest.fixture(params=["alone", "by delta"])
def way(request, monkeypatch):
    """In which of the two ways appends are committed, where there is a choice."""
    if request.param == "by delta":
        monkeypatch.setattr(table_module, "_FRESH_S", -1.0)
    return request.param


_BY_DELTA, _ALONE = table_module.write_deltalake, own_commit.commit


def replace_commit(
    monkeypatch: pytest.MonkeyPatch, function: Callable[[Callable[[], object]], object] | None
) -> None:
    """From now on ``function`` is called for each commit, with what would commit; None: nobody is.

    In either way; what it returns is what the commit has said, or nothing.
    """

    def by_delta(*args, **options):
        return function(partial(_BY_DELTA, *args, **options))

    def alone(*args, **options):
        return function(partial(_ALONE, *args, **options)) is not False

    monkeypatch.setattr(table_module, "write_deltalake", by_delta if function else _BY_DELTA)
    monkeypatch.setattr(own_commit, "commit", alone if function else _ALONE)
