"""Inputs in a topic: each is there once, for any answer of the broker, and in the right epoch."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from eos.chaos._records import id_in, records_of
from eos.chaos._topic_inputs import ChunkedInputs, TopicInputs
from eos.chaos.cluster.target import path_of
from eos.chaos.job import Job
from eos.chaos.planning import only
from eos.client import Transaction
from eos.errors import ConnectionLost, RequestTimeout
from eos.ids import MessageId
from eos.transport.connection import Connection

SCHEDULE = replace(only("deaf"), rows=20)


@pytest.fixture
def job(name, tmp_path):
    topic = f"persistent://public/default/{name}"
    paths = {"checkpoint": str(tmp_path), "input_dir": "", "scratch_dir": ""}
    return Job("m:f", "", "", "t", "s", "", **paths, input_topic=topic)


@pytest.fixture
def inputs(job, pulsar_standalone):
    return TopicInputs(job, SCHEDULE, pulsar_standalone)


def ids_in(client, topic):
    found = []
    for number in range(2):
        with client.reader(f"{topic}-partition-{number}") as reader:
            for batch in reader.read_to(reader.last_id):
                found += [id_in(value) for value in batch.column(0).to_pylist()]
    return sorted(map(str, found))


def test_each_record_is_in_the_topic_once(inputs, job, client):
    records = records_of(SCHEDULE, "t")
    for number, one in enumerate(records[:5]):
        inputs.release(number, one)
    assert ids_in(client, job.input_topic) == sorted(r.id for one in records[:5] for r in one)


@pytest.mark.slow
@pytest.mark.parametrize("is_committed", [True, False])
def test_input_in_doubt_is_searched_before_it_is_resent(
    inputs, job, client, monkeypatch, is_committed
):
    commit, doubts = Transaction.commit, [RequestTimeout("no answer")]

    def in_doubt(txn: Transaction) -> None:
        if not doubts or is_committed:
            commit(txn)
        if doubts:
            raise doubts.pop()

    before, new, *_ = records_of(SCHEDULE, "t")
    inputs.release(0, before)
    monkeypatch.setattr(Transaction, "commit", in_doubt)
    records = [*before, *new]  # as for a query that removes duplicates
    inputs.release(1, records)
    monkeypatch.undo()
    ids = [record.id for record in (*before, *records)]
    assert ids_in(client, job.input_topic) == sorted(ids)


def test_epoch_of_an_input_follows_from_source_offsets(inputs, job, tmp_path):
    first, second, *_ = records_of(SCHEDULE, "t")
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()
    ends = [{}]
    for number, records in enumerate((first, second)):
        inputs.release(number, records)
        ends.append({name: f"{at[0]}:{at[1] + 1}" for name, at in inputs._ends[number].items()})
        spans = {
            name: {"from": ends[-2].get(name, "earliest"), "to": to}
            for name, to in ends[-1].items()
        }
        offset = json.dumps({"partitions": spans, "version": 1})
        (tmp_path / "offsets" / str(number)).write_text(f"v1\n{{}}\n{offset}\n")
    assert inputs.done() == 0
    (tmp_path / "commits" / "0").touch()
    assert inputs.done() == 1
    epoch_of = inputs.epoch_of(2)
    assert {epoch_of(record) for record in first} == {"0"}
    assert {epoch_of(record) for record in second} == {"1"}
    (tmp_path / "offsets" / "1").unlink()
    assert {inputs.epoch_of(2)(record) for record in second} == {None}


@pytest.mark.slow
def test_records_in_chunks_are_there_once_after_a_lost_connection(
    job, client, pulsar_standalone, monkeypatch
):
    inputs = ChunkedInputs(job, SCHEDULE, pulsar_standalone)
    first, second, *_ = records_of(SCHEDULE, "t")
    inputs.release(0, first)
    send, sent = Connection.send, 0

    def lost(connection: Connection, *entry: object) -> None:
        nonlocal sent
        sent += 1
        if sent == 30:
            connection.close()
            raise ConnectionLost("cut")
        send(connection, *entry)

    monkeypatch.setattr(Connection, "send", lost)
    inputs.release(1, second)
    assert sent > 30  # those that were missing then
    assert ids_in(client, job.input_topic) == sorted(one.id for one in (*first, *second))
    for record in (*first, *second):
        topic, place = inputs._places[record.id]
        with client.reader(topic, start=MessageId(*place)) as reader:
            assert id_in(next(reader.read_to(reader.last_id)).column(0)[0].as_py()) == record.id
    entries = [
        pulsar_standalone.admin("GET", f"{path_of(topic)}/internalStats")["numberOfEntries"]
        for topic in (f"{job.input_topic}-partition-{number}" for number in range(2))
    ]
    assert sum(entries) > 2 * len([*first, *second])
