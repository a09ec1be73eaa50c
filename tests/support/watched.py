"""A driver without broker and Spark, and a listener that records events."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from eos.commit_log import CommitLog
from eos.committer import Committer, EpochResult, Observer
from eos.events import EpochEnded, EpochEvent, EpochListener, StateChanged, StepEnded
from eos.participant import Participant
from eos.protocol import BATCH, Fate, Known
from examples.folder.participant import KIND, FolderParticipant

SINK = "orders"


@pytest.fixture(autouse=True)
def folder_kind(monkeypatch) -> None:
    """Simulate that the package with the folder participant is installed."""
    for where in ("eos.commit_log.schema", "eos.committer.participants"):
        monkeypatch.setattr(f"{where}.kind_of", {"folder": KIND}.get)


class Doubtful(FolderParticipant):
    """A folder whose commits prove nothing."""

    def commit(self, part, *, deadline_s, is_own):
        return Fate(Known.UNKNOWN, "nobody answers")


class Notes(EpochListener):
    """Records every event."""

    def __init__(self) -> None:
        self.events: list[EpochEvent] = []

    def note(self, event: EpochEvent) -> None:
        self.events.append(event)

    on_epoch_started = on_step_ended = on_state_changed = on_epoch_ended = note

    @property
    def states(self) -> list[str]:
        return [one.state.value for one in self.events if isinstance(one, StateChanged)]

    @property
    def steps(self) -> list[str]:
        """Labels of the ended steps; a step that an error ended has a ``!`` appended."""
        ended = [one for one in self.events if isinstance(one, StepEnded)]
        return [one.step.label + "!" * (not one.is_complete) for one in ended]

    @property
    def ends(self) -> list[EpochEnded]:
        return [one for one in self.events if isinstance(one, EpochEnded)]


class FolderDriver:
    """One run of a driver whose output is a folder; ``run`` behaves like a sink."""

    def __init__(
        self,
        root: Path,
        *listeners: EpochListener,
        sink_id: str = SINK,
        participant: Participant | None = None,
        **options: Any,
    ) -> None:
        self.root = root
        self.sink_id = sink_id
        self.observer = Observer(sink_id, listeners)
        self.log = CommitLog.open(root / "log", sink_id, on_append=self.observer.state_changed)
        self.participant = participant or FolderParticipant(root / sink_id)
        self.committer = Committer(self.log, [self.participant], **options)

    def run(
        self,
        epoch: str,
        rows: list[str],
        *,
        query_id: str = BATCH,
        before_write: Callable[[], object] = lambda: None,
        finish_later: bool = False,
    ) -> EpochResult:
        def plan(begun: Any) -> Any:
            def write() -> Any:
                (part,) = begun()
                before_write()
                return [[_store(part.staged, str(n), row) for n, row in enumerate(rows)]]

            return write

        with self.observer.epoch(query_id, epoch) as call:
            result = self.committer.run_epoch(
                query_id, epoch, plan, timer=call.timer, finish_later=finish_later
            )
            call.set_result(result)
        return result

    @property
    def files(self) -> list[str]:
        """The files that a reader finds."""
        found = self.root.joinpath(self.sink_id).glob("[!.]*/*")
        return sorted(path.read_text() for path in found)

    def close(self) -> None:
        self.committer.await_finished()
        self.observer.close()


def _store(folder: Path, name: str, row: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    folder.joinpath(name).write_text(row)
    return folder / name
