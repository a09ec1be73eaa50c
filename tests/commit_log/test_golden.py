"""A log of each earlier release: read as it was written then, and continued."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from eos.commit_log import CommitLog
from eos.errors import CommitLogError
from eos.ids import MessageId, TxnId
from eos.protocol import BATCH, RECORD_VERSION, ReasonKind, State
from eos.pulsar.part import pulsar_part
from tests.protocol.epochs import FIGURES, QUERY, claim, opened, step

GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture
def root(tmp_path):
    shutil.copytree(GOLDEN / "v1", tmp_path / "log")
    return tmp_path / "log"


def test_version_1_is_read_as_it_was_written(root):
    log = CommitLog.open_read_only(root, "orders")
    records = log.records()
    states = [(record.seq, record.epoch, record.state.value) for record in records]
    assert states == [
        (1, None, "CLAIMED"),
        (7, "2026-11-20", "COMMITTED"),
        (13, "2", "COMMITTED"),
        (14, "3", "OPEN"),
        (15, "3", "PREPARED"),
        (16, "3", "COMMITTED"),
        (17, "4", "OPEN"),
        (18, "4", "PREPARED"),
        (19, "4", "COMMITTED"),
        (20, "5", "OPEN"),
        (21, "5", "ABORTING"),
        (22, "5", "ABORTED"),
        (23, "5", "OPEN"),
        (24, "5", "PREPARED"),
        (25, "5", "ABORTED"),
        (26, "5", "OPEN"),
        (27, "5", "ABORTING"),
        (28, "5", "EMPTY"),
        (29, None, "CLAIMED"),
        (30, "6", "OPEN"),
        (31, "6", "PREPARED"),
    ]
    prepared = records[-1]
    assert pulsar_part(prepared).partitions == FIGURES
    assert (prepared.records, prepared.bytes, prepared.checksum) == (4, 300, 2)
    assert (pulsar_part(prepared).txn, pulsar_part(prepared).receipt_id) == (
        TxnId(3, 7),
        MessageId(17, 9),
    )
    assert pulsar_part(prepared).mark_uuid.startswith("0b5c8a52-9c3e-4b5f-8d0a-")
    assert [r.reason.kind for r in records if r.state is State.ABORTED] == [
        ReasonKind.FAILED,
        ReasonKind.EXPIRED,
    ]
    assert {record.record_version for record in records} == {1}
    assert str(records[0].written_at) == "2026-11-20 12:00:00+00:00"


def test_a_log_of_version_1_leads_to_decisions_and_is_continued(root):
    log = CommitLog.open(root, "orders")
    history = log.history
    assert [record.epoch for record in history.unfinished] == ["6"]
    assert history.is_done(QUERY, "0")
    assert history.is_done(BATCH, "2026-11-20")
    assert not history.is_done(BATCH, "2026-11-21")
    claimed = log.append(claim("run-3"))
    log.append(step(history.unfinished[0], State.COMMITTED, claimed))
    log.append(opened(claimed, "7"))
    assert {r.record_version for r in log.records() if r.seq > 31} == {RECORD_VERSION}
    log.compact(keep_epochs=1)
    assert CommitLog.open(root, "orders").history.last_seq == 34


@pytest.mark.parametrize("version", [RECORD_VERSION - 1, RECORD_VERSION + 1])
def test_no_other_version_than_this_release_s_is_written(root, version):
    log = CommitLog.open(root, "orders")
    with pytest.raises(CommitLogError, match="record_version"):
        log.append(replace(claim("run-3"), record_version=version))
    assert log.history.last_seq == 31
