"""Step 6: each reason why a transaction must not be committed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eos.ids import MessageId
from eos.pulsar.roll_call import find_poison
from eos.task_report import Answer, PartitionFigures, TaskError, TaskSummary

TOPIC = "persistent://public/default/t-partition-0"
PART = PartitionFigures(TOPIC, ("p",), 1, 1, 1, MessageId(1, 1), MessageId(1, 1))
GOOD = [TaskSummary(index, f"run-{index}", (TOPIC,), (PART,)) for index in range(2)]
ALL = [Answer(index, f"run-{index}") for index in range(2)]
WITHOUT_ROWS = TaskSummary(2, "", (), ())


def test_one_summary_and_one_answer_for_each_task_with_rows_is_clean():
    assert find_poison(GOOD, ALL) is None
    assert find_poison([*GOOD, WITHOUT_ROWS], ALL) is None


def test_no_task_at_all_and_no_answer_is_an_empty_epoch():
    assert find_poison([], []) is None


@pytest.mark.parametrize(
    ("summaries", "answers", "why"),
    [
        (GOOD, ALL[:1], "partition 1 is not in the roll call"),
        (GOOD, [*ALL, Answer(1, "another run")], "partition 1 ran more than once"),
        (GOOD, [*ALL, ALL[1]], "partition 1 ran more than once"),
        (GOOD, [ALL[0], Answer(1, "another run")], "partition 1 is not in the roll call"),
        ([*GOOD, WITHOUT_ROWS], [*ALL, Answer(2, "r")], "partition 2 ran more than once"),
        (GOOD[:1], ALL, "partition 1 ran more than once"),
        ([], ALL[:1], "partition 0 ran more than once"),
        (GOOD, [*ALL, Answer(-1, "")], "partition -1 ran more than once"),
        ([*GOOD, GOOD[0]], ALL, "more than one summary"),
        ([GOOD[0], replace(GOOD[1], run_id="")], ALL[:1], "without an answer"),
        ([GOOD[0], replace(GOOD[1], partitions=())], ALL, "exactly to the partitions"),
        ([GOOD[0], replace(GOOD[1], registered=())], ALL, "exactly to the partitions"),
        ([GOOD[0], replace(GOOD[1], error=TaskError("ConnectionLost", "gone", ""))], ALL, "gone"),
    ],
)
def test_everything_else_is_poison_with_a_reason(summaries, answers, why):
    assert why in (find_poison(summaries, answers) or "")


def test_topics_that_got_more_partitions_are_poison():
    """A key may have gone to different partitions; found when rows name their topics."""
    first, second = (replace(one, partition_counts=((TOPIC, 2),)) for one in GOOD)
    assert find_poison([first, second], ALL) is None
    other = replace(second, partition_counts=((TOPIC, 4),))
    assert "got more partitions meanwhile" in str(find_poison([first, other], ALL))
    assert TaskSummary.from_json(other.to_json()) == other
