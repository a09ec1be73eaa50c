"""Decides whether the tasks' writes may be committed (I4).

Spark does not report how often a task ran: ``TaskContext`` shows attempt 0 again when a stage runs
again after a fetch failure, and the events about it are dropped when listeners are slow (both
measured, the second with the rows of both runs committed). So the tasks report it themselves, in a
roll call (``roll_call``): each run answers before it sends its first row, also a run that Spark has
forgotten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from eos.task_report import Answer, TaskSummary


def find_poison(summaries: Sequence[TaskSummary], answers: Sequence[Answer]) -> str | None:
    """Return why these writes must not be committed, or None if they may be.

    Args:
        summaries: of the runs whose results Spark accepted.
        answers: all answers given before the roll call was closed.
    """
    failed = next(filter(None, map(_poison_of_task, summaries)), None)
    if failed is not None:
        return failed
    twice = _first_twice(summary.spark_partition for summary in summaries)
    if twice is not None:
        return f"more than one summary of Spark partition {twice}"
    counts: dict[str, int] = {}
    for topic, count in (pair for summary in summaries for pair in summary.counts):
        if counts.setdefault(topic, count) != count:
            return f"{topic} got more partitions meanwhile: a key may have gone to two of them"
    # Each run that may have sent anything, and no other run, must have its summary here.
    expected = Counter(answer for summary in summaries if (answer := summary.answer) is not None)
    given = Counter(answers)
    unheard = next(iter(expected - given), None)
    if unheard is not None:
        return f"the answer of Spark partition {unheard.spark_partition} is not in the roll call"
    extra = next(iter(given - expected), None)
    if extra is not None:
        return (
            f"the task of Spark partition {extra.spark_partition} ran more than once: rows may be "
            "there twice"
        )
    return None


def _first_twice(numbers: Iterable[int]) -> int | None:
    return next((number for number, count in Counter(numbers).items() if count > 1), None)


def _poison_of_task(summary: TaskSummary) -> str | None:
    where = f"task of Spark partition {summary.spark_partition}"
    if summary.error is not None:
        return f"{where}: {summary.error.message}"
    sent_to = {partition.topic for partition in summary.partitions}
    if sent_to != set(summary.registered):
        return f"{where} did not send exactly to the partitions that it registered"
    if sent_to and summary.answer is None:
        return f"{where} sent rows without an answer in the roll call"
    return None
