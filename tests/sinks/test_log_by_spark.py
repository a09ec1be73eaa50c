"""The commit log, read by delta-spark and SQL."""

from __future__ import annotations

import json

from tests.support.delta_spark import delta_spark_jars
from tests.support.plain_driver import PlainDriver
from tests.support.processes import driver


def test_delta_spark_and_sql_read_the_log(pulsar_standalone, client, tmp_path, name):
    jars = delta_spark_jars()
    topic = f"persistent://public/default/{name}"
    client.entry_producer(topic, create=True).close()
    plain = PlainDriver(pulsar_standalone.service_url, tmp_path / "log", name, topic)
    for epoch in ("0", "1"):
        plain.run(epoch)
    plain.run("2", count=0)
    expected = [r for r in plain.records() if r.state == "COMMITTED"]
    plain.close()
    args = (str(tmp_path / "log" / name), jars, str(tmp_path / "warehouse"))
    with driver("tests.sinks.log_reader", *args) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err[-3000:]
    states, sums = (json.loads(line) for line in out.splitlines()[-2:])
    assert states == {
        "CLAIMED": 1, "OPEN": 3, "PREPARED": 2, "COMMITTED": 2, "ABORTING": 1, "EMPTY": 1
    }  # fmt: skip
    assert sums == [[r.epoch, r.records, str(r.checksum), topic] for r in expected]
