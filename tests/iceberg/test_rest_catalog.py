"""A REST catalog, which checks a commit by Iceberg's own handlers: the server may be any."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitStateUnknownException
from pyiceberg.table import Transaction

from eos import failpoints
from eos.commit_log import CommitLog
from eos.committer import Committer
from eos.iceberg.part import IcebergPart
from eos.protocol import BATCH, Known, State
from eos.steps import Step
from eos.testing import SinkContract
from tests.iceberg.tables import IcebergOutput
from tests.support.java_iceberg import java_rest_catalog

pytestmark = pytest.mark.broker

OWN = {"deadline_s": 20, "is_own": False}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory) -> Iterator[dict[str, str]]:
    with java_rest_catalog(tmp_path_factory.mktemp("rest")) as url:
        yield {"type": "rest", "uri": url}


@pytest.fixture
def output(tmp_path, catalog, name) -> IcebergOutput:
    return IcebergOutput(tmp_path, catalog=catalog, name=f"shop.{name}")


@pytest.fixture
def log(tmp_path) -> CommitLog:
    return CommitLog.open(tmp_path / "log", "contract")


class TestRestTable(SinkContract):
    @pytest.fixture
    def output(self, tmp_path, catalog, name):
        return IcebergOutput(tmp_path, catalog=catalog, name=f"shop.{name}")


class Died(BaseException):
    """The process is gone."""


def run(output: IcebergOutput, log: CommitLog, epoch: str = "a") -> None:
    Committer(log, [output.participant()], deadline_s=5).run_epoch(
        BATCH, epoch, lambda begun: lambda: [output.write(begun()[0], ["one", "two"])]
    )


def staged(output: IcebergOutput, log: CommitLog) -> IcebergPart:
    def die() -> None:
        raise Died

    with failpoints.armed(Step.PREPARE, die), pytest.raises(Died):
        run(output, log)
    (part,) = log.records()[-1].participants
    assert isinstance(part, IcebergPart)
    return part


def test_of_two_committers_of_one_attempt_one_appends(output, log, monkeypatch):
    part = staged(output, log)
    output.table().append(pa.table({"value": ["other"]}))
    both_looked, real = threading.Barrier(2), Transaction.commit_transaction
    tries = threading.local()

    def together(transaction):
        if not getattr(tries, "done", False):
            tries.done = True
            both_looked.wait(timeout=20)
        return real(transaction)

    monkeypatch.setattr(Transaction, "commit_transaction", together)
    fates = []
    threads = [
        threading.Thread(
            target=lambda: fates.append(output.participant().commit(part, **OWN).known)
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert fates == [Known.COMMITTED] * 2
    assert sorted(output.read()) == ["one", "other", "two"]


def test_after_a_lost_answer_the_table_is_asked(output, log):
    with suppress(CommitStateUnknownException), output.table().transaction() as change:
        change.set_properties({"test.lose-answers": "true"})
    run(output, log)
    assert log.history.newest(BATCH, "a").state is State.COMMITTED
    assert sorted(output.read()) == ["one", "two"]
    assert len(output.table().snapshots()) == 1


def test_commits_of_others_in_between_are_kept(output, log, monkeypatch):
    part = staged(output, log)
    real, seen = Transaction.commit_transaction, []

    def interrupted(transaction):
        if f"eos.{part.app_id}" in transaction.table_metadata.properties and len(seen) < 2:
            seen.append(None)
            output.table().append(pa.table({"value": [f"other {len(seen)}"]}))
        return real(transaction)

    monkeypatch.setattr(Transaction, "commit_transaction", interrupted)
    assert output.participant().commit(part, **OWN).known is Known.COMMITTED
    assert sorted(output.read()) == ["one", "other 1", "other 2", "two"]
