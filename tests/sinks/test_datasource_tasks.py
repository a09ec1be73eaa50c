"""The writer's processes, given the log and the tasks' reports."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from eos.errors import ConfigurationError, TransactionPoisoned
from eos.protocol import State
from eos.pulsar.part import pulsar_part
from eos.sinks._datasource_tasks import EpochName, Process, TaskReport, Writing
from eos.sinks.dataframe_columns import layout_of
from eos.sinks.datasource_writer import PulsarBatchWriter, planned_at, query_id_of
from eos.sinks.options import WriterOptions
from eos.task_report import TaskSummary

QUERY, OTHER_QUERY = str(uuid.uuid4()), str(uuid.uuid4())


@pytest.fixture
def make_writing(writer_options, tmp_path):
    """Makes the writer of one process, with its own folder for the commit log."""

    def make(folder: str = "log", **more: str) -> Writing:
        given = writer_options | {"commitLog": str(tmp_path / folder), "onRewind": "skip"} | more
        options = WriterOptions.of_stream(given, overwrite=False)
        return Writing(options, layout_of(StructType([StructField("value", StringType())])))

    return make


@pytest.fixture
def epoch() -> EpochName:
    """The first epoch of a new run."""
    return EpochName(QUERY, "0", str(uuid.uuid4()))


def opened(writing: Writing, epoch: EpochName) -> TaskReport:
    """Open the epoch as a task, and return a report of sent rows."""
    joined = Process.of(writing.options, epoch).run.join(epoch.query_id, epoch.epoch)
    summary = TaskSummary(0, str(uuid.uuid4()), (), ())
    return TaskReport(epoch, pulsar_part(joined.record).mark_uuid, summary.to_json())


def test_a_log_that_the_driver_does_not_share_is_refused(make_writing, epoch, log):
    tasks, driver = make_writing(), make_writing("elsewhere")
    report = opened(tasks, epoch)
    with pytest.raises(ConfigurationError, match="not the same place for the driver"):
        driver.commit(epoch, [report])
    assert log()[-1].state is State.OPEN
    tasks.abort(epoch)
    assert log()[-1].state is State.ABORTED


def test_a_log_that_tasks_do_not_share_is_refused(make_writing, epoch, log):
    one, another = make_writing(), make_writing("elsewhere", onNewQuery="continue")
    reports = [opened(one, epoch), opened(another, epoch)]
    with pytest.raises(ConfigurationError, match="not the same place for the driver"):
        one.commit(epoch, reports)
    assert [record.state for record in log()][1:] == [State.OPEN, State.ABORTING, State.ABORTED]


def test_an_epoch_ended_by_another_process_is_not_committed(make_writing, epoch):
    writing = make_writing()
    report = opened(writing, epoch)
    writing.abort(epoch)
    with pytest.raises(TransactionPoisoned, match="Another process ended"):
        writing.commit(epoch, [report])


def test_an_open_epoch_is_found_in_the_log_by_its_query(make_writing, epoch):
    writing = make_writing()
    assert writing.open_epoch("0", None) is None
    opened(writing, epoch)
    assert writing.open_epoch("0", None) == epoch
    assert writing.open_epoch("0", QUERY) == epoch
    assert writing.open_epoch("0", OTHER_QUERY) is None
    assert writing.open_epoch("1", None) is None
    writing.abort(epoch)
    assert writing.open_epoch("0", None) is None


def test_a_checkpoint_has_its_query_id_and_the_time_of_a_plan(tmp_path):
    folder = tmp_path / "check point"
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    (folder / "offsets" / "7").write_text('v1\n{"batchTimestampMs":1795428000123}\n{}\n')
    at = datetime(2026, 11, 23, 10, tzinfo=UTC) + timedelta(milliseconds=123)
    for named in (str(folder), folder.as_uri()):
        assert query_id_of(named) == QUERY
        assert planned_at(named, "7") == at
    with pytest.raises(ConfigurationError, match="on_rewind"):
        planned_at(str(folder), "8")
    with pytest.raises(ConfigurationError, match="can't be read"):
        query_id_of(str(tmp_path))
    (folder / "metadata").write_text("[]")
    with pytest.raises(ConfigurationError, match="can't be read"):
        query_id_of(str(folder))


def test_rows_of_an_overtaken_run_are_not_committed(make_writing, epoch, log):
    """The later run has committed the epoch with its own rows; this run's rows are not readable."""
    asleep, later = make_writing(), replace(epoch, run_id=str(uuid.uuid4()))
    report = opened(asleep, epoch)
    make_writing().commit(later, [])
    assert log()[-1].state is State.EMPTY
    with pytest.raises(TransactionPoisoned, match="Another run committed"):
        asleep.commit(epoch, [report])


def test_a_skipped_job_warns(writer_options, log, caplog):
    columns = StructType([StructField("value", StringType())])
    make = partial(PulsarBatchWriter, writer_options | {"epoch": "1"}, columns, overwrite=False)
    make().commit([])
    assert "written before" not in caplog.text
    make().commit([])
    assert "epoch 1 of sink" in caplog.text
    assert "written before (rows: 0): nothing is written now" in caplog.text
    assert len([record for record in log() if record.state is State.OPEN]) == 1
