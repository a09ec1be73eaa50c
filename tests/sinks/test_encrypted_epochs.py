"""End-to-end encryption in Spark: sink, writer and source; plain readers are the judges."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pyspark.sql import SparkSession

from eos import Encryption, PulsarClient
from eos.errors import ConfigurationError
from eos.protocol import State
from eos.testing import PulsarStandalone
from tests.support.encrypted import make_keys, plain_keys
from tests.support.spark_releases import needs_data_sources

ROWS = 2000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with keys."""
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def public(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with their public halves only: no writer needs more."""
    only = tmp_path_factory.mktemp("public")
    for one in folder.glob("*.public.pem"):
        (only / one.name).write_bytes(one.read_bytes())
    return only


@pytest.fixture
def judged(pulsar_standalone: PulsarStandalone, name: str, folder: Path) -> Iterator[Any]:
    """Reads this test's topic with pulsar-client and the private key."""
    judge = pulsar.Client(pulsar_standalone.service_url)

    def read() -> list[bytes]:
        reader = judge.create_reader(
            name, pulsar.MessageId.earliest, crypto_key_reader=plain_keys(folder, "rsa")
        )
        seen = []
        while reader.has_message_available():
            seen.append(reader.read_next(10_000).data())
        reader.close()
        return sorted(seen)

    yield read
    judge.close()


def rows(spark: SparkSession, first: int = 0) -> Any:
    """``ROWS`` rows, with keys."""
    return spark.range(first, first + ROWS, numPartitions=2).selectExpr(
        "CAST(id AS STRING) AS value", "CAST(id % 7 AS STRING) AS key"
    )


def texts(first: int, last: int) -> list[bytes]:
    """The values of the rows."""
    return sorted(b"%d" % number for number in range(first, last))


@pytest.mark.parametrize("batching", ["by_size", "by_key"])
def test_epochs_are_encrypted(
    spark: SparkSession, make_sink: Any, public: Path, judged: Any, log: Any, batching: str
) -> None:
    secret = Encryption(key_location=str(public), encryption_keys=["rsa", "ec"])
    sink = make_sink(encryption=secret, batching=batching, compression="zstd")
    sink.write(rows(spark), epoch="1")
    sink.write(rows(spark, ROWS), epoch="2")
    sink.write(rows(spark), epoch="1")  # again
    assert judged() == texts(0, 2 * ROWS)
    assert "PEM" not in repr(log()) + repr(sink.options)
    assert b"PRIVATE" not in pickle.dumps(secret)


def test_figures_are_verified_without_a_key(
    spark: SparkSession,
    make_sink: Any,
    public: Path,
    tmp_path: Path,
    name: str,
    recovery: Any,
    pulsar_standalone: PulsarStandalone,
) -> None:
    secret = Encryption(key_location=str(public), encryption_keys=["rsa"])
    make_sink(encryption=secret).write(rows(spark), epoch="1")
    where = ("--commit-log", str(tmp_path / "log"), "--service-url", pulsar_standalone.service_url)
    ended = recovery("verify", name, *where)
    assert ended.code == 0, ended


def test_a_missing_public_key_ends_the_job_before_its_transaction(
    spark: SparkSession, make_sink: Any, tmp_path: Path, log: Any
) -> None:
    secret = Encryption(key_location=str(tmp_path), encryption_keys=["rsa"])
    with pytest.raises(ConfigurationError, match="no public key 'rsa'"):
        make_sink(encryption=secret).write(rows(spark), epoch="1")
    assert State.OPEN not in [one.state for one in log()]


def test_a_sink_needs_names_of_keys(make_sink: Any, folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="encryption_keys"):
        make_sink(encryption=Encryption(key_location=str(folder)))


def test_a_function_provides_the_keys(
    spark: SparkSession, make_sink: Any, folder: Path, judged: Any
) -> None:
    pem = (folder / "rsa.public.pem").read_bytes()
    secret = Encryption(
        key_reader=lambda name, kind, metadata: pem if kind == "public" else None,
        encryption_keys=["rsa"],
    )
    make_sink(encryption=secret).write(rows(spark), epoch="1")
    assert judged() == texts(0, ROWS)


@needs_data_sources
def test_format_pulsar_writes_and_reads(
    spark: SparkSession,
    pulsar_standalone: PulsarStandalone,
    name: str,
    folder: Path,
    public: Path,
    tmp_path: Path,
    judged: Any,
) -> None:
    url = {"serviceUrl": pulsar_standalone.service_url, "topic": name}
    rows(spark).write.format("pulsar").mode("append").options(
        **url, sinkId=name, commitLog=str(tmp_path / "log"), createTopics=True,
        encryptionKeys="rsa", keyLocation=str(public),
    ).save()  # fmt: skip
    assert judged() == texts(0, ROWS)

    def read(**more: Any) -> list[Any]:
        return spark.read.format("pulsar").options(**url, **more).load().collect()  # type: ignore[no-any-return]

    seen = read(keyLocation=str(folder))
    assert sorted(bytes(row.value) for row in seen) == texts(0, ROWS)
    with pytest.raises(Exception, match="is encrypted for 'rsa'"):
        read()
    for mode in ("dropmalformed", "permissive"):  # is for values, and must lose no entries
        with pytest.raises(Exception, match=r"no key fits.*Give the private key"):
            read(keyLocation=str(public), mode=mode)
    assert not read(keyLocation=str(public), cryptoFailureAction="discard")
    stored = read(keyLocation=str(public), cryptoFailureAction="consume", metadata=True)
    assert stored
    assert all('"rsa"' in row["__encryptionContext"] for row in stored)


def test_a_client_without_keys_sees_that_the_sinks_entries_are_encrypted(
    spark: SparkSession, make_sink: Any, public: Path, client: PulsarClient, name: str
) -> None:
    secret = Encryption(key_location=str(public), encryption_keys=["rsa"])
    make_sink(encryption=secret, compression="none").write(rows(spark), epoch="1")
    with client.entry_reader(name) as reader:
        entry = next(reader.read(float("inf")))
    assert [one.key for one in entry.metadata.encryption_keys] == ["rsa"]
    assert b"100" not in entry.payload
