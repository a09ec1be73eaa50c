"""Tiered storage for chaos runs: uploads as the offloader makes them, and wrong answers."""

from __future__ import annotations

import http.client
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow.fs
import pytest

from eos.chaos.cluster.object_store import ObjectStore

DATA = bytes(range(256)) * 40


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    with ObjectStore() as running:
        ask(running, "PUT", "one", DATA)
        yield running


def ask(store: ObjectStore, method: str, rest: str, body: bytes = b"") -> bytes:
    """The answer to a request of the brokers' offloader."""
    place = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
    connection = http.client.HTTPConnection(place, timeout=20)
    connection.request(method, f"/cold/{rest}", body, {"User-Agent": "jclouds/2.6"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return text if answer.status < 300 else b"%d" % answer.status


def reader() -> Any:
    """The file system by which a reader reads."""
    host = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
    retries = pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=1)
    return pyarrow.fs.S3FileSystem(
        endpoint_override=host, scheme="http", region="us-east-1", retry_strategy=retries
    )


def read(name: str, size: int, offset: int) -> bytes:
    with reader().open_input_file(f"cold/{name}") as file:
        return bytes(file.read_at(size, offset))


def test_an_object_in_parts_is_read_by_ranges(store):
    begun = ask(store, "POST", "two?uploads")
    (upload,) = re.findall(rb"<UploadId>(\w+)<", begun)
    for part in (1, 2):
        query = f"partNumber={part}&uploadId={upload.decode()}"
        ask(store, "PUT", f"two?{query}", DATA[:5000] if part == 1 else DATA[5000:])
    ask(store, "POST", f"two?uploadId={upload.decode()}")
    assert sorted(store.names()) == ["one", "two"]
    assert read("two", 300, 4900) == DATA[4900:5200]
    assert read("two", 10**6, 9000) == DATA[9000:]
    ask(store, "POST", "?delete", b"<Delete><Object><Key>two</Key></Object></Delete>")
    assert store.names() == ["one"]


def test_faults_hit_readers_only_and_end(store):
    before = store.reads
    for change in ({"data": None}, {"is_busy": True}, {"is_cut": True}):
        with store.fault(lambda _, one, change=change: replace(one, **change)):
            with pytest.raises(OSError, match=r"one|AWS Error"):
                read("one", 4000, 0)
            assert ask(store, "GET", "one") == DATA
    with store.fault(lambda _, one: replace(one, data=one.data[:100])):
        assert read("one", 4000, 0) == DATA[:100]
    assert read("one", 4000, 0) == DATA[:4000]
    assert store.reads > before


def test_the_environment_is_as_before():
    before = dict(os.environ)
    with ObjectStore():
        assert os.environ["AWS_ENDPOINT_URL"].startswith("http://127.0.0.1:")
    assert dict(os.environ) == before
