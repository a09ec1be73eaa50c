"""Step 6: may what the tasks wrote be committed? (I4)

``TaskContext`` does not show that a stage ran again after a fetch failure: every attempt number is
0 then, and rows are in the transaction twice (measured). Only the driver's view of the stage does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from eos.summary import TaskSummary


@dataclass(frozen=True)
class StageFacts:
    """What the driver's scheduler knows of the stage that wrote, after all its events came.

    ``attempt_id`` counts from 0; ``num_tasks`` is the stage's number of partitions.
    """

    attempt_id: int
    num_tasks: int


def find_poison(summaries: Sequence[TaskSummary], stage: StageFacts | None) -> str | None:
    """Why these writes must not be committed, or None when they may be.

    ``stage`` None means that nothing is known of the stage; unknown counts as poisoned.
    """
    if stage is None:
        return "nothing is known of the stage that wrote"
    if stage.attempt_id != 0:
        return f"the stage ran {stage.attempt_id + 1} times: rows may be there twice"
    if stage.num_tasks != len(summaries):
        return f"{len(summaries)} summaries of {stage.num_tasks} tasks"
    twice = [n for n, count in Counter(s.spark_partition for s in summaries).items() if count > 1]
    if twice:
        return f"more than one summary of Spark partition {twice[0]}"
    if len({summary.stage_id for summary in summaries}) > 1:
        return "the summaries come from more than one stage"
    return next(filter(None, map(_poison_of_task, summaries)), None)


def _poison_of_task(summary: TaskSummary) -> str | None:
    where = f"task of Spark partition {summary.spark_partition}"
    if summary.error is not None:
        return f"{where}: {summary.error.message}"
    if summary.attempt_number != 0:
        return f"{where} ran {summary.attempt_number + 1} times"
    sent_to = {partition.topic for partition in summary.partitions}
    if sent_to != set(summary.registered):
        return f"{where} did not send exactly to the partitions that it registered"
    return None
