"""Consume, transform, produce in a process that is killed; pulsar-client checks the result."""

from __future__ import annotations

import random
import time

from tests.support import admin
from tests.support.judge import drain
from tests.support.processes import driver

MESSAGES = 3000
KILLS = 4


def test_nothing_is_lost_and_nothing_doubled_when_the_process_is_killed(
    client, pulsar_standalone, name
):
    url = pulsar_standalone.service_url
    source, target = f"{name}-in", f"{name}-out"
    admin.create_partitioned(pulsar_standalone.admin_url, target, 2)
    with client.producer(source, create=True, max_batch_messages=7) as producer:
        for n in range(MESSAGES):
            producer.send(b"%d" % n, key=f"k{n % 10}")
    arguments = ("tests.client.killed_consumer", url, source, target)
    chance = random.Random(19)
    killed_at_work = 0
    for _ in range(KILLS):
        with driver(*arguments) as process:
            assert process.stdout is not None
            for _ in range(chance.randint(1, 4)):
                process.stdout.readline()
            time.sleep(chance.uniform(0, 0.03))  # at any point in the next transaction
            killed_at_work += process.poll() is None
    assert killed_at_work == KILLS
    with driver(*arguments) as process:
        assert process.stdout is not None
        *_, last = process.stdout
        assert last == "done\n"
    seen = [
        one.value
        for number in range(2)
        for one in drain(url, f"persistent://public/default/{target}-partition-{number}")
    ]
    assert sorted(seen) == sorted(b"seen %d" % n for n in range(MESSAGES))
