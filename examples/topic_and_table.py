"""Topic and table: each epoch of a stream is committed to both, or aborted in both.

Start a broker (``eos broker start``), put files with one JSON object per line into
``/tmp/eos/orders``, then run ``python examples/topic_and_table.py``.
"""

from pyspark.sql import SparkSession

from eos import DeltaSink, PulsarSink, all_or_nothing

spark = SparkSession.builder.master("local[2]").getOrCreate()
orders = spark.readStream.schema("id LONG, customer STRING, amount DOUBLE").json("/tmp/eos/orders")
# If the driver dies between the two commits, the next run, or ``eos recovery resolve``, completes
# the second one.
both = all_or_nothing(
    PulsarSink(
        sink_id="both",
        service_url="pulsar://localhost:6650",
        topic="both",
        commit_log="/tmp/eos/log",
        create_topics=True,
        schema="json",
    ),
    DeltaSink(sink_id="both", table="/tmp/eos/both-table", commit_log="/tmp/eos/log"),
)
query = (
    orders.writeStream.foreachBatch(both)
    .option("checkpointLocation", "/tmp/eos/checkpoints/both")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
