"""Batch backfill: write past days to a topic; a day that is already written is skipped.

Start a broker (``eos broker start``), put files with one JSON object per line into
``/tmp/eos/history``, then run ``python examples/batch_backfill.py``.
"""

from pyspark.sql import SparkSession

from eos import PulsarSink

spark = SparkSession.builder.master("local[2]").getOrCreate()
history = spark.read.schema("id LONG, day DATE, amount DOUBLE").json("/tmp/eos/history")
sink = PulsarSink(
    sink_id="history",
    service_url="pulsar://localhost:6650",
    topic="history",
    commit_log="/tmp/eos/log",
    create_topics=True,
    schema="json",
)
for row in history.select("day").distinct().orderBy("day").collect():
    # The epoch key, here the day, makes each write idempotent: run it again after a crash, or twice
    # by mistake, and nothing is duplicated.
    result = sink.write(history.where(history.day == row.day), epoch=row.day)
    print(row.day, result.status)  # written, or skipped
sink.close()
