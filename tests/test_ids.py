"""Invalid names are refused before any row is sent."""

from __future__ import annotations

import pytest

from eos.errors import ConfigurationError
from eos.ids import MAX_TOPIC_CHARS, TopicName
from eos.protocol._record import check_key

PREFIX = "persistent://public/default/"


def topic_of(characters: int) -> str:
    return PREFIX + "x" * (characters - len(PREFIX))


def test_the_longest_topic_s_partitions_fit_into_a_record():
    name = TopicName.parse(topic_of(MAX_TOPIC_CHARS))
    partition = name.partition(999_999)
    assert check_key(str(partition)) == str(partition)
    assert TopicName.parse(str(partition)) == partition


@pytest.mark.parametrize("suffix", ["", "-partition-3"])
def test_a_longer_topic_is_refused_by_its_length(suffix):
    with pytest.raises(ConfigurationError, match="has 1001 characters, at most 1000") as caught:
        TopicName.parse(topic_of(MAX_TOPIC_CHARS + 1) + suffix)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("character", ["\x00", "\x7f", "\x85", "\n", " ", "\ud800"])
def test_characters_that_a_record_refuses_are_refused_in_a_topic(character):
    with pytest.raises(ConfigurationError, match="expected persistent"):
        TopicName.parse(f"{PREFIX}a{character}b")
