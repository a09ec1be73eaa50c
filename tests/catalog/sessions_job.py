"""Sessions that end with a mounted catalog. Its broker is not running.

python -m tests.catalog.sessions_job classic|connect
"""

from __future__ import annotations

import sys
import threading

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from eos import PulsarCatalog
from eos.errors import ConfigurationError


def main(kind: str) -> None:
    """Print the results, one a line."""
    if kind == "connect":
        spark = SparkSession.builder.remote("local[1]").getOrCreate()
        try:
            catalog_of(spark).mount()
        except ConfigurationError as error:
            print(error)
        spark.stop()
        return
    for _ in range(2):
        spark = new_session()
        say(spark)
        catalog_of(spark).mount()
        say(spark)
        spark.stop()
    leave_while_spark_asks(new_session())


def new_session() -> SparkSession:
    """Start a session with one core."""
    spark = (
        SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def catalog_of(spark: SparkSession) -> PulsarCatalog:
    """Make a catalog of a broker that is not running."""
    return PulsarCatalog(spark, "pulsar://127.0.0.1:1", "http://127.0.0.1:1")


def say(spark: SparkSession) -> None:
    """Print the error of a statement."""
    try:
        spark.sql("SHOW TABLES IN pulsar.`public/default`").collect()
    except AnalysisException as error:
        print(str(error).splitlines()[0])


def leave_while_spark_asks(spark: SparkSession) -> None:
    """End the process while Spark waits for an answer."""
    asked = threading.Event()
    catalog = catalog_of(spark)

    def never(_: str) -> list[str]:
        asked.set()
        threading.Event().wait()
        return []

    catalog.topics = never  # type: ignore[method-assign]
    catalog.mount()
    threading.Thread(target=say, args=(spark,), daemon=True).start()
    print("asked" if asked.wait(60) else "not asked")


if __name__ == "__main__":
    main(*sys.argv[1:])
