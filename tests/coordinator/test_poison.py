"""Step 6: what must not be committed, one reason at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eos.coordinator import StageFacts, find_poison
from eos.ids import MessageId
from eos.summary import PartitionFigures, TaskError, TaskSummary

TOPIC = "persistent://public/default/t-partition-0"
PART = PartitionFigures(TOPIC, ("p",), 1, 1, 1, MessageId(1, 1), MessageId(1, 1))
GOOD = [TaskSummary(index, 7, 0, (TOPIC,), (PART,)) for index in range(2)]
ONCE = StageFacts(attempt_id=0, num_tasks=2)


def test_one_summary_for_each_task_of_a_stage_that_ran_once_is_clean():
    assert find_poison(GOOD, ONCE) is None
    assert find_poison([], StageFacts(attempt_id=0, num_tasks=0)) is None


@pytest.mark.parametrize(
    ("summaries", "stage", "why"),
    [
        (GOOD, None, "nothing is known"),
        (GOOD, StageFacts(attempt_id=1, num_tasks=2), "ran 2 times"),
        (GOOD[:1], ONCE, "1 summaries of 2 tasks"),
        ([*GOOD, GOOD[0]], StageFacts(attempt_id=0, num_tasks=3), "more than one summary"),
        ([GOOD[0], replace(GOOD[1], stage_id=8)], ONCE, "more than one stage"),
        ([GOOD[0], replace(GOOD[1], attempt_number=1)], ONCE, "ran 2 times"),
        ([GOOD[0], replace(GOOD[1], partitions=())], ONCE, "exactly to the partitions"),
        ([GOOD[0], replace(GOOD[1], registered=())], ONCE, "exactly to the partitions"),
        (
            [GOOD[0], replace(GOOD[1], error=TaskError("ConnectionLost", "gone", ""))],
            ONCE,
            "gone",
        ),
    ],
)
def test_everything_else_is_poison_and_says_why(summaries, stage, why):
    assert why in (find_poison(summaries, stage) or "")
