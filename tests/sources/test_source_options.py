"""Options of the source: spellings of names, and one clear error for each wrong option."""

from __future__ import annotations

import pytest

from eos.errors import ConfigurationError
from eos.ids import TopicName
from eos.sources._source_options import SourceOptions

GOOD = {"service_url": "pulsar://h:1", "topic": "t"}


@pytest.mark.parametrize("name", ["service_url", "serviceUrl", "service.url", "SERVICE-URL"])
def test_case_and_separators_of_names_are_ignored(name):
    assert SourceOptions.parse({name: "pulsar://h:1", "topic": "t"}).service_url == "pulsar://h:1"


def test_several_topics_are_read_each_once():
    options = SourceOptions.parse({"service_url": "pulsar://h:1", "topics": "a, b,a"})
    assert options.topic_names == (TopicName.parse("a"), TopicName.parse("b"))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"service_url": "pulsar://h:1"}, "set one of topic, topics"),
        (GOOD | {"topics": "a"}, "set one of topic, topics"),
        ({"topic": "t"}, "'serviceUrl' is required"),
        (GOOD | {"service_url": "http://h"}, "service_url must begin with"),
        (GOOD | {"topic": "non-persistent://a/b/c"}, "persistent"),
        ({"serviceUrl": "pulsar://h", "topics": "a,,b"}, "expected persistent"),
        (GOOD | {"topicsPattern": "a.*"}, "set one of topic, topics"),
        ({"service_url": "pulsar://h:1", "topicsPattern": "a("}, "is not a regular expression"),
        ({"service_url": "pulsar://h:1", "topicsPattern": "a{99999999999}"}, "is not a regular"),
        ({"service_url": "pulsar://h:1", "topicsPattern": "a/b"}, "expected tenant/namespace/"),
        (GOOD | {"startingTime": "5", "startingOffsets": "latest"}, "or startingTime, not both"),
        (GOOD | {"endingTime": "5", "endingOffsets": "latest"}, "or endingTime, not both"),
        (GOOD | {"maxBytesPerTrigger": "5"}, "maxBytesPerTrigger needs adminUrl"),
        (GOOD | {"maxRowsPerTrigger": "0"}, "option 'maxRowsPerTrigger'"),
        (GOOD | {"minPartitions": "4"}, "minPartitions needs adminUrl"),
        (
            GOOD | {"adminUrl": "http://a:1", "minPartitions": "4", "maxPartitions": "3"},
            "maxPartitions is below minPartitions",
        ),
        (GOOD | {"historyVersion": "3"}, "historyVersion needs history"),
        (GOOD | {"history": "past"}, "not an absolute path"),
        (GOOD | {"history": "s3://key:secret@bucket/past"}, "a user, a password"),
        (GOOD | {"history": "/past", "startingOffsets": "latest"}, "leave out startingOffsets"),
        (GOOD | {"history": "/past", "endingTime": "5"}, "leave out endingTime"),
        (GOOD | {"history": "/past", "topic": "x-partition-1"}, "x-partition-1 is a partition"),
        (GOOD | {"splitBy": "rows"}, "option 'splitBy'"),
        (GOOD | {"subscription": "s", "durableSubscription": "false"}, "is false"),
        (GOOD | {"topik": "t"}, r"there is no option 'topik': did you mean 'topic'\?"),
        (GOOD | {"else": "t"}, "there is no option 'else'; options are: serviceUrl, adminUrl"),
        (GOOD | {"sinkId": "orders"}, "It is for writing"),
        (GOOD | {"metadata": "perhaps"}, "option 'metadata'"),
        (GOOD | {"requestTimeoutS": "0"}, "option 'requestTimeoutS'"),
        (GOOD | {"token": "a", "tokenFile": "b"}, "one authentication method"),
        (GOOD | {"basicUser": "a"}, "basic_password belong together"),
    ],
)
def test_a_wrong_option_is_named(options, complaint):
    with pytest.raises(ConfigurationError, match=complaint):
        SourceOptions.parse(options)


def test_a_pattern_has_a_namespace():
    for text, namespace, local in (
        ("orders-.*", "public/default", "orders-.*"),
        ("persistent://a/b/orders-.*", "a/b", "orders-.*"),
        ("a/b/c/d.*", "a/b", "c/d.*"),
    ):
        options = SourceOptions.parse({"service_url": "pulsar://h:1", "topicsPattern": text})
        assert (options.pattern[0], options.pattern[1].pattern) == (namespace, local)
        assert options.topic_names == ()


def test_splitting_by_keys_needs_no_admin_url():
    assert SourceOptions.parse(GOOD | {"minPartitions": "4", "splitBy": "keys"}).min_partitions == 4


def test_secrets_are_never_shown():
    options = SourceOptions.parse(GOOD | {"token": "hunter2hunter2"})
    assert "hunter2" not in repr(options) + str(options) + repr(options.client)
