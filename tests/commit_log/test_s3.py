"""The log in an object store: a real S3 server, and one that ignores conditional puts."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import boto3
import pytest

from eos.commit_log import CommitLog, list_sinks, probe_storage
from eos.errors import CommitLogError, ConfigurationError, Fenced
from tests.protocol.epochs import claim, committed_epoch, opened
from tests.support.processes import ROOT

KEYS = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "hunter2hunter2"}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def served(module: str, *args: str) -> Iterator[str]:
    """The URL of ``python -m module args``, with a free port for ``{port}``, while it runs."""
    with serving(sys.executable, "-m", module, *args) as url:
        yield url


@contextmanager
def serving(*command: str) -> Iterator[str]:
    """The same of another command."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    process = subprocess.Popen(
        [arg.format(port=port) for arg in command],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(url, timeout=5).close()
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                assert time.monotonic() < deadline
                assert process.poll() is None
                time.sleep(0.1)
        yield url
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The URL of moto's S3 server."""
    with served("examples.past.s3_server", "{port}") as url:
        yield url


@pytest.fixture
def bucket(server, name):
    store = boto3.client(
        "s3",
        endpoint_url=server,
        region_name="us-east-1",
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )
    store.create_bucket(Bucket=name)
    return store, name


@pytest.fixture
def where(server, bucket):
    options = {
        **KEYS,
        "AWS_ENDPOINT_URL": server,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
    }
    return f"s3://{bucket[1]}/eos", {**KEYS, **options}


def keys(bucket) -> list[str]:
    store, name = bucket
    return [found["Key"] for found in store.list_objects_v2(Bucket=name).get("Contents", [])]


def opened_log(where, sink_id="orders"):
    return CommitLog.open(where[0], sink_id, storage_options=where[1])


def commit_epochs(log, numbers):
    for number in numbers:
        for record in committed_epoch(log.history.last_claim, str(number)):
            log.append(record)


def test_appended_records_are_read_again_and_the_sink_is_listed(where):
    log = opened_log(where)
    log.append(claim())
    commit_epochs(log, range(3))
    again = CommitLog.open_read_only(where[0], "orders", storage_options=where[1])
    assert again.records() == log.records()
    assert [record.seq for record in again.records()] == list(range(1, 11))
    assert list_sinks(where[0], storage_options=where[1]) == ["orders"]


def test_of_two_drivers_one_is_fenced(where):
    first = opened_log(where)
    first.append(claim())
    second = opened_log(where)
    second.append(claim("run-2"))
    with pytest.raises(Fenced, match="run-2"):
        first.append(opened(first.history.last_claim))


def test_of_many_concurrent_claims_exactly_one_wins_each_seq(where):
    opened_log(where)
    outcomes: list[object] = []

    def work(number: int) -> None:
        log = opened_log(where)
        try:
            outcomes.append(log.append(claim(f"run-{number}")).seq)
        except Fenced:
            outcomes.append("fenced")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    won = sorted(seq for seq in outcomes if isinstance(seq, int))
    assert len(outcomes) == 6
    assert won == list(range(1, len(won) + 1))
    assert len(opened_log(where).records()) == len(won)


def test_compaction_and_retention_work_in_an_object_store(where, bucket):
    log = opened_log(where)
    log.append(claim())
    commit_epochs(log, range(6))
    done = log.compact(keep_epochs=2)
    assert (done.rows_after, done.files_after) == (8, 1)
    commit_epochs(log, [6])
    assert [record.seq for record in opened_log(where).records()][-1] == 22
    assert any(key.endswith(".checkpoint.parquet") for key in keys(bucket))


def test_a_missing_file_is_named_and_the_secret_is_not(where, bucket):
    log = opened_log(where)
    log.append(claim())
    store, name = bucket
    (path,) = [key for key in keys(bucket) if key.endswith(".parquet")]
    store.delete_object(Bucket=name, Key=path)
    with pytest.raises(CommitLogError) as caught:
        opened_log(where)
    assert path.rsplit("/", 1)[1] in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_the_storage_check_leaves_no_files(where, bucket):
    probe = probe_storage(where[0], storage_options=where[1])
    assert (probe.is_writable, probe.is_exclusive) == (True, True)
    assert keys(bucket) == []


def test_a_missing_bucket_is_not_writable(where):
    probe = probe_storage("s3://no-such-bucket-here/eos", storage_options=where[1])
    assert (probe.is_writable, probe.is_exclusive) == (False, False)
    assert "hunter2" not in probe.detail


@pytest.fixture
def careless(server, where):
    """The same store, through a proxy that ignores conditional puts."""
    url, options = where
    with served("tests.commit_log.careless_s3", "{port}", server) as endpoint:
        yield url, {**options, "AWS_ENDPOINT_URL": endpoint}


def test_a_store_that_ignores_conditional_puts_is_found_and_refused(careless, bucket):
    probe = probe_storage(careless[0], storage_options=careless[1])
    assert (probe.is_writable, probe.is_exclusive) == (True, False)
    with pytest.raises(ConfigurationError, match="writers all succeeded"):
        opened_log(careless)
    assert keys(bucket) == []
