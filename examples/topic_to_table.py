"""Topic to table: append the JSON records of a topic to a Delta table, each one once.

Fill the topic ``orders`` first (``examples/file_to_topic.py``), then run
``python examples/topic_to_table.py``.
"""

from pyspark.sql import SparkSession

from eos import DeltaSink

spark = SparkSession.builder.master("local[2]").getOrCreate()
orders = (
    spark.readStream.format("pulsar")
    .options(serviceUrl="pulsar://localhost:6650", topic="orders", startingOffsets="earliest")
    .options(schema="auto")  # columns from the topic's own schema
    .load()
)
# The table is created with the columns of the first epoch.
sink = DeltaSink(sink_id="orders-table", table="/tmp/eos/orders-table", commit_log="/tmp/eos/log")
query = (
    orders.writeStream.foreachBatch(sink)
    .option("checkpointLocation", "/tmp/eos/checkpoints/orders-table")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
