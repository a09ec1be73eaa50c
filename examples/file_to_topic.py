"""Files to a topic: each row of the JSON files in a folder becomes one message, exactly once.

Start a broker (``eos broker start``), put files with one JSON object per line into
``/tmp/eos/orders``, then run ``python examples/file_to_topic.py``.
"""

from pyspark.sql import SparkSession

from eos import PulsarSink

spark = SparkSession.builder.master("local[2]").getOrCreate()
orders = spark.readStream.schema("id LONG, customer STRING, amount DOUBLE").json("/tmp/eos/orders")
sink = PulsarSink(
    sink_id="orders",  # a stable name of your choice
    service_url="pulsar://localhost:6650",
    topic="orders",
    commit_log="/tmp/eos/log",
    create_topics=True,
    schema="json",
)
query = (
    orders.withColumn("__key", orders.customer)
    .writeStream.foreachBatch(sink)
    # Spark notes there which files it has read: a later run writes only those that are new.
    .option("checkpointLocation", "/tmp/eos/checkpoints/orders")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
