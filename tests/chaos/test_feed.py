"""The feed ends when all epochs are done, and not while a fault may undo one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from eos.chaos._feed import Feed, FileInputs
from eos.chaos._query_shapes import BASE_S
from eos.chaos._topic_inputs import TopicInputs
from eos.chaos.checker.history import Record
from eos.chaos.job import Job
from eos.chaos.planning import only


class Script:
    """Supervisor and nemesis in one: each check runs the next step."""

    def __init__(self, *steps: Callable[[Script], object]) -> None:
        self.steps = list(steps)
        self.is_busy = False
        self.next_fault_at = 1_000

    def check(self) -> None:
        if self.steps:
            self.steps.pop(0)(self)

    def progress(self) -> None:
        pass

    def epoch_begins(self, epoch: int) -> None:
        pass

    def may_begin(self, epoch: int) -> bool:
        return epoch <= self.next_fault_at


def feed_in(folder: Path) -> Feed:
    (folder / "input").mkdir()
    for name in ("offsets", "commits"):
        (folder / name).mkdir()
    job = Job("m:f", "", "", "t", "s", "", str(folder), str(folder / "input"), "")
    schedule = replace(only("deaf"), epochs=2)
    return Feed(job, schedule, [[], []], FileInputs(job, schedule))


def noted(folder: Path, *epochs: int) -> None:
    """Let the checkpoint have exactly these finished epochs."""
    for path in (folder / "commits").iterdir():
        path.unlink()
    for epoch in epochs:
        (folder / "offsets" / str(epoch)).write_text(f'v1\n{{}}\n{{"logOffset":{epoch}}}\n')
        (folder / "commits" / str(epoch)).touch()


def test_feed_waits_for_an_epoch_that_a_fault_undoes(tmp_path):
    feed = feed_in(tmp_path)
    script = Script(
        lambda s: setattr(s, "is_busy", True),
        lambda _: noted(tmp_path, 0, 1),
        lambda _: noted(tmp_path, 0),
        lambda s: setattr(s, "is_busy", False),
        lambda _: None,
        lambda _: noted(tmp_path, 0, 1),
    )
    feed.run(script, script, lambda: None)
    assert not script.steps
    assert feed.given == 2


def test_query_without_its_checkpoint_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr("eos.chaos._feed.EPOCH_TIMEOUT_S", 0.05)
    feed = feed_in(tmp_path)
    with pytest.raises(TimeoutError, match=r"input 0 is not done after 0 s$"):
        feed.run(Script(), Script(), lambda: None)
    feed._job = replace(feed._job, checkpoint=str(tmp_path / "nowhere"))
    with pytest.raises(TimeoutError, match="after 0 s: no query has its checkpointLocation in"):
        feed.run(Script(), Script(), lambda: None)


def test_a_fault_that_needs_more_epochs_gets_them_before_the_next_fault(tmp_path, monkeypatch):
    monkeypatch.setattr("eos.chaos._feed._STARVED_S", 0.2)
    monkeypatch.setattr("eos.chaos._feed.EPOCH_TIMEOUT_S", 60.0)
    feed = feed_in(tmp_path)

    def end_when_both_are_given(script: Script) -> None:
        if feed.given == 2:
            noted(tmp_path, 0, 1)
        else:
            script.steps.append(end_when_both_are_given)

    script = Script(end_when_both_are_given)
    script.next_fault_at = 0
    feed.run(script, script, lambda: None)
    assert feed.given == 2


@pytest.mark.parametrize("shape", ["windowed", "stream"])
def test_a_record_that_the_source_steps_over_is_expected(tmp_path, shape):
    topic = "persistent://public/default/in-partition-0"
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    spans = [("earliest", "1:10", 0), ("1:20", "1:30", BASE_S + 1), ("1:30", "1:31", BASE_S + 99)]
    for epoch, (start, to, watermark_s) in enumerate(spans):
        offset = {"partitions": {topic: {"from": start, "to": to}}}
        lines = ["v1", json.dumps({"batchWatermarkMs": 1000 * watermark_s}), json.dumps(offset)]
        (tmp_path / "offsets" / str(epoch)).write_text("\n".join(lines))
        (tmp_path / "commits" / str(epoch)).touch()
    paths = {"checkpoint": str(tmp_path), "input_dir": "", "scratch_dir": ""}
    job = Job("m:f", "", "", "t", "s", "", **paths, shape=shape, input_topic=topic)
    broker = SimpleNamespace(admin=lambda *_: None)
    inputs = TopicInputs(job, only("deaf"), broker)
    # The window of the last record is still open.
    numbers = {"0/0": (1, 5), "1/0": (1, 15), "2/0": (1, 25), "200/0": (1, 30)}
    for name, place in numbers.items():
        inputs._places[name] = (topic, place)
        inputs._ends.append({topic: place})
    records = [[Record(name, str(n), n, input=n)] for n, name in enumerate(numbers)]
    feed = Feed(job, only("deaf"), records, inputs)
    feed.given = len(records)
    expected = {one.id: one.epoch for one in feed.expected()}
    assert expected.get("1/0") == "2"
    assert ("200/0" in expected) is (shape == "stream")
