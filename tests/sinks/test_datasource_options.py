"""The options of the writer: in any spelling, and equivalent ones of other connectors."""

from __future__ import annotations

import pytest

from eos.errors import ConfigurationError
from eos.schemas import AvroSchema
from eos.sinks.options import WriterOptions

NEEDED = {
    "service_url": "pulsar://localhost:6650",
    "topic": "orders",
    "sink_id": "orders",
    "commit_log": "/data/eos",
}


def of_batch(**more: str) -> WriterOptions:
    return WriterOptions.of_batch(NEEDED | more, overwrite=False)


def refused(given: dict[str, str], *, stream: bool = False, overwrite: bool = False) -> str:
    make = WriterOptions.of_stream if stream else WriterOptions.of_batch
    with pytest.raises(ConfigurationError) as caught:
        make(NEEDED | given, overwrite=overwrite)
    return str(caught.value)


@pytest.mark.parametrize("spelling", ["serviceUrl", "service.url", "SERVICE-URL", "serviceurl"])
def test_options_may_have_the_spelling_of_other_connectors(spelling):
    given = {name: value for name, value in NEEDED.items() if name != "service_url"}
    options = WriterOptions.of_batch({**given, spelling: "pulsar://h:1"}, overwrite=False)
    assert options.service_url == "pulsar://h:1"


def test_text_is_converted_to_the_options_types():
    options = of_batch(
        create_topics="4",
        admin_url="http://localhost:8080",
        transaction_ttl_s="30",
        maxBatchBytes="2048",
        epoch="2026-11-23",
        nullValues="tombstone",
    )
    assert options.creation is not None
    assert options.creation.partitions == 4
    assert (options.transaction_ttl_s, options.max_batch_bytes) == (30.0, 2048)
    assert (options.epoch, options.null_values) == ("2026-11-23", "tombstone")
    assert of_batch(create_topics="true").creation.partitions == 0


def test_a_key_is_not_stripped():
    for epoch in ("2026-11-23 ", " 2026-11-23"):
        assert of_batch(epoch=epoch).epoch == epoch


def test_equivalent_options_of_other_connectors_are_accepted():
    options = of_batch(
        **{
            "pulsar.producer.compressionType": "LZ4",
            "pulsar.producer.hashingScheme": "Murmur3_32Hash",
            "pulsar.producer.batchingMaxBytes": "4096",
        }
    )
    assert (options.compression, options.hashing, options.max_batch_bytes) == (
        "lz4",
        "murmur3",
        4096,
    )
    assert of_batch(**{"kafka.compression.type": "gzip"}).compression == "zlib"


@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("kafka.bootstrap.servers", "service_url"),
        ("kafka.acks", "Kafka's client"),
        ("includeHeaders", "properties"),
        ("pulsar.producer.sendTimeoutMs", "Java client"),
        ("pulsar.client.authPluginClassName", "token"),
        ("pulsar.producer.encryptionKeys", "encryption"),
        ("path", "option('topic'"),
        ("topics", "column 'topic'"),
        ("max_attempts", "a restart of the query"),
        ("on_gap", "Spark leaves no epoch out"),
        ("listeners", "PulsarSink"),
        ("sinkid2", "did you mean 'sink_id'?"),
        ("nothing_like_it", "options are: "),
    ],
)
def test_other_options_of_connectors_are_refused_with_the_alternative(name, instead):
    message = refused({name: "x"})
    assert name in message
    assert instead in message


def test_missing_and_wrong_options_are_named():
    with pytest.raises(ConfigurationError, match="option 'service_url' is required"):
        WriterOptions.of_batch({"topic": "orders"}, overwrite=False)
    assert "transaction_ttl_s" in refused({"transactionTtlS": "soon"})
    assert "twice, as 'pulsar.producer.compressionType' and 'compression'" in refused(
        {"pulsar.producer.compressionType": "lz4", "compression": ""}
    )
    with pytest.raises(ConfigurationError, match="CREATE TEMPORARY VIEW"):
        WriterOptions.of_batch({}, overwrite=False)
    assert "secret" not in refused({"token": "secret", "topic": ""})


def test_modes_that_replace_rows_are_refused():
    assert 'mode("append")' in refused({}, overwrite=True)
    assert 'outputMode("append")' in refused({}, stream=True, overwrite=True)


def test_checkpoint_is_for_streams_and_epoch_for_batch_jobs():
    checkpoint = {"checkpointLocation": "/data/checkpoints/orders"}
    named = NEEDED | checkpoint | {"queryName": "orders"}
    options = WriterOptions.of_stream(named, overwrite=False)
    assert options.checkpoint_location == "/data/checkpoints/orders"
    assert ".option('checkpointLocation'" in refused({}, stream=True)
    WriterOptions.of_stream(NEEDED | {"on_rewind": "skip"}, overwrite=False)
    assert "Spark numbers" in refused(checkpoint | {"epoch": "1"}, stream=True)
    assert "for streams" in refused(checkpoint)


def test_storage_options_are_set_one_by_one():
    options = of_batch(
        **{"storage_options.aws_region": "r", "storageOptions.AWS_ENDPOINT_URL": "u"}
    )
    assert options.storage_options == {"aws_region": "r", "AWS_ENDPOINT_URL": "u"}
    assert "no option" in refused({"storage.aws_region": "r"})


def test_a_schema_definition_is_accepted():
    definition = '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}'
    options = of_batch(schema="avro", schemaDefinition=definition)
    assert options.schema_of_values == AvroSchema(definition)
    assert "set schema to avro or json" in refused({"schema_definition": definition})
    assert "schema_definition: " in refused({"schema_definition": "[]", "schema": "json"})
