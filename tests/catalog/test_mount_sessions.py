"""Sessions that end, and sessions that can't have a mounted catalog, in separate processes."""

from __future__ import annotations

import pytest

from tests.support.connect import run_connect_job

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_a_mounted_catalog_ends_with_its_session():
    lines = run_connect_job("tests.catalog.sessions_job", "classic").splitlines()
    assert len(lines) == 5
    for before, mounted in (lines[0:2], lines[2:4]):
        assert "Nested databases" in before  # Spark's own error: the catalog does not exist
        assert mounted.startswith("Can't connect to http://127.0.0.1:1")
    assert lines[4] == "asked"


def test_spark_connect_is_refused_with_the_alternative():
    (line,) = run_connect_job("tests.catalog.sessions_job", "connect").splitlines()
    assert line == (
        "A catalog can't be mounted with Spark Connect, only in a classic session. "
        "Use PulsarCatalog.register, which makes tables there, too."
    )
