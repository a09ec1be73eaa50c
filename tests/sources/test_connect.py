"""The source on Spark Connect: a real server, and a client without a JVM."""

from __future__ import annotations

import json

from tests.support.connect import run_connect_job


def test_batch_and_stream_read_a_topic(send, pulsar_standalone, name, tmp_path):
    send(b"0", b"1", b"2")
    args = (pulsar_standalone.service_url, name, str(tmp_path))
    found = json.loads(run_connect_job("tests.sources.connect_job", *args).splitlines()[-1])
    assert found["batch"] == found["stream"] == ["0", "1", "2"]
    assert found["columns"][:2] == ["value", "__key"]
