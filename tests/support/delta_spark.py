"""delta-spark, the independent reader and writer of Delta tables."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from eos.testing.maven import delta_jars

PYSPARK = "4.2"


def delta_spark_jars() -> str:
    """Return the jars as ``spark.jars`` takes them, or skip the test: they fit one PySpark only."""
    if not version("pyspark").startswith(PYSPARK):
        pytest.skip(f"delta-spark's jars need PySpark {PYSPARK}")
    return ",".join(map(str, delta_jars()))
