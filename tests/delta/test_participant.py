"""The Delta participant without Spark: what it can prove, and what not."""

from __future__ import annotations

import json
import shutil
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer import Committer, MultiProcessRun, OpenAttempt, Policies
from eos.delta.opening import schema_to_json
from eos.delta.part import DeltaPart
from eos.delta.participant import DeltaParticipant, Staged
from eos.delta.staging import StagingTarget, stage
from eos.delta.target_table import TargetTable
from eos.errors import (
    CommitLogError,
    CommitUnconfirmed,
    ConfigurationError,
    Fenced,
    InDoubt,
    NewCluster,
    Retriable,
)
from eos.participant import Kind, Upsert, kind_of
from eos.protocol import BATCH, Known, LogRecord, Part, Stage, State
from eos.recovery.decide import decide
from eos.recovery.resolve import resolve
from eos.steps import Step
from tests.support.plain_driver import QUERY
from tests.testing.outputs import SCHEMA, FolderOutput, TableOutput


@pytest.fixture
def output(tmp_path) -> TableOutput:
    return TableOutput(tmp_path / "table")


@pytest.fixture
def log(tmp_path) -> CommitLog:
    return CommitLog.open(tmp_path / "log", "contract")


def written(output: TableOutput, log: CommitLog, epoch: str = "a") -> tuple[DeltaPart, LogRecord]:
    """A committed epoch: its part, and its PREPARED record."""
    committer = Committer(log, [output.participant()])
    committer.run_epoch(
        BATCH, epoch, lambda begun: lambda: [output.write(begun()[0], ["one", "two"])]
    )
    record = next(one for one in log.records() if (one.epoch, one.state) == (epoch, "PREPARED"))
    (part,) = record.participants
    assert isinstance(part, DeltaPart)
    return part, record


def attached(output: TableOutput, log: CommitLog, part: DeltaPart) -> DeltaParticipant:
    participant = DeltaParticipant("contract", output.uri)
    participant.attach(part, log.history)
    return participant


def away(output: TableOutput) -> Path:
    """The table is not mounted."""
    return Path(output.uri).rename(f"{output.uri}-away")


def test_a_missing_table_proves_nothing_and_is_asked_again_when_it_is_back(output, log):
    part, _ = written(output, log)
    participant = attached(output, log, part)
    hidden = away(output)
    for ask in (participant.commit, participant.outcome):
        options = (
            {"timeout_s": 1} if ask == participant.outcome else {"deadline_s": 0.1, "is_own": False}
        )
        assert ask(part, **options).known is Known.UNKNOWN
    assert "there is no Delta table" in participant.missing(part, log.history)
    hidden.rename(output.uri)
    assert participant.outcome(part, timeout_s=1).known is Known.COMMITTED
    assert participant.missing(part, log.history) is None


def test_another_table_at_its_path_proves_nothing_and_gets_no_files(output, log):
    part, _ = written(output, log)
    hidden = away(output)
    TableOutput(Path(output.uri))
    for file in hidden.glob("*.parquet"):  # as if only the folder's log had been deleted
        shutil.copy(file, output.uri)
    participant = attached(output, log, part)
    fate = participant.commit(part, deadline_s=0.1, is_own=False)
    assert fate.known is Known.UNKNOWN
    assert DeltaTable(output.uri).version() == 0
    assert "recreated" in participant.missing(part, log.history)


def test_missing_files_of_an_existing_table_are_a_proof(output, log):
    part, _ = written(output, log)
    never = replace(
        part,
        version=2,
        files=tuple(
            replace(file, path=file.path.replace("-00000-", "-00001-")) for file in part.files or ()
        ),
    )
    participant = attached(output, log, part)
    assert participant.commit(never, deadline_s=0.1, is_own=False).known is Known.ABORTED
    assert sorted(output.read()) == ["one", "two"]


@pytest.mark.parametrize("upsert", [None, Upsert(on=("value",))])
def test_a_commit_under_way_fails_if_a_person_aborts_it_meanwhile(output, log, monkeypatch, upsert):
    def write(part: Part) -> list[Staged]:
        schema = TargetTable(output.uri).check_schema(SCHEMA)
        target = StagingTarget(output.uri, schema, upsert=upsert)
        batch = pa.record_batch([pa.array(["three"])], schema=SCHEMA)
        files = stage([batch], target, attempt_id=str(part.attempt_id), spark_partition=0)
        return [Staged(files, schema_to_json(target.schema), merge=False, upsert=upsert)]

    written(output, log)
    read, discard = TargetTable._check_files, TargetTable.discard
    later, deleted_at = [], []

    def decided(self, *args, **options) -> None:
        read(self, *args, **options)
        # The driver has the files open: it sees only at its next try that they are deleted.
        monkeypatch.setattr(TargetTable, "discard", not_yet)
        choice = {"epoch": "b", "verdict": "aborted", "because": "a test", "by": "ada"}
        assert decide("contract", commit_log=Path(log.uri).parent, **choice).state is State.ABORTED
        monkeypatch.setattr(TargetTable, "_check_files", deleted)

    def not_yet(self, files) -> None:
        deleted_at.append(DeltaTable(output.uri).version())
        later.extend(files)

    def deleted(self, *args, **options) -> None:
        discard(self, later)
        read(self, *args, **options)

    before = DeltaTable(output.uri).version()
    monkeypatch.setattr(TargetTable, "_check_files", decided)
    with pytest.raises(Fenced):
        Committer(log, [output.participant()]).run_epoch(
            BATCH, "b", lambda begun: lambda: [write(begun()[0])]
        )
    assert deleted_at[0] > before  # nothing is deleted before the fence
    assert sorted(output.read()) == ["one", "two"]


def test_text_of_the_table_that_a_merge_cannot_read_is_named_with_the_way_out(
    output, log, tmp_path
):
    """Another writer's: Spark stores a binary that was cast to a string as it is."""
    # A merge reads any file that may have the keys.
    bad = pa.Array.from_buffers(pa.string(), 1, pa.array([b"A\xff"]).buffers())
    pq.write_table(pa.table([bad], SCHEMA), tmp_path / "table" / "other.parquet")
    size = (tmp_path / "table" / "other.parquet").stat().st_size
    table = DeltaTable(output.uri)
    action = AddAction("other.parquet", size, {}, 0, data_change=True, stats="{}")
    table.create_write_transaction([action], "append", table.schema(), [])

    def write(begun) -> list[Staged]:
        (part,) = begun()
        target = StagingTarget(output.uri, SCHEMA, upsert=Upsert(on=("value",)))
        batch = pa.record_batch([pa.array(["three"])], schema=SCHEMA)
        files = stage([batch], target, attempt_id=part.attempt_id, spark_partition=0)
        return [Staged(files, schema_to_json(SCHEMA), merge=False, upsert=target.upsert)]

    what = r"has rows with text that is not UTF-8.* Columns with text: value\. Rewrite these rows"
    committer = Committer(log, [output.participant()], deadline_s=0.5)
    with pytest.raises(InDoubt, match=what):
        committer.run_epoch(BATCH, "a", lambda begun: lambda: [write(begun)])
    options = {"commit_log": tmp_path / "log", "deadline_s": 0.5}
    with pytest.raises(InDoubt, match=what):
        resolve("contract", **options)
    write_deltalake(output.uri, pa.table([["A?"]], SCHEMA), mode="overwrite")
    (ended,) = resolve("contract", **options)
    assert ended.state is State.COMMITTED
    assert sorted(output.read()) == ["A?", "three"]


def test_a_commit_that_begins_during_an_abort_fails(output, log, monkeypatch):
    part, _ = written(output, log)
    later = replace(part, version=part.version + 1, attempt_id=str(uuid.uuid4()))
    (staged,) = output.write(later, ["three"])
    later = replace(later, files=staged.files)
    participant, discard, seen = attached(output, log, part), TargetTable.discard, []

    def meanwhile(self, files) -> None:
        seen.append(self._open())  # a driver has found the files, and commits
        discard(self, files)

    monkeypatch.setattr(TargetTable, "discard", meanwhile)
    assert participant.abort(later, deadline_s=0.1, is_own=False).known is Known.ABORTED
    with pytest.raises(CommitFailedError):
        participant.table._append(seen[0], later.files, {later.app_id: 2, "eos/contract": 2})


def test_a_prepared_part_whose_table_does_not_answer_is_not_called_aborted(
    output, log, monkeypatch
):
    part, _ = written(output, log)
    later = replace(part, version=part.version + 1)
    participant = attached(output, log, part)

    def away(*_) -> None:
        raise CommitUnconfirmed("no answer")

    for name in ("discard", "fence"):
        with monkeypatch.context() as changed:
            changed.setattr(TargetTable, name, away)
            fate = participant.abort(later, deadline_s=0.1, is_own=False)
            assert (fate.known, "no answer" in fate.why) == (Known.UNKNOWN, True)
    assert participant.abort(later, deadline_s=0.1, is_own=False).known is Known.ABORTED


def test_after_a_lost_answer_the_table_is_asked(output, log, monkeypatch):
    real = TargetTable.commit

    def lost(self, *args, **options) -> None:
        real(self, *args, **options)
        raise CommitUnconfirmed("the answer was lost")

    monkeypatch.setattr(TargetTable, "commit", lost)
    written(output, log)
    assert sorted(output.read()) == ["one", "two"]
    assert log.history.newest(BATCH, "a").state is State.COMMITTED


def test_a_commit_that_others_always_overtake_says_so(output, log, monkeypatch):
    def overtaken(self, *args, **options) -> None:
        raise CommitUnconfirmed("the commit was not confirmed: another one came first")

    monkeypatch.setattr(TargetTable, "commit", overtaken)
    committer = Committer(log, [output.participant()], deadline_s=0.1)
    with pytest.raises(InDoubt, match="another one came first"):
        committer.run_epoch(BATCH, "a", lambda begun: lambda: [output.write(begun()[0], ["a"])])


def test_a_later_version_in_the_table_means_an_older_log(output, log):
    part, _ = written(output, log, "a")
    written(output, log, "b")
    participant = attached(output, log, part)
    assert participant.outcome(part, timeout_s=1).known is Known.OVERTAKEN
    older = replace(log.history.last_begun(part.key), participants=(part,))
    log.history._last_begun[part.key] = older
    participant.attach(part, log.history)
    assert "version 2" in participant.newer_commit(log.history, timeout_s=1)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"table": ""}, "table is missing"),
        ({"table": "s3://key@bucket/x"}, "leave credentials out"),
        ({"table": "s3://bucket/x?key=1"}, "leave credentials out"),
        ({"table": "s3://bucket/x#1"}, "leave credentials out"),
        ({"app_id": ""}, "app_id is missing"),
        ({"version": 0}, "version 0"),
        ({"version": None}, "named whole"),
        ({"attempt_id": "../../etc"}, "uuid|hexadecimal"),
        ({"files": None}, "go with their schema"),
        ({"schema": None}, "go with their schema"),
        ({"attempt_id": "00000000-0000-4000-8000-000000000000"}, "is another attempt's"),
    ],
)
def test_an_impossible_part_is_refused(output, log, change, why):
    part, _ = written(output, log)
    part.check(Stage.PREPARED)
    with pytest.raises(ValueError, match=why):
        replace(part, **change).check(Stage.PREPARED)


def test_a_path_may_have_letters_that_mean_something_in_a_url(tmp_path, log):
    output = TableOutput(tmp_path / "me@corp.com" / "#1" / "why?" / "table")
    part, _ = written(output, log, "a")
    written(output, log, "b")
    assert output.read() == ["one", "two"] * 2
    assert attached(output, log, part).outcome(part, timeout_s=1).known is Known.OVERTAKEN
    replace(part, table="s3://bucket/me@corp.com").check(Stage.PREPARED)


def test_a_commit_that_the_table_has_lost_is_known_by_its_version(output, log):
    written(output, log)
    shutil.copytree(output.uri, f"{output.uri}-older")
    part, _ = written(output, log, "b")
    participant = attached(output, log, part)
    assert participant.lost_commit(part, log.history) is None
    # The driver may have died in the next epoch.
    died = Committer(log, [output.participant()])
    with pytest.raises(ZeroDivisionError), failpoints.armed(Step.PREPARE, lambda: 1 / 0):
        died.run_epoch(BATCH, "c", lambda begun: lambda: [output.write(begun()[0], ["c"])])
    assert log.history.unfinished
    shutil.rmtree(output.uri)
    shutil.copytree(f"{output.uri}-older", output.uri)
    assert "an older copy" in str(participant.lost_commit(part, log.history))
    assert part.label in str(participant.lost_commit(part, log.history))


def test_an_older_copy_of_the_table_at_another_place_is_refused(output, log):
    written(output, log)
    older = TableOutput(Path(shutil.copytree(output.uri, f"{output.uri}-older")))
    written(output, log, "b")
    moved = TableOutput(Path(shutil.copytree(output.uri, f"{output.uri}-moved")))
    with pytest.raises(NewCluster, match=r"Version 2 of table \S+-older is missing: an older copy"):
        written(older, log, "c")
    written(moved, log, "c")
    # The first place now lacks the rows that were written at the second.
    with pytest.raises(NewCluster, match=r"Version 3 of table \S+/table is missing: an older copy"):
        written(output, log, "d")
    other = TableOutput(Path(f"{output.uri}-new"))
    written(other, log, "d")
    assert sorted(other.read()) == ["one", "two"]


def test_a_table_with_an_epoch_that_the_log_never_prepared_is_refused(
    output, log, tmp_path, monkeypatch
):
    """The log is an older copy, and somebody has given the table up."""
    copy = tmp_path / "copy"
    with failpoints.armed(Step.OPEN, lambda: shutil.copytree(tmp_path / "log", copy)):
        written(output, log)
    shutil.rmtree(tmp_path / "log")
    copy.rename(tmp_path / "log")
    with pytest.raises(CommitLogError, match="older copy"):
        resolve("contract", commit_log=tmp_path / "log")
    with monkeypatch.context() as away:  # then nothing is said about it
        away.setattr(CommitLog, "refresh", lambda _: (_ for _ in ()).throw(Retriable("503")))
        with pytest.raises(InDoubt):
            resolve("contract", commit_log=tmp_path / "log")
    resolve("contract", commit_log=tmp_path / "log", give_up=[output.uri])
    with pytest.raises(CommitLogError, match="older copy"):
        written(output, CommitLog.open(tmp_path / "log", "contract"))
    assert sorted(output.read()) == ["one", "two"]


def test_a_table_that_comes_back_after_more_epochs_than_the_log_keeps(
    output, tmp_path, monkeypatch
):
    def declared(name: str) -> Kind | None:
        return FolderOutput.kind if name == "folder" else kind_of(name)

    monkeypatch.setattr("eos.commit_log.schema.kind_of", declared)
    monkeypatch.setattr("eos.committer.participants.kind_of", declared)
    stays = FolderOutput(tmp_path / "stays")

    def run(epochs: range, *outputs: FolderOutput | TableOutput) -> None:
        log = CommitLog.open(tmp_path / "log", "contract", keep_epochs=2)
        committer = Committer(log, [one.participant() for one in outputs])
        for epoch in epochs:
            committer.run_epoch(
                QUERY,
                str(epoch),
                lambda begun: (
                    lambda: [
                        one.write(part, ["row"]) for one, part in zip(outputs, begun(), strict=True)
                    ]
                ),
            )
        log.compact(keep_epochs=2)

    run(range(3), stays, output)
    run(range(3, 8), stays)
    run(range(8, 10), stays, output)
    assert [len(one.read()) for one in (stays, output)] == [10, 5]


def test_an_older_table_is_refused_behind_more_empty_epochs_than_the_log_keeps(output, tmp_path):
    def run(epoch: int, *rows: str) -> None:
        log = CommitLog.open(tmp_path / "log", "contract", keep_epochs=2)
        Committer(log, [output.participant()]).run_epoch(
            QUERY, str(epoch), lambda begun: lambda: [output.write(begun()[0], rows)]
        )
        log.compact()

    run(0, "one")
    shutil.copytree(output.uri, tmp_path / "copy")
    run(1, "two")
    for epoch in range(2, 6):
        run(epoch)
    shutil.rmtree(output.uri)
    (tmp_path / "copy").rename(output.uri)
    with pytest.raises(NewCluster):
        run(6, "three")


def test_a_shared_run_that_was_fenced_stays_fenced_after_a_compaction(output, tmp_path):
    def join(run_id: str, query_id: str, epoch: int) -> tuple[MultiProcessRun, OpenAttempt]:
        log = CommitLog.open(tmp_path / "log", "contract", keep_epochs=2)
        policies = Policies(on_new_query="continue")
        process = MultiProcessRun(log, [output.participant()], run_id, policies=policies)
        opened = process.join(query_id, str(epoch))
        assert isinstance(opened, OpenAttempt)
        return process, opened

    def run(run_id: str, query_id: str, epoch: int) -> None:
        process, opened = join(run_id, query_id, epoch)
        process.end(opened, [output.write(opened.record.participants[0], ["row"])])
        process.log.compact()

    run("first", QUERY, 0)
    for epoch in range(5):
        run("second", "another", epoch)
    with pytest.raises(Fenced):
        join("first", QUERY, 1)
    run("second", "another", 5)


def test_a_driver_that_slept_while_its_successor_went_on_is_fenced(output, log, tmp_path):
    """Its version is not the newest any more, and proves nothing."""
    once = iter([1])

    def successor() -> None:
        if next(once, None):
            other = Committer(CommitLog.open(tmp_path / "log", "contract"), [output.participant()])
            for epoch in ("a", "b"):
                other.run_epoch(BATCH, epoch, plan)

    plan = lambda begun: lambda: [output.write(begun()[0], ["row"])]  # noqa: E731
    sleeper = Committer(log, [output.participant()], deadline_s=0.1)
    with failpoints.armed(Step.PREPARE, successor), pytest.raises(Fenced):
        sleeper.run_epoch(BATCH, "a", plan)
    assert output.read() == ["row", "row"]


@pytest.mark.parametrize("way_out", ["drop", "decide"])
def test_a_requirement_added_after_the_decision_leaves_it_in_doubt_by_name(
    output, log, tmp_path, way_out
):
    def constrain() -> None:
        if not DeltaTable(output.uri).metadata().configuration:
            DeltaTable(output.uri).alter.add_constraint({"few": "value <> 'b'"})

    committer = Committer(log, [output.participant()], deadline_s=0.1)
    plan = lambda begun: lambda: [output.write(begun()[0], ["b"])]  # noqa: E731
    with failpoints.armed(Step.PREPARE, constrain), pytest.raises(InDoubt, match="constraint few"):
        committer.run_epoch(BATCH, "b", plan)
    committer.close()
    options = {"commit_log": tmp_path / "log"}
    with pytest.raises(InDoubt, match="check constraint few"):
        resolve("contract", **options, deadline_s=0.1)
    if way_out == "drop":
        DeltaTable(output.uri).alter.drop_constraint("few")
        (ended,) = resolve("contract", **options, deadline_s=1)
        assert (ended.state, output.read()) == ("COMMITTED", ["b"])
        return
    choice = {"epoch": "b", "verdict": "aborted", "because": "the constraint stays", "by": "ada"}
    decide("contract", **options, **choice)
    assert output.read() == []
    again = Committer(CommitLog.open(tmp_path / "log", "contract"), [output.participant()])
    with pytest.raises(ConfigurationError, match="check constraint few"):
        again.run_epoch(BATCH, "b", plan)


def test_an_epoch_can_be_aborted_that_no_writer_can_commit(output, log, tmp_path):
    """deltalake refuses every commit, also the one that would fence a sleeping driver."""

    def forbid() -> None:
        features = {"minReaderVersion": 1, "minWriterVersion": 7,
                    "writerFeatures": ["checkpointProtection"]}  # fmt: skip
        path = Path(output.uri, "_delta_log", f"{DeltaTable(output.uri).version() + 1:020}.json")
        path.write_text(json.dumps({"protocol": features}) + "\n")

    written(output, log)
    committer = Committer(log, [output.participant()], deadline_s=0.1)
    plan = lambda begun: lambda: [output.write(begun()[0], ["b"])]  # noqa: E731
    with failpoints.armed(Step.PREPARE, forbid), pytest.raises(InDoubt, match="TRUNCATE HISTORY"):
        committer.run_epoch(BATCH, "b", plan)
    committer.close()
    choice = {"epoch": "b", "verdict": "aborted", "because": "it stays", "by": "ada"}
    assert decide("contract", commit_log=tmp_path / "log", **choice).state is State.ABORTED
    files = {Path(file).name for file in DeltaTable(output.uri).file_uris()}
    assert {file.name for file in Path(output.uri).rglob("*.parquet")} == files


def test_a_table_replaced_while_an_epoch_is_written_gets_none_of_its_rows(output, log):
    written(output, log)

    def plan(begun):
        def writing():
            report = output.write(begun()[0], ["b"])
            DeltaTable.create(output.uri, DeltaTable(output.uri).schema(), mode="overwrite")
            return [report]

        return writing

    for said in ("recreated in the meantime", "was dropped and recreated"):
        committer = Committer(log, [output.participant()])
        with pytest.raises(NewCluster, match=said):
            committer.run_epoch(BATCH, "b", plan)
        committer.close()
    assert output.read() == []
