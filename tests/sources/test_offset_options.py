"""Places and times as text in options."""

from __future__ import annotations

import json

import pytest

from eos.errors import ConfigurationError
from eos.sources._offsets import parse_offsets, parse_times

A0, A1, B = (
    f"persistent://public/default/{name}" for name in ("a-partition-0", "a-partition-1", "b")
)
ALL = (A0, A1, B)


def test_a_word_applies_to_all_partitions():
    for word in ("earliest", "latest"):
        assert parse_offsets(word, ALL, "starting_offsets") == dict.fromkeys(ALL, word)


def test_a_partitions_entry_overrides_its_topics():
    text = json.dumps({"a": "latest", A1: "17:0"})
    assert parse_offsets(text, ALL, "starting_offsets") == {A0: "latest", A1: "17:0"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("soon", 'must be "earliest", "latest" or a JSON object'),
        ("[]", "or a JSON object"),
        ('{"c": "1:2"}', "'persistent://public/default/c', which the query does not read"),
        ('{"a": "17"}', 'ledger:entry", such as "17:0", not \'17\''),
        ('{"a": null}', "ledger:entry"),
        ('{"a": "1:-1"}', "ledger:entry"),
        ('{"a b": "1:2"}', "without spaces"),
    ],
)
def test_invalid_places_are_refused(text, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        parse_offsets(text, ALL, "starting_offsets")


def test_a_time_is_in_milliseconds_or_has_a_zone():
    for text in ("1763805600000", "2025-11-22T10:00:00Z", "2025-11-22T11:00:00+01:00"):
        assert parse_times(text, [B], "starting_time") == {B: 1763805600000}
    by_topic = json.dumps({"b": 5, A0: "1970-01-01T00:00:01Z"})
    assert parse_times(by_topic, ALL, "starting_time") == {A0: 1000, B: 5}


@pytest.mark.parametrize(
    "text", ["now", "2025-11-22T10:00:00", "-5", "1e3", '{"b": true}', '{"b": 1.5}', "9" * 20]
)
def test_invalid_times_are_refused(text):
    with pytest.raises(ConfigurationError, match="is not a time"):
        parse_times(text, ALL, "starting_time")
