"""Sessions that end, and sessions that can't have a mounted catalog, in processes of their own."""

from __future__ import annotations

import pytest

from tests.support.connect import run_connect_job

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_a_session_that_ends_leaves_nothing_to_the_next_one_and_the_process_ends_too():
    lines = run_connect_job("tests.catalog.sessions_job", "classic").splitlines()
    assert len(lines) == 5
    for before, mounted in (lines[0:2], lines[2:4]):
        assert "Nested databases" in before  # Spark's own: there is no such catalog
        assert mounted.startswith("Can't connect to http://127.0.0.1:1")
    assert lines[4] == "asked"


def test_spark_connect_is_told_what_it_has_instead():
    (line,) = run_connect_job("tests.catalog.sessions_job", "connect").splitlines()
    assert line == (
        "A catalog can't be mounted with Spark Connect, only in a classic session. "
        "Use PulsarCatalog.register, which makes tables there, too."
    )
