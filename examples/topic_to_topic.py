"""Topic to topic: read JSON records with Spark, filter them, write them to another topic.

Fill the topic ``orders`` first (``examples/file_to_topic.py``), then run
``python examples/topic_to_topic.py``.
"""

from pyspark.sql import SparkSession

from eos import PulsarSink

spark = SparkSession.builder.master("local[2]").getOrCreate()
orders = (
    spark.readStream.format("pulsar")
    .options(serviceUrl="pulsar://localhost:6650", topic="orders", startingOffsets="earliest")
    .options(schema="auto")  # columns from the topic's own schema
    .load()
)
sink = PulsarSink(
    sink_id="large-orders",
    service_url="pulsar://localhost:6650",
    topic="large-orders",
    commit_log="/tmp/eos/log",
    create_topics=True,
    schema="json",
)
# Each message is read once and written once, over any number of crashes and restarts.
query = (
    orders.where("amount >= 100")
    .writeStream.foreachBatch(sink)
    .option("checkpointLocation", "/tmp/eos/checkpoints/large-orders")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
