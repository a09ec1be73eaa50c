"""A catalog, and the command line ``eos catalog``, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eos import PulsarCatalog
from eos.catalog.cli import main
from eos.testing import PulsarStandalone
from tests.support.command_line import Ended, command_line


@pytest.fixture
def catalog(
    spark: SparkSession, pulsar_standalone: PulsarStandalone, tmp_path: Path
) -> Iterator[PulsarCatalog]:
    """A catalog; the tables that it registers are dropped after the test."""
    yield PulsarCatalog(
        spark,
        pulsar_standalone.service_url,
        pulsar_standalone.admin_url,
        commit_log=str(tmp_path / "log"),
    )
    for database in ("public_default", "default"):
        if spark.catalog.databaseExists(database):
            for table in spark.catalog.listTables(database):
                spark.sql(f"DROP TABLE IF EXISTS {database}.`{table.name}`")


@pytest.fixture
def cli(monkeypatch, capsys) -> Callable[..., Ended]:
    """Runs ``cli("list", "--json")``, without the environment."""
    return command_line("eos catalog", main, monkeypatch, capsys)


@pytest.fixture
def on_broker(cli, pulsar_standalone: PulsarStandalone, monkeypatch) -> Callable[..., Ended]:
    """Runs the same with a broker in its environment."""
    monkeypatch.setenv("EOS_SERVICE_URL", pulsar_standalone.service_url)
    monkeypatch.setenv("EOS_ADMIN_URL", pulsar_standalone.admin_url)
    return cli
