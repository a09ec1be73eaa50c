"""Delta's own writer changes the table during an epoch: between staging and PREPARED, between
PREPARED and the commit, and after it. No row is lost, no row is there twice."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from deltalake import DeltaTable

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer import Committer
from eos.errors import ConfigurationError, InDoubt, NewCluster
from eos.protocol import BATCH, State
from eos.recovery.decide import decide
from eos.recovery.resolve import resolve
from eos.steps import Step
from tests.testing.outputs import TableOutput

MAPPED = (
    "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name', "
    "'delta.minReaderVersion' = '2', 'delta.minWriterVersion' = '5')"
)
MARKED = "ALTER TABLE {} SET TBLPROPERTIES ('delta.enableDeletionVectors' = true)"
OLD = ["a1", "a2"]
ROWS = {
    # Name -> SQL, and the rows of the epoch before that are left.
    "delete": (["DELETE FROM {} WHERE value = 'a1'"], ["a2"]),
    "delete by a deletion vector": ([MARKED, "DELETE FROM {} WHERE value = 'a1'"], ["a2"]),
    "delete of all": (["DELETE FROM {}"], []),
    "update": (["UPDATE {} SET value = 'x' WHERE value = 'a1'"], ["a2", "x"]),
    "merge": (
        [
            "MERGE INTO {} t USING (SELECT 'a1' AS v UNION ALL SELECT 'n') s ON s.v = t.value "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (value) VALUES (s.v)"
        ],
        ["a2", "n"],
    ),
    "optimize": (["INSERT INTO {} VALUES ('i')", "OPTIMIZE {}"], ["a1", "a2", "i"]),
    "a new column": (["ALTER TABLE {} ADD COLUMN (more STRING)"], OLD),
    "restore": (["RESTORE {} TO VERSION AS OF 0"], []),
    "overwrite": (["INSERT OVERWRITE {} VALUES ('o')"], ["o"]),
    "vacuum": (["VACUUM {} RETAIN 0 HOURS"], OLD),
    "checkpoint of it all": (
        [
            "ALTER TABLE {} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')",
            "DELETE FROM {} WHERE value = 'a1'",
        ],
        ["a2"],
    ),
}
DEMANDS = {
    "column mapping": ([MAPPED], "column mapping by name"),
    "a renamed column": ([MAPPED, "ALTER TABLE {} RENAME COLUMN value TO other"], "column mapping"),
    "a constraint": (["ALTER TABLE {} ADD CONSTRAINT c CHECK (value <> 'b1')"], "constraint c"),
}


@pytest.fixture
def output(tmp_path) -> TableOutput:
    return TableOutput(tmp_path / "table")


@pytest.fixture
def do(ask, output) -> Callable[[list[str]], Callable[[], None]]:
    """Runs these statements by Delta's own writer, once."""

    def made(statements: list[str]) -> Callable[[], None]:
        left = [statements]

        def run() -> None:
            if left:
                for one in left.pop():
                    ask(one.format(f"delta.`{output.uri}`"))

        return run

    return made


@pytest.fixture
def write(output, tmp_path):
    """Writes an epoch of two rows; calls a function after the staging, or after the decision."""

    def run(epoch: str, *, staged=lambda: None, decided=lambda: None):
        log = CommitLog.open(tmp_path / "log", "contract")
        committer = Committer(log, [output.participant()], deadline_s=1)

        def plan(begun):
            def writing():
                report = output.write(begun()[0], [f"{epoch}1", f"{epoch}2"])
                staged()
                return [report]

            return writing

        with failpoints.armed(Step.PREPARE, decided):
            committer.run_epoch(BATCH, epoch, plan)
        committer.close()

    return run


def values(output: TableOutput) -> list[str]:
    table = DeltaTable(output.uri)
    return sorted(
        row for batch in table.scan(columns=["value"]) for row in batch["value"].to_pylist()
    )


@pytest.fixture
def states(tmp_path):
    log = lambda: CommitLog.open_read_only(tmp_path / "log", "contract").records()  # noqa: E731
    return lambda: [record.state for record in log() if record.epoch == "b"]


# Each statement of Spark's takes seconds: the short suite has one of each kind.
SHORT = {("delete by a deletion vector", "decided"), ("optimize", "staged"), ("vacuum", "decided")}


@pytest.mark.parametrize(
    ("what", "moment"),
    [
        pytest.param(
            what,
            moment,
            marks=pytest.mark.broker if (what, moment) in SHORT else pytest.mark.chaos,
        )
        for what in ROWS
        for moment in ("staged", "decided", "after")
    ],
)
def test_changes_of_the_table_during_an_epoch_neither_lose_nor_duplicate_rows(
    output, write, do, recovery, tmp_path, states, what, moment
):
    statements, left = ROWS[what]
    write("a")
    if moment == "after":
        write("b")
        do(statements)()
    else:
        write("b", **{moment: do(statements)})
    new = (
        []
        if moment == "after" and what in ("delete of all", "restore", "overwrite")
        else ["b1", "b2"]
    )
    assert values(output) == sorted([*left, *new])
    # A vacuum without retention deletes the staged files: the epoch runs again.
    again = what == "vacuum" and moment != "after"
    assert (State.ABORTED in states(), states()[-1]) == (again, State.COMMITTED)
    write("c")
    assert values(output) == sorted([*left, *new, "c1", "c2"])
    ended = recovery("verify", "--commit-log", tmp_path / "log")
    lost = what in ("restore", "overwrite")
    whole = what in ("a new column", "vacuum", "optimize")
    assert ended.code == (1 if lost else 0), ended.out
    assert (
        "Every committed epoch is there, complete, without duplicates." in ended.out
    ) is whole, ended.out
    for operation in ("DELETE", "UPDATE", "MERGE", "OPTIMIZE", "RESTORE"):
        if what.startswith(operation.lower()):
            assert operation in ended.out
    if what == "overwrite":
        assert "WRITE in mode Overwrite" in " ".join(ended.out.split())


@pytest.mark.chaos
@pytest.mark.parametrize("what", DEMANDS)
def test_a_new_requirement_is_named_and_a_person_can_continue(
    output, write, do, tmp_path, states, what
):
    statements, named = DEMANDS[what]
    write("a")
    with pytest.raises(ConfigurationError, match=named):
        write("b", staged=do(statements))
    assert states()[-1] is State.ABORTED
    count = DeltaTable(output.uri).count()
    assert count == 2


@pytest.mark.chaos
@pytest.mark.parametrize("what", DEMANDS)
def test_a_change_after_the_decision_leaves_it_in_doubt_by_name(
    output, write, do, tmp_path, states, what
):
    statements, named = DEMANDS[what]
    write("a")
    with pytest.raises(InDoubt, match=named):
        write("b", decided=do(statements))
    with pytest.raises(InDoubt, match=named):
        resolve("contract", commit_log=tmp_path / "log", deadline_s=1)
    if what == "a constraint":
        do(["ALTER TABLE {} DROP CONSTRAINT c"])()
        resolve("contract", commit_log=tmp_path / "log", deadline_s=1)
        assert values(output) == ["a1", "a2", "b1", "b2"]
        return
    choice = {"epoch": "b", "verdict": "aborted", "because": "mapped", "by": "ada"}
    decide("contract", commit_log=tmp_path / "log", **choice)
    assert states()[-1] is State.ABORTED
    assert DeltaTable(output.uri).count() == 2


@pytest.mark.chaos
def test_a_table_replaced_during_an_epoch_gets_no_files(output, write, do):
    write("a")
    replaced = ["CREATE OR REPLACE TABLE {} USING delta AS SELECT 'new' AS value"]
    with pytest.raises(NewCluster, match="recreated in the meantime"):
        write("b", staged=do(replaced))
    with pytest.raises(NewCluster, match="was dropped and recreated"):
        write("b")
    assert values(output) == ["new"]
