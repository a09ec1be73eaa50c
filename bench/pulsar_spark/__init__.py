"""StreamNative's connector for Spark, pulsar-spark, as a peer: at-least-once, in the JVM.

Its sources do not compile against Spark 4.2. It is built once, into the user's cache, from them and
a patch (``spark-4.2.patch``) that follows what Spark has renamed and leaves its own work as it is.
"""

from __future__ import annotations

from bench.pulsar_spark._build import SOURCES_VARIABLE, built_jars
from bench.pulsar_spark._write import stream, write

__all__ = ["SOURCES_VARIABLE", "built_jars", "stream", "write"]
