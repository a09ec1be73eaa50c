"""What programs beside the job have written, when they were killed at any step."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable, write_deltalake

from eos.chaos._records import records_of, text_of
from eos.chaos._topic_inputs import RollingInputs
from eos.chaos.checker.check import check
from eos.chaos.checker.history import AnomalyKind
from eos.chaos.cluster.companions import Archiver, KeyedCounter
from eos.chaos.cluster.proxy import FaultProxy
from eos.chaos.cluster.target import path_of
from eos.chaos.job import INPUT_SUBSCRIPTION, Job
from eos.chaos.observers.companion_judges import ArchiveJudge, CountJudge
from eos.chaos.observers.readers import drain, keep, open_client
from eos.chaos.planning import only
from eos.client import PulsarClient
from eos.steps import ArchiveStep
from tests.transport.scripted import wait_until

SCHEDULE = replace(only("deaf"), rows=20)
ENDS = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}


@pytest.mark.chaos  # a broker that forgets a topic's end stops it
@pytest.mark.timeout(300)
def test_each_row_is_there_once(pulsar_standalone, name, tmp_path):
    broker, topic = pulsar_standalone, f"persistent://public/default/{name}"
    job = Job("m:f", "", "", "t", "s", "", str(tmp_path), "", "", input_topic=topic)
    inputs = RollingInputs(job, SCHEDULE, broker, None)
    records = records_of(SCHEDULE, "t")[:4]
    topics = [f"{topic}-partition-{number}" for number in range(2)]
    table = tmp_path / "table"
    archiver = Archiver(
        topic,
        str(table),
        tmp_path,
        service_url=broker.service_url,
        admin_url=broker.admin_url,
        tell=lambda _: None,
    )
    with ArchiveJudge(broker, topics) as judge, archiver:
        # The job's: what it has read is deleted once it is archived.
        for one in topics:
            broker.admin("PUT", f"{path_of(one)}/subscription/{INPUT_SUBSCRIPTION}", ENDS)
        inputs.release(0, records[0])
        wait_until(lambda: archiver.commits > 1, timeout_s=60)
        for number, step in enumerate(ArchiveStep, 1):
            later = threading.Timer(2.0, inputs.release, (number, records[number]))
            later.start()
            assert archiver.kill_at(step, timeout_s=60)
            later.join()
            for one in topics:
                broker.admin("POST", f"{path_of(one)}/subscription/{INPUT_SUBSCRIPTION}/skip_all")
        wrong = archiver.finish()
        given = [one._replace(topic=None) for some in records for one in some]
        history = judge.history(str(table), given, wrong)
    assert check(history) == []
    assert len(history.fresh.sightings) == len(given) == 80
    assert archiver.kills >= 3
    for change, kind in ((lose, AnomalyKind.LOST_WRITE), (double, AnomalyKind.DISAGREEMENT)):
        change(table)
        found = {one.kind for one in check(judge.history(str(table), given, []))}
        assert kind in found or AnomalyKind.SKIP in found


def lose(table: Path) -> None:
    """Delete a row."""
    row = DeltaTable(table).to_pyarrow_table(columns=["__messageId"]).to_pylist()[7]
    DeltaTable(table).delete(f"__messageId = X'{row['__messageId'].hex()}'")


def double(table: Path) -> None:
    """Write all rows once more."""
    write_deltalake(table, DeltaTable(table).to_pyarrow_table(), mode="append")


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_a_counter_counts_each_message_once(pulsar_standalone, name, tmp_path):
    broker, base = pulsar_standalone, f"persistent://public/default/{name}"
    topic = f"{base}-partition-0"
    broker.admin("PUT", f"{path_of(base)}/partitions", 1)
    records = [one for some in records_of(SCHEDULE, base) for one in some]
    with closing(open_client(broker.service_url)) as plain:
        keep(plain, topic)
    over = threading.Event()

    def send() -> None:
        with closing(open_client(broker.service_url)) as plain:  # goes on after an unload
            producer = plain.create_producer(topic)
            for record in records:
                producer.send(text_of(record.id).encode(), partition_key=record.key)
                over.wait(0.02)

    sender = threading.Thread(target=send, daemon=True)
    with FaultProxy(broker.service_url) as proxy:
        counter = KeyedCounter(topic, base, tmp_path, proxy, lambda _: None)
        judge = CountJudge(broker, counter)
        with counter:
            sender.start()
            assert counter.kill_in_transaction(0.0, timeout_s=60)
            assert counter.cut_in_transaction(0.0, timeout_s=60)
            unload = partial(broker.admin, "PUT", f"{path_of(topic)}/unload")
            assert counter.overtake(0.0, unload, timeout_s=60)
            over.set()
            sender.join()
            history = judge.history(drain(broker.service_url, [topic], "all"))
    assert check(history) == []
    assert len(history.fresh.sightings) == len(records)
    with PulsarClient(broker.service_url) as other:
        for wrong, value in ((counter.counts, b"1"), (counter.state, b"99")):
            with other.producer(wrong) as producer:
                producer.send(value, key="key-1").result()
    found = check(judge.history(drain(broker.service_url, [topic], "all")))
    assert {one.kind for one in found} == {AnomalyKind.DUPLICATE, AnomalyKind.TORN_OUTPUTS}
