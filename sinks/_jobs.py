"""The jobs that write an epoch, told apart from all others, and when their tasks have ended."""

from __future__ import annotations

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
from eos.sinks._py4j_log import hide_bytes

_FLUSH_MS: Final = 10_000
_END_OF_TASKS_S: Final = 30.0


def spark_context(df: DataFrame) -> SparkContext:
    """The SparkContext behind ``df``, in a session that a sink can work in.

    Raises:
        ConfigurationError: no DataFrame, one of Spark Connect, or a session with speculation.
    """
    check_dataframe(df)
    hide_bytes()
    context = df.sparkSession.sparkContext
    # Asked in the JVM: PySpark's getConf() copies every setting over, which takes 10 ms.
    if context._jsc.sc().getConf().get("spark.speculation", "false").lower() == "true":
        raise ConfigurationError(
            "spark.speculation=true: a speculative copy of a task would write its rows twice.",
            hint="Set spark.speculation=false.",
        )
    return context


@dataclass(frozen=True)
class TaggedJobs:
    """The jobs that one attempt started, told from all others by a tag."""

    context: SparkContext
    tag: str

    def await_end(self) -> None:
        """Wait, within reason, until no task of these jobs runs any more.

        After a failure Spark cancels the other tasks and does not wait for them; one that still
        sends is harmless, and can at worst pin a partition.
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
    """Tag the jobs that the block starts; after an error in it, wait for their tasks to end."""
    jobs = TaggedJobs(context, f"eos-{uuid.uuid4()}")
    context.addJobTag(jobs.tag)
    try:
        yield jobs
    except BaseException:
        jobs.await_end()
        raise
    finally:
        context.removeJobTag(jobs.tag)
