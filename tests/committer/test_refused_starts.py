"""A start that is refused leaves a driver that writes alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from eos.commit_log import CommitLog
from eos.committer import Committer, Policies
from eos.delta.participant import DeltaParticipant
from eos.errors import EosError, InputError, RewoundCheckpoint, UnfinishedEpoch
from eos.protocol import BATCH, State
from tests.testing.outputs import TableOutput

QUERY = "11111111-2222-3333-4444-555555555555"
PLANNED_AT = datetime(2026, 11, 30, tzinfo=UTC)


class Driver:
    def __init__(self, folder: Path, **policies: str) -> None:
        self._table = TableOutput(folder / "table")
        self.log = CommitLog.open(folder / "log", "contract")
        participant = self._table.participant()
        assert isinstance(participant, DeltaParticipant)
        self._committer = Committer(
            self.log, [participant], deadline_s=5, policies=Policies(**policies)
        )

    def run(
        self,
        epoch: int | str,
        *,
        query: str = QUERY,
        rows: tuple[str, ...] = ("x",),
        error: EosError | None = None,
        planned_at: datetime = PLANNED_AT,
    ) -> str:
        def check() -> None:
            if error is not None:
                raise error

        result = self._committer.run_epoch(
            query,
            str(epoch),
            lambda begun: lambda: [self._table.write(begun()[0], rows)],
            check=check,
            planned_at=lambda: planned_at,
        )
        return result.status

    def states(self) -> list[State]:
        return [record.state for record in self.log.records()]


WRONG_COLUMNS = InputError("A column is missing.")


@pytest.mark.parametrize(
    ("start", "error"),
    [
        ({"epoch": 0, "planned_at": PLANNED_AT + timedelta(hours=1)}, RewoundCheckpoint),
        ({"epoch": 9}, UnfinishedEpoch),
        ({"epoch": 2, "error": WRONG_COLUMNS}, InputError),
        ({"epoch": "day", "query": BATCH, "error": WRONG_COLUMNS}, InputError),
        ({"epoch": 0, "query": QUERY.replace("1", "2"), "error": WRONG_COLUMNS}, InputError),
    ],
    ids=["old checkpoint", "gap", "wrong columns", "wrong columns of a batch", "of another query"],
)
def test_it_is_not_fenced(tmp_path, start, error):
    live = Driver(tmp_path)
    live.run(0)
    live.run(1)
    before = live.states()
    with pytest.raises(error):
        Driver(tmp_path).run(**start)
    assert live.states() == before
    assert live.run(2) == "written"


@pytest.mark.parametrize("query", [QUERY, BATCH])
def test_it_may_be_mended_and_repeated_while_others_write(tmp_path, query):
    live, second = Driver(tmp_path), Driver(tmp_path)
    live.run(0)
    epoch = 1 if query == QUERY else "day"
    with pytest.raises(InputError):
        second.run(epoch, query=query, error=WRONG_COLUMNS)
    live.run(1)
    live.run(2)
    assert second.run(3 if query == QUERY else "day", query=query) == "written"


def test_wrong_columns_of_a_first_epoch_are_recorded_so_that_none_follows(tmp_path):
    # Nothing else would show that its rows are missing, if user code swallows the error.
    with pytest.raises(InputError):
        Driver(tmp_path).run(0, error=WRONG_COLUMNS)
    with pytest.raises(UnfinishedEpoch, match="Epoch 0"):
        Driver(tmp_path).run(1)


@pytest.mark.parametrize("policies", [{}, {"on_gap": "continue"}])
def test_an_epoch_whose_columns_were_wrong_is_not_passed_over(tmp_path, policies):
    Driver(tmp_path).run(0)
    with pytest.raises(InputError):
        Driver(tmp_path, **policies).run(1, error=WRONG_COLUMNS)
    with pytest.raises(UnfinishedEpoch, match="poch 1"):
        Driver(tmp_path, **policies).run(2)
