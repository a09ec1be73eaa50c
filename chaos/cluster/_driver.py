"""The driver program: runs a workload until its standard input is closed.

python -m eos.chaos.cluster._driver JOB_AS_JSON
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from eos.chaos.cluster.spark_env import local_cluster
from eos.chaos.job import Job, load

_STOP_GRACE_S = 20.0


def main(job: Job) -> None:
    """Run the query; return when it is asked to stop.

    Raises:
        Exception: the error of the query.
    """
    begun: list[StreamingQuery] = []
    # First: a workload may never return.
    threading.Thread(target=_await_end, args=(begun,), daemon=True).start()
    workload = load(job.workload)
    spark = _session(job)
    query = workload(spark, job)
    begun.append(query)
    query.awaitTermination()
    spark.stop()


def _await_end(begun: list[StreamingQuery]) -> None:
    # Closed when the harness asks, and also when it has ended, however: no driver is left.
    # Not sys.stdin: its lock would be held at interpreter shutdown.
    while os.read(0, 1):
        pass
    too_late = threading.Timer(_STOP_GRACE_S, lambda: os.kill(os.getpid(), signal.SIGKILL))
    too_late.daemon = True
    too_late.start()
    for query in begun:
        query.stop()


def _session(job: Job) -> SparkSession:
    builder = local_cluster(f"chaos-{job.sink_id}", job.scratch_dir, rows_per_step=100)
    builder = (
        builder.config("spark.sql.shuffle.partitions", str(job.tasks))
        .config("spark.sql.streaming.minBatchesToRetain", "100000")
        # Compiling small queries costs each short-lived driver three seconds (measured).
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    )
    for name, value in job.spark_conf.items():
        builder = builder.config(name, value)
        print(f"chaos: {name}={value}", flush=True)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


if __name__ == "__main__":
    main(Job.from_json(sys.argv[1]))
