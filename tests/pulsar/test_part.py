"""The part of a Pulsar transaction, and the time to live of a new one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eos.participant import Attempt
from eos.protocol import State
from eos.pulsar.part import MAX_TTL_MS, pulsar_part
from eos.pulsar.participant import time_to_live_ms
from tests.protocol.epochs import claim, opened, step


def attempt_behind(ttl_ms: int, *, has_expired: bool) -> Attempt:
    previous = replace(pulsar_part(opened(claim())), ttl_ms=ttl_ms)
    return Attempt("q", "0", 2, previous, has_expired)


def test_the_first_attempt_has_the_sinks_time_to_live():
    assert time_to_live_ms(1000, Attempt("q", "0", 1, None, has_expired=False)) == 1000


@pytest.mark.parametrize(
    ("lived_ms", "has_expired", "expected_ms"),
    [
        (1000, False, 1000),
        (1000, True, 2000),
        (2000, False, 2000),
        (500, False, 1000),
        (MAX_TTL_MS, True, MAX_TTL_MS),
    ],
)
def test_each_expiry_doubles_the_time_to_live_up_to_24_hours(lived_ms, has_expired, expected_ms):
    assert time_to_live_ms(1000, attempt_behind(lived_ms, has_expired=has_expired)) == expected_ms


def test_a_part_survives_the_round_trip_through_columns():
    claimed = claim()
    for record in (claimed, opened(claimed), step(opened(claimed), State.PREPARED, claimed)):
        part = pulsar_part(record)
        assert type(part).parse(part.payload(), part.columns()) == part
