"""The Iceberg participant without Spark: what it can prove, and what not."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Transaction

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer import Committer
from eos.errors import ConfigurationError, Fenced, InDoubt, NewCluster
from eos.iceberg import _iceberg_table, _snapshots
from eos.iceberg._snapshots import APP_ID, VERSION
from eos.iceberg.part import IcebergPart
from eos.iceberg.participant import IcebergParticipant
from eos.iceberg.table_address import TableAddress
from eos.protocol import BATCH, Known, LogRecord, State
from eos.recovery.decide import decide
from eos.recovery.resolve import resolve
from eos.steps import Step
from tests.iceberg.tables import NAME, IcebergOutput

OWN = {"deadline_s": 5, "is_own": False}
LATE = [State.OPEN, State.ABORTING, State.ABORTED]  # found before the decision
WHOLE = [State.OPEN, State.PREPARED, State.COMMITTED]


@pytest.fixture
def output(tmp_path) -> IcebergOutput:
    return IcebergOutput(tmp_path)


@pytest.fixture
def log(tmp_path) -> CommitLog:
    return CommitLog.open(tmp_path / "log", "contract")


def plan(output: IcebergOutput, rows: list[str]) -> Callable:
    return lambda begun: lambda: [output.write(begun()[0], rows)]


def run(output: IcebergOutput, log: CommitLog, epoch: str = "a", rows: str = "one two") -> None:
    committer = Committer(log, [output.participant()], deadline_s=1)
    committer.run_epoch(BATCH, epoch, plan(output, rows.split()))


def prepared(log: CommitLog, epoch: str = "a") -> IcebergPart:
    record = next(one for one in log.records() if (one.epoch, one.state) == (epoch, "PREPARED"))
    (part,) = record.participants
    assert isinstance(part, IcebergPart)
    return part


def written(output: IcebergOutput, log: CommitLog, epoch: str = "a") -> IcebergPart:
    """A committed epoch's part of PREPARED."""
    run(output, log, epoch)
    return prepared(log, epoch)


class Died(BaseException):
    """The process is gone."""


def staged(output: IcebergOutput, log: CommitLog, epoch: str = "a") -> IcebergPart:
    """The part of an epoch whose driver died after PREPARED."""

    def die() -> None:
        raise Died

    with failpoints.armed(Step.PREPARE, die), pytest.raises(Died):
        run(output, log, epoch)
    return prepared(log, epoch)


def attached(output: IcebergOutput, log: CommitLog, part: IcebergPart) -> IcebergParticipant:
    participant = IcebergParticipant("contract", output.address)
    participant.attach(part, log.history)
    return participant


def outcome(participant: IcebergParticipant, part: IcebergPart) -> Known:
    return participant.outcome(part, timeout_s=1).known


def append_as_another(output: IcebergOutput, value: str = "other") -> None:
    output.table().append(pa.table({"value": [value]}))


def files(output: IcebergOutput) -> set[str]:
    warehouse = Path(output.address.properties["warehouse"].removeprefix("file://"))
    return {path.name for path in warehouse.rglob("eos-*")}


def test_the_version_is_in_the_snapshot_and_in_the_table(output, log):
    part = written(output, log)
    table = output.table()
    summary = table.current_snapshot().summary
    assert table.current_snapshot().snapshot_id == part.snapshot_id
    assert (summary[APP_ID], summary[VERSION]) == (part.app_id, "1")
    assert table.properties[f"eos.{part.app_id}"] == "1"
    assert (summary["added-records"], summary["total-records"]) == ("2", "2")
    assert summary["added-files-size"] == str(part.bytes)


def test_the_outcome_is_proved_after_the_snapshot_has_expired(output, log):
    part = written(output, log)
    append_as_another(output)
    output.table().maintenance.expire_snapshots().by_id(part.snapshot_id).commit()
    assert output.table().snapshot_by_id(part.snapshot_id) is None
    participant = attached(output, log, part)
    assert outcome(participant, part) is Known.COMMITTED
    assert participant.commit(part, **OWN).known is Known.COMMITTED
    assert participant.abort(part, **OWN).known is Known.COMMITTED
    assert sorted(output.read()) == ["one", "other", "two"]


def test_the_outcome_is_proved_by_the_snapshot_without_the_property(output, log):
    part = written(output, log)
    with output.table().transaction() as transaction:
        transaction.remove_properties(f"eos.{part.app_id}")
    assert outcome(attached(output, log, part), part) is Known.COMMITTED


def test_a_missing_table_proves_nothing_and_is_asked_again_when_it_is_back(output, log):
    part = written(output, log)
    participant = attached(output, log, part)
    catalog = output.catalog()
    catalog.rename_table(NAME, "shop.away")
    assert outcome(participant, part) is Known.UNKNOWN
    assert participant.commit(part, deadline_s=0.1, is_own=False).known is Known.UNKNOWN
    assert "there is no Iceberg table" in str(participant.missing(part, log.history))
    catalog.rename_table("shop.away", NAME)
    assert outcome(participant, part) is Known.COMMITTED
    assert participant.missing(part, log.history) is None


def test_another_table_of_the_name_proves_nothing_and_gets_no_rows(output, log, tmp_path):
    part = staged(output, log)
    output.catalog().rename_table(NAME, "shop.away")
    another = IcebergOutput(tmp_path)
    participant = attached(another, log, part)
    assert participant.commit(part, deadline_s=0.1, is_own=False).known is Known.UNKNOWN
    assert outcome(participant, part) is Known.UNKNOWN
    assert participant.abort(part, **OWN).known is Known.ABORTED
    assert another.read() == []
    assert "recreated" in str(participant.missing(part, log.history))
    assert len(files(output)) == 2


def test_an_unreadable_catalog_proves_nothing(output, log, tmp_path):
    part = written(output, log)
    participant = attached(output, log, part)
    (tmp_path / "warehouse").rename(tmp_path / "away")
    assert outcome(participant, part) is Known.UNKNOWN
    assert participant.commit(part, deadline_s=0.1, is_own=False).known is Known.UNKNOWN
    assert participant.abort(part, deadline_s=0.1, is_own=False).known is Known.UNKNOWN
    (tmp_path / "away").rename(tmp_path / "warehouse")
    assert outcome(participant, part) is Known.COMMITTED


def test_a_commit_under_way_fails_if_a_person_aborts_it_meanwhile(output, log, monkeypatch):
    run(output, log)
    new_snapshot = _iceberg_table.new_snapshot

    def decided(*args) -> Any:
        found = new_snapshot(*args)  # from here on the driver reads nothing any more
        monkeypatch.setattr(_iceberg_table, "new_snapshot", new_snapshot)
        choice = {"epoch": "b", "verdict": "aborted", "because": "a test", "by": "ada"}
        assert decide("contract", commit_log=Path(log.uri).parent, **choice).state is State.ABORTED
        return found

    monkeypatch.setattr(_iceberg_table, "new_snapshot", decided)
    with pytest.raises(Fenced):
        run(output, log, "b")
    assert sorted(output.read()) == ["one", "two"]


@pytest.mark.parametrize("gone", ["*.parquet", "*-m0.avro"])
def test_missing_staged_files_of_an_uncommitted_version_are_a_proof(output, log, tmp_path, gone):
    part = staged(output, log)
    participant = attached(output, log, part)
    assert outcome(participant, part) is Known.UNKNOWN
    for path in (tmp_path / "warehouse").rglob(f"eos-{gone}"):
        path.unlink()
    assert outcome(participant, part) is Known.ABORTED
    assert participant.commit(part, **OWN).known is Known.ABORTED
    (last,) = resolve("contract", commit_log=tmp_path / "log")
    assert (last.state, "gone" in str(last.reason)) == ("ABORTED", True)
    run(output, CommitLog.open(tmp_path / "log", "contract"), "a")
    assert sorted(output.read()) == ["one", "two"]


def test_an_attempt_without_rows_is_an_empty_snapshot(output, log):
    run(output, log, "a")
    participant = output.participant()
    committer = Committer(log, [participant])
    with failpoints.armed(Step.OPEN, lambda: None):
        committer.run_epoch(BATCH, "b", plan(output, ["three"]))
    part = replace(
        prepared(log, "b"), version=3, files=0, records=0, bytes=0, manifest=None, snapshot_id=77,
        manifest_bytes=None, spec_id=None,
    )  # fmt: skip
    assert outcome(participant, part) is Known.UNKNOWN
    assert participant.commit(part, **OWN).known is Known.COMMITTED
    assert outcome(participant, part) is Known.COMMITTED
    snapshot = output.table().current_snapshot()
    assert (snapshot.snapshot_id, snapshot.summary["total-records"]) == (77, "3")
    assert len(output.read()) == 3


def test_rows_of_other_writers_stay_and_the_commit_is_retried(output, log, monkeypatch):
    """Another writer commits between the look-up and each of our first two commits."""
    part = staged(output, log)
    real, seen = Transaction.commit_transaction, []

    def interrupted(transaction):
        if f"eos.{part.app_id}" in transaction.table_metadata.properties and len(seen) < 2:
            seen.append(None)
            append_as_another(output, f"other {len(seen)}")
        return real(transaction)

    monkeypatch.setattr(Transaction, "commit_transaction", interrupted)
    assert attached(output, log, part).commit(part, **OWN).known is Known.COMMITTED
    assert sorted(output.read()) == ["one", "other 1", "other 2", "two"]
    lists = [path for path in files(output) if path.startswith("snap-")]
    assert lists == []
    assert output.table().current_snapshot().summary["total-records"] == "4"


def test_of_two_committers_of_one_attempt_one_appends(output, log, monkeypatch):
    """Both have looked the version up before either commits."""
    part = staged(output, log)
    both_looked, real = threading.Barrier(2), Transaction.commit_transaction
    first_tries = threading.local()

    def together(transaction):
        if not getattr(first_tries, "done", False):
            first_tries.done = True
            both_looked.wait(timeout=20)
        return real(transaction)

    monkeypatch.setattr(Transaction, "commit_transaction", together)
    fates = []
    threads = [
        threading.Thread(
            target=lambda: fates.append(attached(output, log, part).commit(part, **OWN).known)
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert fates == [Known.COMMITTED] * 2
    assert sorted(output.read()) == ["one", "two"]
    assert [one.snapshot_id for one in output.table().snapshots()] == [part.snapshot_id]


def test_a_version_is_not_committed_again_after_a_rollback(output, log, monkeypatch):
    """The branch has the head that was read, but the version was committed meanwhile."""
    append_as_another(output)
    before = output.table().current_snapshot().snapshot_id
    part = staged(output, log)
    real, seen = Transaction.commit_transaction, []

    def interrupted(transaction):
        if f"eos.{part.app_id}" in transaction.table_metadata.properties and not seen:
            seen.append(None)
            attached(output, log, part).commit(part, **OWN)
            output.table().manage_snapshots().set_current_snapshot(snapshot_id=before).commit()
        return real(transaction)

    monkeypatch.setattr(Transaction, "commit_transaction", interrupted)
    assert attached(output, log, part).commit(part, **OWN).known is Known.COMMITTED
    assert output.read() == ["other"]
    assert len(output.table().snapshots()) == 2


@pytest.mark.parametrize("took_effect", [True, False])
def test_after_a_lost_answer_the_table_is_asked(output, log, monkeypatch, took_effect):
    real, answers = Transaction.commit_transaction, []

    def lost(transaction):
        answers.append(None)
        if len(answers) > 1:
            return real(transaction)
        if took_effect:
            real(transaction)
        raise CommitStateUnknownException("504")

    monkeypatch.setattr(Transaction, "commit_transaction", lost)
    run(output, log)
    assert log.history.newest(BATCH, "a").state is State.COMMITTED
    assert len(answers) == (1 if took_effect else 2)
    assert sorted(output.read()) == ["one", "two"]


def test_a_commit_that_was_reported_as_a_conflict_stays_readable(output, log, monkeypatch):
    """As if a client had repeated the request, whose answer was lost, and met its own commit."""
    real, answers = Transaction.commit_transaction, []

    def conflict(transaction):
        found = real(transaction)
        answers.append(None)
        if len(answers) == 1:
            raise CommitFailedException("concurrent update")
        return found

    monkeypatch.setattr(Transaction, "commit_transaction", conflict)
    run(output, log)
    assert log.history.newest(BATCH, "a").state is State.COMMITTED
    assert sorted(output.read()) == ["one", "two"]
    run(output, log, "b", "three")
    assert sorted(output.read()) == ["one", "three", "two"]


def test_a_later_version_in_the_table_means_an_older_log(output, log):
    part = written(output, log, "a")
    written(output, log, "b")
    participant = attached(output, log, part)
    assert outcome(participant, part) is Known.OVERTAKEN
    assert participant.commit(part, deadline_s=0.1, is_own=False).known is Known.OVERTAKEN
    older = replace(log.history.last_begun(part.key), participants=(part,))
    log.history._last_begun[part.key] = older
    participant.attach(part, log.history)
    assert "version 2" in str(participant.newer_commit(log.history, timeout_s=1))


def test_a_commit_that_the_table_has_lost_is_known_by_its_version(output, log, tmp_path):
    run(output, log, "a")
    shutil.copy(tmp_path / "catalog.db", tmp_path / "older.db")
    participant = output.participant()
    committer = Committer(log, [participant])
    committer.run_epoch(BATCH, "b", plan(output, ["three"]))
    part = prepared(log, "b")
    assert participant.lost_commit(part, log.history) is None
    shutil.copy(tmp_path / "older.db", tmp_path / "catalog.db")
    assert "an older copy" in str(attached(output, log, part).lost_commit(part, log.history))
    with pytest.raises(NewCluster, match="older copy"):
        committer.run_epoch(BATCH, "c", plan(output, ["four"]))


def test_abort_deletes_the_staged_files_of_this_process_and_of_another(output, log):
    part = staged(output, log)
    append_as_another(output)
    assert len(files(output)) == 2
    assert attached(output, log, part).abort(part, **OWN).known is Known.ABORTED
    assert files(output) == set()
    assert output.read() == ["other"]


def test_abort_of_a_begun_attempt_finds_its_manifest(output, log):
    part = staged(output, log)
    begun = replace(
        part, files=None, records=None, bytes=None, manifest=None, manifest_bytes=None,
        snapshot_id=None, spec_id=None,
    )  # fmt: skip
    assert attached(output, log, part).abort(begun, **OWN).known is Known.ABORTED
    assert files(output) == set()


def test_a_table_recreated_while_an_epoch_is_written_gets_none_of_its_rows(output, log, tmp_path):
    def recreate() -> None:
        output.catalog().drop_table(NAME)
        IcebergOutput(tmp_path)

    run(output, log)
    with failpoints.armed(Step.CHECK, recreate), pytest.raises(NewCluster, match="recreated"):
        run(output, log, "b")
    assert output.read() == []


def test_an_epoch_whose_manifest_is_damaged_can_be_aborted(output, log, tmp_path):
    part = staged(output, log)
    manifest = Path(part.manifest.removeprefix("file://"))
    manifest.write_bytes(manifest.read_bytes()[:-20] + bytes(20))
    with pytest.raises(InDoubt, match=f"reading {part.manifest} failed"):
        resolve("contract", commit_log=tmp_path / "log", deadline_s=0.1)
    choice = {"epoch": "a", "verdict": "aborted", "because": "a test", "by": "ada"}
    assert decide("contract", commit_log=tmp_path / "log", **choice).state is State.ABORTED
    assert outcome(attached(output, log, part), part) is Known.ABORTED
    run(output, CommitLog.open(tmp_path / "log", "contract"), "a", "one two")
    assert sorted(output.read()) == ["one", "two"]


def test_a_manifest_is_read_again_before_the_decision(output, log, monkeypatch):
    make_durable, damaged = _snapshots.make_durable, []

    def damage(paths) -> None:
        make_durable(paths)
        if not damaged:
            damaged.append(Path(paths[0].removeprefix("file://")))
            damaged[0].write_bytes(damaged[0].read_bytes()[:-20] + bytes(20))

    monkeypatch.setattr(_snapshots, "make_durable", damage)
    run(output, log)
    assert [one.state for one in log.records() if one.epoch] == [*LATE, *WHOLE]
    assert sorted(output.read()) == ["one", "two"]
    assert not damaged[0].exists()


def by_day(output: IcebergOutput, version: int) -> IcebergOutput:
    """The table, partitioned by both of its columns."""
    output.catalog().drop_table(NAME)
    columns = pa.schema([pa.field("day", pa.string()), *output.schema])
    made = output.catalog().create_table(NAME, columns, properties={"format-version": str(version)})
    with made.update_spec() as change:
        change.add_identity("day")
        change.add_identity("value")
    return output


def drop_day(output: IcebergOutput) -> None:
    with output.table().update_spec() as change:
        change.remove_field("day")
    with output.table().update_schema() as change:
        change.delete_column("day")


def test_a_partition_column_dropped_while_an_epoch_is_written(output, log):
    by_day(output, 2)
    dropped = []

    def drop_once() -> None:
        if not dropped:
            dropped.append(drop_day(output))

    with failpoints.armed(Step.CHECK, drop_once):
        run(output, log)
    records = [one for one in log.records() if one.epoch]
    assert [one.state for one in records] == [*LATE, *WHOLE]
    assert "a partition field was dropped" in str(records[1].reason)
    assert sorted(output.read()) == ["one", "two"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_partition_column_dropped_after_the_decision_is_no_obstacle(
    output, log, tmp_path, version
):
    staged(by_day(output, version), log)
    drop_day(output)
    (last,) = resolve("contract", commit_log=tmp_path / "log", deadline_s=5)
    assert last.state == "COMMITTED"
    found = output.table().scan(row_filter="value = 'two'").to_arrow()
    assert found["value"].to_pylist() == ["two"]
    head = output.table().current_snapshot()
    (manifest,) = head.manifests(output.table().io)
    assert manifest.partitions is None  # Java would look for a field in an empty list


def test_columns_changed_after_the_decision_are_no_obstacle(output, log):
    part = staged(output, log)
    with output.table().update_schema() as change:
        change.rename_column("value", "text")
    assert attached(output, log, part).commit(part, **OWN).known is Known.COMMITTED
    assert sorted(output.table().scan().to_arrow()["text"].to_pylist()) == ["one", "two"]


def test_a_partitioning_changed_after_the_decision_is_no_obstacle(output, log):
    part = staged(output, log)
    with output.table().update_spec() as change:
        change.add_identity("value")
    assert attached(output, log, part).commit(part, **OWN).known is Known.COMMITTED
    run(output, log, "b", "three")
    assert sorted(output.read()) == ["one", "three", "two"]


def test_a_branch_that_is_dropped_after_the_decision_leaves_it_in_doubt_by_name(tmp_path, log):
    append_as_another(IcebergOutput(tmp_path))
    output = IcebergOutput(tmp_path, branch="audit")
    head = output.table().current_snapshot().snapshot_id
    output.table().manage_snapshots().create_branch(head, "audit").commit()
    staged(output, log)
    output.table().manage_snapshots().remove_branch("audit").commit()
    with pytest.raises(InDoubt, match="has no branch audit"):
        resolve("contract", commit_log=tmp_path / "log", deadline_s=0.1)
    output.table().manage_snapshots().create_branch(head, "audit").commit()
    (last,) = resolve("contract", commit_log=tmp_path / "log", deadline_s=5)
    assert last.state == "COMMITTED"
    assert output.table().scan().use_ref("audit").to_arrow().num_rows == 3


def test_commits_on_other_branches_do_not_prevent_ours(output, log, monkeypatch):
    append_as_another(output)
    head = output.table().current_snapshot().snapshot_id
    output.table().manage_snapshots().create_branch(head, "audit").commit()
    part = staged(output, log)
    real, seen = Transaction.commit_transaction, []

    def interrupted(transaction):
        if not seen:
            seen.append(None)
            output.table().append(pa.table({"value": ["audit"]}), branch="audit")
        return real(transaction)

    monkeypatch.setattr(Transaction, "commit_transaction", interrupted)
    assert attached(output, log, part).commit(part, **OWN).known is Known.COMMITTED
    assert sorted(output.read()) == ["one", "other", "two"]


def test_a_branch_keeps_its_retention(tmp_path, log):
    append_as_another(IcebergOutput(tmp_path))
    output = IcebergOutput(tmp_path, branch="audit")
    head = output.table().current_snapshot().snapshot_id
    kept = {"max_ref_age_ms": 9, "max_snapshot_age_ms": 8, "min_snapshots_to_keep": 7}
    output.table().manage_snapshots().create_branch(head, "audit", **kept).commit()
    attached(output, log, part := staged(output, log)).abort(part, **OWN)  # adds a snapshot
    run(output, log, "b")
    branch = output.table().refs()["audit"]
    assert branch.snapshot_id not in (head, part.snapshot_id)
    assert {name: getattr(branch, name) for name in kept} == kept


def test_a_tag_is_no_branch(tmp_path, log):
    append_as_another(IcebergOutput(tmp_path))
    output = IcebergOutput(tmp_path, branch="v1")
    head = output.table().current_snapshot().snapshot_id
    output.table().manage_snapshots().create_tag(head, "v1").commit()
    with pytest.raises(ConfigurationError, match="is a tag") as caught:
        run(output, log)
    assert "CREATE BRANCH" not in str(caught.value)


def test_tables_of_format_version_1_are_written(tmp_path, log):
    output = IcebergOutput(tmp_path)
    output.catalog().drop_table(NAME)
    output.catalog().create_table(NAME, output.schema, properties={"format-version": "1"})
    run(output, log)
    assert output.table().format_version == 1
    run(output, log, "b", "three")
    assert sorted(output.read()) == ["one", "three", "two"]


def test_a_partition_field_of_a_dropped_column_is_refused(tmp_path, log):
    output = IcebergOutput(tmp_path)
    output.catalog().drop_table(NAME)
    columns = pa.schema([*output.schema, pa.field("day", pa.string())])
    table = output.catalog().create_table(NAME, columns, properties={"format-version": "1"})
    with table.update_spec() as change:
        change.add_identity("day")
    with table.update_spec() as change:
        change.remove_field("day")  # in version 1 it stays, as void
    with table.update_schema() as change:
        change.delete_column("day")
    with pytest.raises(ConfigurationError, match="a column that was dropped"):
        run(output, log)


def test_a_third_format_version_is_refused(output, log):
    metadata = Path(output.table().metadata_location.removeprefix("file://"))
    newer = {**json.loads(metadata.read_text()), "format-version": 3, "next-row-id": 0}
    metadata.write_text(json.dumps(newer))
    with pytest.raises(ConfigurationError, match="format version 3"):
        run(output, log)


def test_a_log_that_was_lost_is_noticed(output, log):
    assert IcebergParticipant("contract", output.address).traces() == []
    run(output, log)
    (trace,) = IcebergParticipant("contract", output.address).traces()
    assert "default.shop.orders has rows of it" in trace
    assert IcebergParticipant("contr", output.address).traces() == []


def test_many_snapshots_and_their_expiry_in_a_row(output, log):
    for epoch in "abc":
        run(output, log, epoch, f"row-{epoch}")
        output.table().maintenance.expire_snapshots().older_than(
            dt.datetime.now() + dt.timedelta(days=1)
        ).commit()
    assert sorted(output.read()) == ["row-a", "row-b", "row-c"]
    assert isinstance(log.records()[-1], LogRecord)


def test_an_older_copy_of_the_table_by_another_name_is_refused(output, log, tmp_path):
    run(output, log, "a")
    older = output.table().metadata_location
    run(output, log, "b")
    catalog = output.catalog()
    for name, location in (("older", older), ("moved", output.table().metadata_location)):
        catalog.register_table(f"shop.{name}", location)
    with pytest.raises(NewCluster, match=r"Version 2 of table default\.shop\.older is missing"):
        run(IcebergOutput(tmp_path, name="shop.older"), log, "c")
    run(IcebergOutput(tmp_path, name="shop.moved"), log, "c")
    run(IcebergOutput(tmp_path, name="shop.new"), log, "d")
    assert len(catalog.load_table("shop.moved").scan().to_arrow()) == 6


def test_one_table_by_two_names_is_refused_before_the_claim(output, log):
    """The second output would find the first one's version, and take it for its own."""
    other = TableAddress(NAME, "other", properties=output.address.properties)
    catalog = load_catalog("other", **other.properties)
    catalog.create_namespace_if_not_exists("shop")
    catalog.register_table(NAME, output.table().metadata_location)
    committer = Committer(log, [output.participant(), IcebergParticipant("contract", other)])
    with pytest.raises(ConfigurationError, match=r"Two outputs write to the same target.*other\."):
        committer.run_epoch(BATCH, "a", lambda _: pytest.fail("it must not begin"))
    assert not log.history.last_claim
