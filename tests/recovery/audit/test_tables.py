"""``verify`` of a Delta table: complete only if the table still has the committed rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from eos.commit_log import CommitLog
from eos.committer import Committer
from eos.protocol import BATCH
from tests.testing.outputs import TableOutput

WHOLE = "Every committed epoch is there, complete, without duplicates."
CHANGED = "Every committed epoch was written completely, once; some rows were changed later."
EPOCHS = ["a", "b", "c"]


@pytest.fixture
def output(tmp_path) -> TableOutput:
    return TableOutput(tmp_path / "table")


@pytest.fixture
def write(output, tmp_path) -> Callable[..., None]:
    """Epochs of two rows each; each is one version of the table, from 1 on."""

    def run(*epochs: str) -> None:
        log = CommitLog.open(tmp_path / "log", "contract")
        committer = Committer(log, [output.participant()])
        for epoch in epochs:
            texts = [f"{epoch}1", f"{epoch}2"]
            committer.run_epoch(
                BATCH, epoch, lambda begun, texts=texts: lambda: [output.write(begun()[0], texts)]
            )
        committer.close()

    return run


@pytest.fixture
def verify(recovery, tmp_path):
    return lambda *options: recovery("verify", "--commit-log", tmp_path / "log", *options)


def handle(output: TableOutput) -> DeltaTable:
    return DeltaTable(output.uri)


def unrelated(output: TableOutput, **options) -> None:
    column = handle(output).schema().fields[0].name
    write_deltalake(output.uri, pa.table({column: ["other"]}), **options)


def optimize(output: TableOutput) -> None:
    handle(output).optimize.compact()


def overwrite(output: TableOutput) -> None:
    unrelated(output, mode="overwrite")


def restore(version: int) -> Callable[[TableOutput], None]:
    return lambda output: handle(output).restore(version)


def delete(output: TableOutput) -> None:
    column = handle(output).schema().fields[0].name
    handle(output).delete(f"{column} = 'a1'")


def delete_all(output: TableOutput) -> None:
    handle(output).delete()


def update(output: TableOutput) -> None:
    column = handle(output).schema().fields[0].name
    handle(output).update({column: "'x'"}, predicate=f"{column} = 'a1'")


def merge(output: TableOutput) -> None:
    column = handle(output).schema().fields[0].name
    handle(output).merge(
        pa.table({column: ["a1", "new"]}), f"s.{column} = t.{column}", "s", "t"
    ).when_matched_delete().when_not_matched_insert_all().execute()


def append(output: TableOutput) -> None:
    unrelated(output, mode="append")


def vacuum(output: TableOutput) -> None:
    handle(output).vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False, full=True
    )


def delete_a_file(output: TableOutput) -> None:
    next(Path(output.uri).glob("eos-*.parquet")).unlink()


def cut_a_file(output: TableOutput) -> None:
    path = next(Path(output.uri).glob("eos-*.parquet"))
    path.write_bytes(path.read_bytes()[:-1])


def clean_up_history(output: TableOutput) -> None:
    handle(output).create_checkpoint()
    for path in sorted(Path(output.uri, "_delta_log").glob("*.json"))[:-1]:
        path.unlink()


def remove_by_hand(output: TableOutput) -> None:
    """A commit without an operation."""
    log = Path(output.uri, "_delta_log")
    newest = sorted(log.glob("*.json"))[-1]
    path = json.loads(next(line for line in newest.read_text().splitlines() if '"add"' in line))
    removed = {"path": path["add"]["path"], "dataChange": True, "deletionTimestamp": 1}
    (log / f"{int(newest.stem) + 1:020}.json").write_text(json.dumps({"remove": removed}))


@pytest.mark.parametrize(
    ("steps", "code", "verdict", "says"),
    [
        ([], 0, WHOLE, ["6 rows unchanged in delta"]),
        ([append], 0, WHOLE, []),
        ([vacuum], 0, WHOLE, []),
        ([clean_up_history], 0, WHOLE, []),
        ([optimize], 0, WHOLE, ["3 epochs (from a): files were rewritten by OPTIMIZE"]),
        ([optimize, vacuum], 0, WHOLE, ["OPTIMIZE (version 4)"]),
        ([append, optimize, append, optimize, vacuum], 0, WHOLE, ["OPTIMIZE (version 5)"]),
        ([optimize, restore(3)], 0, WHOLE, []),
        ([optimize, restore(3), restore(4)], 0, WHOLE, ["OPTIMIZE (version 4)"]),
        ([delete], 0, CHANGED, ["epoch a: rows were changed or deleted by DELETE (version 4)"]),
        ([delete_all], 0, CHANGED, ["3 epochs (from a): rows were changed or deleted by"]),
        ([update], 0, CHANGED, ["by UPDATE (version 4)"]),
        ([merge], 0, CHANGED, ["by MERGE (version 4)"]),
        ([optimize, delete], 0, CHANGED, ["DELETE (version 5)"]),
        ([delete, optimize], 0, CHANGED, ["DELETE (version 4)"]),
        ([delete, restore(3)], 0, WHOLE, []),
        (
            [restore(2)],
            1,
            None,
            ["epoch c of batch", "not in the table any more: removed by RESTORE (ver"],
        ),
        ([restore(1)], 1, None, ["removed by RESTORE", "the same for 1 more epochs"]),
        ([restore(2), restore(3)], 0, WHOLE, []),
        ([restore(2), optimize], 1, None, ["RESTORE (version 4)"]),
        ([optimize, restore(2)], 1, None, ["RESTORE (version 5)"]),
        (
            [overwrite],
            1,
            None,
            ["WRITE in mode Overwrite (version 4)", "the same for 2 more epochs"],
        ),
        ([optimize, overwrite, vacuum], 1, None, ["WRITE in mode Overwrite (version 5)"]),
        ([delete, overwrite], 1, None, ["WRITE in mode Overwrite (version 5)"]),
        ([remove_by_hand], 1, None, ["an unnamed operation (version 4)"]),
        ([delete_a_file], 1, None, ["is not in the storage"]),
        ([cut_a_file], 1, None, ["has another size in the storage"]),
        ([restore(2), append, clean_up_history], 2, None, ["history begins at version 5"]),
        ([optimize, append, clean_up_history], 2, None, ["history begins at version 5"]),
    ],
    ids=lambda one: (
        "-".join(getattr(step, "__name__", "") for step in one)
        if isinstance(one, list) and (not one or callable(one[0]))
        else ""
    ),
)
def test_later_commits_of_the_table_are_reported(output, write, verify, steps, code, verdict, says):
    write(*EPOCHS)
    for step in steps:
        step(output)
    ended = verify()
    text = " ".join(ended.out.split())
    assert (ended.code, [part for part in says if part not in text]) == (code, []), ended.out
    for other in (WHOLE, CHANGED):
        assert (other in text) is (other == verdict), ended.out


def run_epoch(tmp_path, epoch: str, *outputs: TableOutput) -> None:
    log = CommitLog.open(tmp_path / "log", "contract")
    committer = Committer(log, [output.participant() for output in outputs])

    def writing(begun):
        parts = begun()
        return lambda: [out.write(part, [epoch]) for out, part in zip(outputs, parts, strict=True)]

    committer.run_epoch(BATCH, epoch, writing)
    committer.close()


def test_rows_are_counted_for_each_output(verify, tmp_path):
    one, other = TableOutput(tmp_path / "one"), TableOutput(tmp_path / "other")
    for epoch in ("a", "b"):
        run_epoch(tmp_path, epoch, one)
    run_epoch(tmp_path, "c", other)
    ended = verify()
    text = " ".join(ended.out.split())
    assert f"1 row unchanged in delta {other.uri}, of 1 epoch;" in text
    assert f"2 rows unchanged in the earlier output delta {one.uri}, of 2" in text
    assert f"{WHOLE} Sink contract: 2 epochs were not written to delta" in text
    assert ended.code == 0
    (sink,) = verify("--json").json["sinks"]
    assert (sink["epochs"], sink["rows"], sink["outputs"]) == (3, 3, [f"delta {other.uri}"])
    found = [(out["epochs"], out["rows"], out["is_earlier"]) for out in sink["by_output"]]
    assert found == [(1, 1, False), (2, 2, True)]
    Path(tmp_path, "one").rename(tmp_path / "away")
    ended = verify()
    assert (ended.code, "1 row unchanged in delta" in " ".join(ended.out.split())) == (2, True)


def test_later_output_does_not_have_earlier_epochs(verify, tmp_path):
    one, later = TableOutput(tmp_path / "one"), TableOutput(tmp_path / "later")
    run_epoch(tmp_path, "a", one)
    run_epoch(tmp_path, "b", one)
    assert WHOLE in (text := " ".join(verify().out.split()))
    assert "were not written to" not in text
    run_epoch(tmp_path, "c", one, later)
    text = " ".join(verify().out.split())
    assert "3 rows unchanged in delta" in text
    assert f"1 row unchanged in delta {later.uri}, of 1 epoch" in text
    assert f"2 epochs were not written to delta {later.uri}." in text
    assert "were not written to" not in verify("--last", 1).out


def test_doctor_finds_a_mismatched_table(recovery, output, write, tmp_path):
    doctor = lambda: recovery("doctor", "--json", "--commit-log", tmp_path / "log")  # noqa: E731
    table, log = Path(output.uri), tmp_path / "log"
    write("a")
    for folder in (table, log):
        shutil.copytree(folder, f"{folder}-old")
    write("b")
    assert doctor().code == 0
    for folder, says in ((table, "older copy of the table"), (log, "the log ends before it")):
        newest = folder.rename(f"{folder}-new")
        shutil.copytree(f"{folder}-old", folder)
        ended = doctor()
        assert (ended.code, says in ended.out) == (1, True), ended.out
        shutil.rmtree(folder)
        newest.rename(folder)
    assert doctor().code == 0


def test_newest_epochs_are_clean_after_an_intended_restore(output, write, verify):
    write(*EPOCHS)
    handle(output).restore(1)
    write("d", "e")
    assert verify().code == 1
    assert verify("--last", 2).code == 0


def test_missing_or_other_table_is_unknown(output, write, verify):
    write(*EPOCHS)
    away = Path(output.uri).rename(f"{output.uri}-away")
    assert verify().code == 2
    unrelated_table = pa.table({"x": ["other"]})
    write_deltalake(output.uri, unrelated_table)
    assert verify().code == 2
    shutil.rmtree(output.uri)
    away.rename(output.uri)
    assert verify().code == 0


def test_added_files_of_an_aborted_attempt_are_found(output, write, verify, tmp_path):
    write("a")
    committer = Committer(CommitLog.open(tmp_path / "log", "contract"), [output.participant()])
    kept = {}

    def plan(begun):
        def writing():
            output.write(begun()[0], ["b1"])
            for path in Path(output.uri).glob("eos-*"):
                kept[path.name] = path.read_bytes()
            raise ValueError("broken")

        return writing

    with pytest.raises(ValueError, match="broken"):
        committer.run_epoch(BATCH, "b", plan)
    log_folder = Path(output.uri, "_delta_log")
    newest = sorted(log_folder.glob("*.json"))[-1]
    lines = [json.loads(line) for line in newest.read_text().splitlines()]
    (add,) = (line["add"] for line in lines if "add" in line)
    (name,) = (name for name in kept if name != add["path"])
    Path(output.uri, name).write_bytes(kept[name])
    again = {"add": {**add, "path": name, "size": len(kept[name])}}
    (log_folder / f"{int(newest.stem) + 1:020}.json").write_text(json.dumps(again))
    ended = verify()
    assert (ended.code, "is aborted, but readable" in ended.out) == (1, True), ended.out
