"""What the writer's processes make of the log and of what tasks report."""

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
from eos.sinks._checkpoint_files import planned_at, query_id_of
from eos.sinks._datasource_tasks import EpochName, Process, TaskReport, Writing
from eos.sinks.dataframe_columns import layout_of
from eos.sinks.datasource_writer import PulsarBatchWriter
from eos.sinks.options import WriterOptions
from eos.task_report import TaskSummary

QUERY, OTHER_QUERY = str(uuid.uuid4()), str(uuid.uuid4())


@pytest.fixture
def make_writing(writer_options, tmp_path):
    """One process of the writer, whose commit log is in a folder of its own."""

    def make(folder: str = "log", **more: str) -> Writing:
        given = writer_options | {"commitLog": str(tmp_path / folder), "onRewind": "skip"} | more
        options = WriterOptions.of_stream(given, overwrite=False)
        return Writing(options, layout_of(StructType([StructField("value", StringType())])))

    return make


@pytest.fixture
def epoch() -> EpochName:
    """The first one of a new run."""
    return EpochName(QUERY, "0", str(uuid.uuid4()))


def opened(writing: Writing, epoch: EpochName) -> TaskReport:
    """A task has opened the epoch, and says that it has sent rows."""
    joined = Process.of(writing.options, epoch).run.join(epoch.query_id, epoch.epoch)
    summary = TaskSummary(0, str(uuid.uuid4()), (), ())
    return TaskReport(epoch, pulsar_part(joined.record).mark_uuid, summary.to_json())


def test_a_log_that_the_driver_does_not_have_is_not_shared(make_writing, epoch, log):
    tasks, driver = make_writing(), make_writing("elsewhere")
    report = opened(tasks, epoch)
    with pytest.raises(ConfigurationError, match="not the same place for the driver"):
        driver.commit(epoch, [report])
    assert log()[-1].state is State.OPEN
    tasks.abort(epoch)
    assert log()[-1].state is State.ABORTED


def test_a_log_that_tasks_do_not_share_with_each_other_commits_nothing(make_writing, epoch, log):
    one, another = make_writing(), make_writing("elsewhere", onNewQuery="continue")
    reports = [opened(one, epoch), opened(another, epoch)]
    with pytest.raises(ConfigurationError, match="not the same place for the driver"):
        one.commit(epoch, reports)
    assert [record.state for record in log()][1:] == [State.OPEN, State.ABORTING, State.ABORTED]


def test_an_epoch_that_somebody_has_ended_is_not_committed(make_writing, epoch):
    writing = make_writing()
    report = opened(writing, epoch)
    writing.abort(epoch)
    with pytest.raises(TransactionPoisoned, match="Another process ended"):
        writing.commit(epoch, [report])


def test_what_is_open_is_found_without_a_report_and_only_of_the_query(make_writing, epoch):
    writing = make_writing()
    assert writing.open_epoch("0", None) is None
    opened(writing, epoch)
    assert writing.open_epoch("0", None) == epoch
    assert writing.open_epoch("0", QUERY) == epoch
    assert writing.open_epoch("0", OTHER_QUERY) is None
    assert writing.open_epoch("1", None) is None
    writing.abort(epoch)
    assert writing.open_epoch("0", None) is None


def test_a_checkpoint_tells_its_query_and_when_an_epoch_was_planned(tmp_path):
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


def test_rows_of_a_run_that_was_overtaken_do_not_pass_with_the_epoch(make_writing, epoch, log):
    """The later run has committed the epoch, with rows of its own; this one's rows are nowhere."""
    asleep, later = make_writing(), replace(epoch, run_id=str(uuid.uuid4()))
    report = opened(asleep, epoch)
    make_writing().commit(later, [])
    assert log()[-1].state is State.EMPTY
    with pytest.raises(TransactionPoisoned, match="Another run committed"):
        asleep.commit(epoch, [report])


def test_a_job_that_writes_nothing_more_says_so(writer_options, log, caplog):
    columns = StructType([StructField("value", StringType())])
    make = partial(PulsarBatchWriter, writer_options | {"epoch": "1"}, columns, overwrite=False)
    make().commit([])
    assert "eos.sinks._progress" not in {record.name for record in caplog.records}
    make().commit([])
    assert "epoch 1 of sink" in caplog.text
    assert "nothing is written now" in caplog.text
    assert len([record for record in log() if record.state is State.OPEN]) == 1
