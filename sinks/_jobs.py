"""Checks the Spark session, tags an attempt's jobs, and waits until their tasks have ended."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import DataFrame

from eos.errors import ConfigurationError
from eos.retry import Patience
from eos.sinks._arguments import check_dataframe

_FLUSH_MS: Final = 10_000
_END_OF_TASKS_S: Final = 30.0

_PY4J_LOGGERS: Final = ("py4j.clientserver", "py4j.java_gateway")
_PY4J_BYTES: Final = re.compile(r"^j[A-Za-z0-9+/=]+$", re.MULTILINE)


class _WithoutBytes(logging.Filter):
    """Removes byte arrays from py4j's DEBUG log: it shows every call into the JVM, byte arrays as
    base64. Tasks are such arrays, and contain the credentials of executors."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = _PY4J_BYTES.sub("j<bytes>", record.getMessage()), ()
        return True


_WITHOUT_BYTES: Final = _WithoutBytes()


def spark_context(df: DataFrame) -> SparkContext:
    """Return the SparkContext of ``df``, after checking that a sink can work with its session.

    Raises:
        ConfigurationError: not a DataFrame, one of Spark Connect, or a session with speculation.
    """
    check_dataframe(df)
    for name in _PY4J_LOGGERS:
        logging.getLogger(name).addFilter(_WITHOUT_BYTES)  # which does nothing the second time
    context = df.sparkSession.sparkContext
    # From the JVM: PySpark's getConf() copies every setting, which takes 10 ms.
    if context._jsc.sc().getConf().get("spark.speculation", "false").lower() == "true":
        raise ConfigurationError(
            "spark.speculation=true is not supported: a speculative task would write rows twice.",
            hint="Set spark.speculation=false.",
        )
    return context


@dataclass(frozen=True)
class TaggedJobs:
    """The Spark jobs of one attempt, recognised by their tag."""

    context: SparkContext
    tag: str

    def await_end(self) -> None:
        """Wait up to 30 s until no task of these jobs runs.

        After a failure Spark cancels the other tasks and does not wait for them. A task that still
        sends is harmless; at worst it pins a partition.
        """
        patience = Patience(_END_OF_TASKS_S)
        while self._active_tasks() and not patience.is_over:
            patience.pause()

    def _active_tasks(self) -> int:
        tracker = self.context.statusTracker()
        try:
            self._scala.listenerBus().waitUntilEmpty(_FLUSH_MS)
            infos = [tracker.getStageInfo(stage_id) for stage_id in self._stage_ids()]
        except Py4JError:
            return 0
        return sum(info.numActiveTasks for info in infos if info is not None)

    def _stage_ids(self) -> list[int]:
        tracker = self.context.statusTracker()
        jobs = self._scala.statusTracker().getJobIdsForTag(self.tag)
        infos = [tracker.getJobInfo(job_id) for job_id in jobs]
        return [stage_id for info in infos if info is not None for stage_id in info.stageIds]

    @property
    def _scala(self) -> Any:
        return self.context._jsc.sc()


@contextmanager
def tagged_jobs(context: SparkContext) -> Iterator[TaggedJobs]:
    """Tag the jobs that the block starts; after an error, wait for their tasks to end."""
    jobs = TaggedJobs(context, f"eos-{uuid.uuid4()}")
    context.addJobTag(jobs.tag)
    try:
        yield jobs
    except BaseException:
        jobs.await_end()
        raise
    finally:
        context.removeJobTag(jobs.tag)
