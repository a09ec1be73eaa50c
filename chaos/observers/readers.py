"""Readers: some watch while faults happen, a fresh one reads everything at the end.

They use the plain ``pulsar-client`` and bypass the fault proxy, like any other consumer.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Self

import pulsar
from deltalake import DeltaTable, QueryBuilder

from eos.chaos._records import id_in
from eos.chaos.checker.history import Position, ReaderSightings, Sighting
from eos.chaos.job import DATABASE_TABLE, ICEBERG_TABLE, key_files

# Returns the record id in a message, or None, and the schema it was written with.
Read = Callable[[Any], tuple[str | None, str]]

_SENTINEL: Final = "chaos-sentinel"
KEEPER: Final = "chaos-keeper"
_POLL_MS: Final = 200
_QUEUE: Final = 5000


def read_text(message: Any) -> tuple[str | None, str]:
    """Read a message whose value contains the record's text."""
    return id_in(message.data()), ""


def open_client(service_url: str) -> pulsar.Client:
    """Open a client without log output."""
    logger = pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull)
    return pulsar.Client(service_url, logger=logger, operation_timeout_seconds=30)


def open_reader(client: pulsar.Client, topic: str, start: Any, keys: str) -> Any:
    """Open a reader; with ``keys``, the folder of a job's, it decrypts."""
    files = map(str, key_files(Path(keys)))
    reading = {"crypto_key_reader": pulsar.CryptoKeyReader(*files)} if keys else {}
    return client.create_reader(topic, start, receiver_queue_size=_QUEUE, **reading)


def keep(client: pulsar.Client, topic: str) -> None:
    """Have the broker keep the messages of ``topic``, by an unused subscription."""
    # Otherwise messages are trimmed every two minutes once a restart or an unload has closed their
    # ledger (measured).
    client.subscribe(topic, KEEPER, initial_position=pulsar.InitialPosition.Earliest).close()


class Background:
    """Runs ``_run`` in a thread while its block runs, until ``_over`` is set."""

    def __init__(self, name: str) -> None:
        self._over = threading.Event()
        # A daemon: a thread that hangs in a library must not keep the harness from ending.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(timeout=60)

    def _run(self) -> None:
        raise NotImplementedError


class Watcher(Background):
    """Reads one partition from its first message, in a thread; a context manager."""

    def __init__(
        self, name: str, service_url: str, topic: str, read: Read = read_text, keys: str = ""
    ) -> None:
        super().__init__(name)
        self._keys = keys
        self.sightings: list[Sighting] = []
        self.topic = topic
        self._service_url = service_url
        self._read = read
        # Where to continue after a failure; the message itself is not repeated.
        self._last: Any = pulsar.MessageId.earliest

    def has_reached(self, position: Position) -> bool:
        """Whether it has seen this message of its topic, or a later one."""
        return bool(self.sightings) and self.sightings[-1].position >= position

    @property
    def last(self) -> Any:
        """The id of the last message that it has seen."""
        return self._last

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._watch()
            except pulsar.PulsarException:  # any failure: it continues where it was
                self._over.wait(0.5)

    def _watch(self) -> None:
        with closing(open_client(self._service_url)) as client:
            reader = open_reader(client, self.topic, self._last, self._keys)
            while not self._over.is_set():
                try:
                    message = reader.read_next(timeout_millis=_POLL_MS)
                except pulsar.Timeout:
                    continue
                sight = _sight(message, self.topic, self._read)
                if sight is not None:
                    self.sightings.append(sight)
                self._last = message.message_id()


def drain(
    service_url: str,
    topics: list[str],
    name: str,
    *,
    read: Read = read_text,
    timeout_s: float = 60.0,
    keys: str = "",
) -> ReaderSightings:
    """Read all messages of the partitions, each up to a sentinel sent now.

    Raises:
        TimeoutError: a sentinel is not readable: the topic is stuck.
    """
    with closing(open_client(service_url)) as client:
        sights = [
            sight for topic in topics for sight in _drain(client, topic, read, timeout_s, keys)
        ]
        return ReaderSightings(name, tuple(sights))


def _drain(
    client: pulsar.Client, topic: str, read: Read, timeout_s: float, keys: str
) -> list[Sighting]:
    # "Nothing came for a while" proves nothing: only the message that was sent last proves the end.
    sentinel = str(uuid.uuid4())
    producer = client.create_producer(topic)
    producer.send(b"", properties={_SENTINEL: sentinel})
    producer.close()
    reader = open_reader(client, topic, pulsar.MessageId.earliest, keys)
    deadline = time.monotonic() + timeout_s
    found: list[Sighting] = []
    try:
        while time.monotonic() < deadline:
            try:
                message = reader.read_next(timeout_millis=500)
            except pulsar.Timeout:
                continue
            if message.properties().get(_SENTINEL) == sentinel:
                return found
            sight = _sight(message, topic, read)
            if sight is not None:
                found.append(sight)
    finally:
        reader.close()
    raise TimeoutError(f"{topic} is stuck: its sentinel was not readable in {timeout_s:.0f} s")


def _sight(message: Any, topic: str, read: Read) -> Sighting | None:
    if _SENTINEL in message.properties():
        return None
    message_id = message.message_id()
    position = Position(message_id.ledger_id(), message_id.entry_id(), message_id.batch_index())
    record, schema = read(message)
    return Sighting(
        at=time.time(),  # after it was read, so never too early: the checker looks for early reads
        topic=topic,
        position=position,
        record=record,
        key=message.partition_key(),
        producer=message.producer_name(),
        schema_version=schema,
    )


def ids_in(table: str, find: Callable[[bytes], str | None] = id_in) -> tuple[str | None, ...]:
    """The id of the record in each row of a Delta table, as found by ``find``; None for a row
    without a record, or a damaged one."""
    if not Path(table, "_delta_log").is_dir():
        return ()
    query = QueryBuilder().register("rows", DeltaTable(table))
    values = query.execute("select value from rows").read_all()["value"].to_pylist()
    return tuple(find(value.encode()) for value in values)


def ids_in_database(
    conninfo: str, find: Callable[[bytes], str | None] = id_in
) -> tuple[str | None, ...]:
    """As ``ids_in``, of the job's table in PostgreSQL."""
    import psycopg  # only runs with a database need it

    with psycopg.connect(conninfo) as connection:
        try:
            rows = connection.execute(f"SELECT value FROM {DATABASE_TABLE}").fetchall()  # noqa: S608
        except psycopg.errors.UndefinedTable:
            return ()
    return tuple(find(str(value).encode()) for (value,) in rows)


def ids_in_iceberg(
    catalog: Mapping[str, str], find: Callable[[bytes], str | None] = id_in
) -> tuple[str | None, ...]:
    """As ``ids_in``, of the job's Iceberg table, by pyiceberg's own scan."""
    from pyiceberg.catalog import load_catalog  # only runs with such a table need it

    opened = load_catalog("default", **catalog)
    if not opened.table_exists(ICEBERG_TABLE):
        return ()
    values = opened.load_table(ICEBERG_TABLE).scan().to_arrow()["value"].to_pylist()
    return tuple(find(str(value).encode()) for value in values)
