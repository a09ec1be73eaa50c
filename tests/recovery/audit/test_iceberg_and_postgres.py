"""``verify`` of Iceberg and PostgreSQL tables: each epoch, as far as there is evidence of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from eos.commit_log import CommitLog
from eos.committer import Committer
from eos.protocol import BATCH
from tests.iceberg.tables import IcebergOutput
from tests.postgres.attempts import TableUnderTest
from tests.support.postgres import Shop, log_in, postgres_server, shop  # noqa: F401 - fixtures

WHOLE = "Every committed epoch is there, complete, without duplicates."


@pytest.fixture
def verify(recovery, tmp_path):
    return lambda *options: recovery("verify", "--commit-log", tmp_path / "log", *options)


def write(output: IcebergOutput | TableUnderTest, root: Path, *epochs: str) -> None:
    """Epochs of two rows each."""
    participant = output.participant()
    committer = Committer(CommitLog.open(root / "log", "contract"), [participant])
    for epoch in epochs:
        rows = [f"{epoch}1", f"{epoch}2"]
        committer.run_epoch(
            BATCH, epoch, lambda begun, rows=rows: lambda: [output.write(begun()[0], rows)]
        )
    committer.close()
    participant.close()


def expire(output: IcebergOutput) -> None:
    later = dt.datetime.now() + dt.timedelta(days=1)
    output.table().maintenance.expire_snapshots().older_than(later).commit()


def replace(output: IcebergOutput) -> None:
    """The same rows in another file, as a compaction leaves them."""
    output.table().overwrite(output.table().scan().to_arrow())


def roll_back(output: IcebergOutput) -> None:
    table = output.table()
    oldest = table.snapshots()[0].snapshot_id
    table.manage_snapshots().set_current_snapshot(snapshot_id=oldest).commit()


def set_back(output: IcebergOutput) -> None:
    """The catalog is restored from a backup."""
    table, catalog = output.table(), output.catalog()
    older = table.metadata.metadata_log[-1].metadata_file
    catalog.drop_table(table.name())
    catalog.register_table(table.name(), older)


def delete(output: IcebergOutput) -> None:
    output.table().delete("value = 'a1'")


def append(output: IcebergOutput) -> None:
    output.table().append(pa.table({"value": ["other"]}))


def lose_a_file(output: IcebergOutput) -> None:
    path = output.table().inspect.files()["file_path"][0].as_py()
    Path(path.removeprefix("file://")).unlink()


@pytest.mark.parametrize(
    ("steps", "code", "says"),
    [
        ([], 0, f"6 rows unchanged in iceberg default.shop.orders {WHOLE}"),
        ([append, expire], 0, f"6 rows unchanged in iceberg default.shop.orders {WHOLE}"),
        ([delete], 0, "epoch a: files were replaced by later snapshots ("),
        ([replace], 0, "3 epochs (from a): files were replaced by later snapshots ("),
        ([replace, expire], 2, "3 epochs (from a): not checkable: their files were replaced"),
        ([roll_back], 1, "was rolled back; the same for 1 more epochs"),
        ([set_back], 1, "epoch c of batch, default.shop.orders: version 3 of table"),
        ([lose_a_file], 1, "is not in the storage"),
    ],
    ids=lambda one: "-".join(step.__name__ for step in one) if isinstance(one, list) else "",
)
def test_each_epoch_of_an_iceberg_table_is_checked(tmp_path, verify, steps, code, says):
    output = IcebergOutput(tmp_path)
    write(output, tmp_path, "a", "b", "c")
    for step in steps:
        step(output)
    ended = verify()
    assert (ended.code, says in ended.out) == (code, True), ended.out


@pytest.fixture
def words(shop: Shop, monkeypatch) -> TableUnderTest:  # noqa: F811
    log_in(monkeypatch, shop.server)
    shop.execute("CREATE TABLE words (word text)")
    return TableUnderTest(shop)


NO_MARKS = "3 epochs (from a): rows have no marks: only their commits were checked"


@pytest.mark.broker
@pytest.mark.parametrize(
    ("statement", "code", "says"),
    [
        ("SELECT 1", 0, NO_MARKS),
        ("DELETE FROM words", 0, NO_MARKS),
        ("DELETE FROM eos_epochs WHERE version = 1", 1, "its commit is not in eos_epochs"),
        ("UPDATE eos_epochs SET attempt = 'x' WHERE version = 2", 1, "not in eos_epochs"),
        ("UPDATE eos_epochs SET outcome = 'aborted' WHERE version = 2", 1, "not in eos_epochs"),
        ("DELETE FROM eos_epochs WHERE version < 2", 2, "has no row of this log"),
    ],
)
def test_each_epoch_of_a_postgres_table_is_checked(tmp_path, verify, words, statement, code, says):
    write(words, tmp_path, "a", "b", "c")
    words.shop.execute(statement)
    ended = verify()
    assert (ended.code, says in ended.out) == (code, True), ended.out


@pytest.mark.broker
def test_epochs_that_the_database_has_forgotten_are_not_called_whole(
    tmp_path: Path, verify: Callable[..., object], words: TableUnderTest, monkeypatch
) -> None:
    for module in ("_target_table", "participant"):
        monkeypatch.setattr(f"eos.postgres.{module}.KEPT", 2)
    write(words, tmp_path, "a", "b", "c")
    ended = verify()
    assert ended.code == 2
    assert "epoch a: not checkable: eos_epochs no longer has them" in ended.out
    assert verify("--last", 2).code == 0
