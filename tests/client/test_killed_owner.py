"""Owners of a state that are killed, or stopped and continued when another one is at work."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from contextlib import ExitStack

import pytest

from eos import KeyedState
from tests.support import admin
from tests.support.judge import drain
from tests.support.processes import driver

MESSAGES = 3000
KEYS = 40
OWNERS = 6


@pytest.mark.timeout(600)
def test_each_message_is_counted_once(client, pulsar_standalone, name):
    url = pulsar_standalone.service_url
    source, state, target = f"{name}-in", f"{name}-state", f"{name}-out"
    admin.create_partitioned(pulsar_standalone.admin_url, target, 1)
    chance = random.Random(48)
    with client.producer(source, create=True, max_batch_messages=7) as producer:
        sent = [f"k{chance.randrange(KEYS)}" for _ in range(MESSAGES)]
        for key in sent:
            producer.send(b"one", key=key)
    arguments = ("eos.chaos._keyed_counter", url, source, state, target)
    stopped_at_work = 0
    with ExitStack() as stack:
        stopped, started = None, []
        for _ in range(OWNERS):
            process = stack.enter_context(driver(*arguments))
            assert process.stdout is not None
            for _ in range(chance.randint(1, 4)):
                process.stdout.readline()
            if stopped is not None:  # it goes on where it was: perhaps with a commit
                stopped.send_signal(signal.SIGCONT)
                stopped = None
            time.sleep(chance.uniform(0, 0.03))  # at any point in the next transaction
            stopped_at_work += process.poll() is None
            if chance.random() < 0.5:
                process.kill()
            else:
                process.send_signal(signal.SIGSTOP)
                stopped = process
                # Its consumer goes away, as after a time without an answer to the broker's pings.
                path = f"/v2/persistent/public/default/{source}/unload"
                admin.call(pulsar_standalone.admin_url, "PUT", path)
            started.append(process)
        for process in started:  # what they hold comes again when they end
            process.send_signal(signal.SIGCONT)
            process.wait(150)  # to open a state takes up to 60 s, a commit without an answer 30 s
    assert stopped_at_work == OWNERS
    with driver(*arguments) as process:
        assert process.stdout is not None
        process.stdout.read()  # until no message is left
        assert process.wait(150) == 0
    expected = Counter(sent)
    with KeyedState(client, state) as counts:
        assert {key: int(value) for key, value in counts.items()} == expected
    seen = [
        (one.key, int(one.value)) for one in drain(url, f"persistent://public/default/{target}")
    ]
    assert sorted(seen) == sorted(
        (key, number) for key, count in expected.items() for number in range(1, count + 1)
    )
    for key in expected:  # no output was made from an old state
        numbers = [number for one, number in seen if one == key]
        assert numbers == sorted(numbers)
