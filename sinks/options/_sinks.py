"""The options of all sinks: topics, Delta and Iceberg tables, PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Required, Self

from pydantic import AfterValidator, Field, InstanceOf, field_validator, model_validator

from eos.admin import parse_admin_url
from eos.client.coordinators import MAX_TTL_MS
from eos.client.worker_cache import ClientOptions
from eos.commit_log.location import Location
from eos.delta.folder import Folder
from eos.iceberg.table_address import (
    MAIN,
    TableAddress,
    check_table_name,
    parse_partition_field,
)
from eos.ids import MAX_PARTITIONS, TopicName
from eos.schemas import Schema, schema_of
from eos.sinks._topics import TopicCreation
from eos.sinks.options._base import SinkArguments, SinkOptions, Text, allowed, checked_by
from eos.transport.address import ClusterRules, parse_service_url
from eos.transport.auth import Auth
from eos.transport.message_keys import Encryption
from eos.wire.batch import parse_compression


class PulsarSinkArguments(SinkArguments, total=False):
    """The options of a ``PulsarSink``; see ``PulsarSinkOptions``."""

    service_url: Required[str]
    topic: str | None
    admin_url: str | None
    create_topics: bool | int
    retention_minutes: int | None
    receipt_namespace: str | None
    transaction_ttl_s: float
    request_timeout_s: float
    max_batch_bytes: int
    max_pending_bytes: int
    compression: str
    hashing: Literal["java", "murmur3"]
    batching: Literal["by_size", "by_key"]
    null_values: Literal["refuse", "tombstone"]
    schema: str | Schema
    metadata: bool
    listener_name: str | None
    subscription_prefix: str | None
    auth: Auth
    encryption: Encryption | None


class PulsarSinkOptions(SinkOptions):
    """The options of a ``PulsarSink``, in addition to those of all sinks.

    Attributes:
        service_url: ``pulsar://host:6650`` or ``pulsar+ssl://host:6651``; several hosts by comma.
        topic: the topic of all rows, partitioned or not. None: each row names its topic in a column
            ``topic``.
        admin_url: of the admin API, several hosts by comma; with it, partitions that late sends
            have pinned are found and healed.
        create_topics: create missing topics, unpartitioned; a number: with that many partitions,
            which needs ``admin_url``.
        retention_minutes: how long the broker keeps the messages of topics that ``create_topics``
            creates, with or without a subscription; -1: without limit. Needs ``admin_url``. None:
            the namespace's retention; by default only messages of subscriptions are kept.
        receipt_namespace: ``tenant/namespace`` of the receipt topic; by default that of the topic,
            required if rows name their topics.
        transaction_ttl_s: time to live of an epoch's transaction; longer than the slowest epoch.
        request_timeout_s: timeout of each request, and of the broker's answer to each send.
        max_batch_bytes: size of an entry; or the broker's limit, if that is lower.
        max_pending_bytes: bytes in flight for each task.
        compression: of each entry: auto (LZ4 if it helps), none, lz4, zlib, zstd or snappy.
        hashing: of keys, as in the Java client: java (its default, JavaStringHash) or murmur3.
        batching: by_size: entries have rows of different keys; by_key: of one key each, so that a
            Key_Shared subscription gives each key to one consumer, with more, smaller entries.
        null_values: refuse them; or tombstone: a compacted topic drops the key of such a row.
        schema: of the values, registered with the topic: bytes (nothing is registered), string,
            boolean, int8 to int64, float, double, date, timestamp; json, avro, protobuf (whole
            rows), key_value; or your own schema, such as ``AvroSchema('{...}')``.
        metadata: columns with the source's names are the message's own: ``__key``, ``__eventTime``
            and others. False: all columns are fields of the value, for topics whose records have
            such names.
        listener_name: the brokers' advertised listener that is reachable from here, if they have
            several (``advertisedListeners``).
        subscription_prefix: prefix of the sink's subscriptions: the role's name, for namespaces
            with ``subscriptionAuthMode=Prefix``.
        auth: how to authenticate, and which certificates to trust.
        encryption: encrypts the messages end to end, with the public keys of ``encryption_keys``.
    """

    service_url: Annotated[Text, checked_by(parse_service_url)]
    topic: Text | None = None
    admin_url: Annotated[Text, checked_by(parse_admin_url)] | None = None
    create_topics: bool | Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] = False
    retention_minutes: Annotated[int, Field(ge=-1, le=2**31 - 1)] | None = None
    receipt_namespace: Annotated[str, Field(pattern=r"^[^/\s]+/[^/\s]+$")] | None = None
    transaction_ttl_s: Annotated[float, Field(ge=1, le=MAX_TTL_MS / 1000)] = 600.0
    request_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 30.0
    max_batch_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 1024 * 1024
    max_pending_bytes: Annotated[int, Field(ge=1024)] = 32 * 1024 * 1024
    compression: Annotated[Text, checked_by(parse_compression), AfterValidator(str.lower)] = "auto"
    hashing: Literal["java", "murmur3"] = "java"
    batching: Literal["by_size", "by_key"] = "by_size"
    null_values: Literal["refuse", "tombstone"] = "refuse"
    # Pydantic's models have an attribute of the option's name.
    value_schema: str | InstanceOf[Schema] = Field(default="bytes", alias="schema")
    metadata: bool = True
    listener_name: Text | None = None
    subscription_prefix: Text | None = None
    auth: InstanceOf[Auth] = Auth()
    encryption: InstanceOf[Encryption] | None = None

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """See ``SinkOptions.parse``."""
        options = super().parse(values)
        options.rules  # noqa: B018 - raises here instead of in a task
        return options

    @field_validator("topic")
    @classmethod
    def _topic(cls, value: str | None) -> str | None:
        return None if value is None else str(allowed(TopicName.parse, value))

    @model_validator(mode="after")
    def _has_a_place_for_receipts(self) -> Self:
        if self.topic is None and self.receipt_namespace is None:
            raise ValueError(
                "set topic for all rows; or, if each row has a column 'topic', set "
                'receipt_namespace, for example "public/default"'
            )
        return self

    @model_validator(mode="after")
    def _can_create_partitions(self) -> Self:
        if self.creation is not None and self.creation.partitions and self.admin_url is None:
            raise ValueError("create_topics with a number of partitions needs admin_url")
        if self.retention_minutes is not None and None in (self.creation, self.admin_url):
            raise ValueError("retention_minutes needs create_topics and admin_url")
        if self.retention_minutes == 0:
            raise ValueError("retention_minutes must be at least 1, or -1 for no limit")
        return self

    @field_validator("encryption")
    @classmethod
    def _encrypts(cls, value: Encryption | None) -> Encryption | None:
        if value is not None and not value.encryption_keys:
            raise ValueError("set its encryption_keys: the names of the readers' public keys")
        return value

    @field_validator("value_schema")
    @classmethod
    def _schema(cls, value: str | Schema) -> str | Schema:
        if isinstance(value, str):
            allowed(schema_of, value)
        return value

    @property
    def rules(self) -> ClusterRules:
        """The rules of the cluster's operators."""
        return ClusterRules(self.listener_name, self.subscription_prefix)

    @property
    def creation(self) -> TopicCreation | None:
        """How missing topics are created; None: they are not."""
        if self.create_topics is False:
            return None
        partitions = 0 if self.create_topics is True else self.create_topics
        return TopicCreation(partitions, self.admin_url, self.retention_minutes)

    @property
    def schema_of_values(self) -> Schema | None:
        """The schema of the values; None: they are bytes."""
        chosen = self.value_schema
        return chosen if isinstance(chosen, Schema) else schema_of(chosen)

    @property
    def client(self) -> ClientOptions:
        """The options of the tasks' clients."""
        return ClientOptions(
            service_url=self.service_url,
            auth=self.auth,
            rules=self.rules,
            timeout_s=self.request_timeout_s,
            max_pending_bytes=self.max_pending_bytes,
        )

    @property
    def topic_name(self) -> TopicName:
        """The option ``topic``, parsed."""
        assert self.topic is not None
        return TopicName.parse(self.topic)

    @property
    def receipts_in(self) -> str:
        """The namespace of a new receipt topic."""
        return self.receipt_namespace or self.topic_name.namespace_name


class TableSinkArguments(SinkArguments, total=False):
    """The options of sinks that append or upsert; see ``TableSinkOptions``."""

    merge_on: Sequence[str]
    latest_by: Sequence[str]
    delete_when: str | None


class TableSinkOptions(SinkOptions):
    """The options of sinks that append or upsert, in addition to those of all sinks.

    Attributes:
        merge_on: columns of a key: rows replace those with the same key. By default rows are
            appended.
        latest_by: columns by which the last change of a key is found, if an epoch has several;
            compared in this order, nulls are the oldest.
        delete_when: a condition in Spark's SQL; rows for which it holds delete their key.
    """

    merge_on: tuple[Text, ...] = ()
    latest_by: tuple[Text, ...] = ()
    delete_when: Text | None = None

    @field_validator("merge_on", "latest_by", mode="before")
    @classmethod
    def _names(cls, value: object) -> object:
        return _list_of_names(value)

    @model_validator(mode="after")
    def _has_a_key(self) -> Self:
        if (self.latest_by or self.delete_when) and not self.merge_on:
            raise ValueError("latest_by and delete_when need merge_on, the columns of the key")
        return self


class DeltaSinkArguments(TableSinkArguments, total=False):
    """The options of a ``DeltaSink``; see ``DeltaSinkOptions``."""

    table: Required[str]
    partition_by: Sequence[str]
    merge_schema: bool
    file_bytes: int
    compression: Literal["snappy", "zstd"]


class DeltaSinkOptions(TableSinkOptions):
    """The options of a ``DeltaSink``, in addition to those of ``TableSinkOptions``.

    Attributes:
        table: absolute path or ``s3://bucket/prefix`` of the table, which is created with the first
            DataFrame's columns if it is missing. ``storage_options`` are used for it, too.
        partition_by: partition columns of a new table; existing tables keep theirs.
        merge_schema: add missing columns to the table, and missing fields to its structs, as by
            Delta's ``mergeSchema``. No type is widened.
        file_bytes: size at which a file is closed and the next one is opened.
        compression: of the Parquet files, snappy or zstd.
    """

    table: Text
    partition_by: tuple[str, ...] = ()
    merge_schema: bool = False
    file_bytes: Annotated[int, Field(ge=1024 * 1024)] = 128 * 1024 * 1024
    compression: Literal["snappy", "zstd"] = "snappy"

    @field_validator("partition_by", mode="before")
    @classmethod
    def _partition_by(cls, value: object) -> object:
        return _list_of_names(value)

    @field_validator("table")
    @classmethod
    def _table(cls, value: str) -> str:
        return allowed(lambda uri: Folder(uri).uri, value)

    @model_validator(mode="after")
    def _separate_folders(self) -> Self:
        table, log = _canonical(self.table), _canonical(Location(self.commit_log).uri)
        if _is_within(table, log) or _is_within(log, table):
            # A vacuum of the table would delete the log; recovery would read the table as a log.
            raise ValueError(f"table {table} and commit_log {log} must be in separate folders")
        return self


class IcebergSinkArguments(SinkArguments, total=False):
    """The options of an ``IcebergSink``; see ``IcebergSinkOptions``."""

    table: Required[str]
    catalog: Mapping[str, str] | None
    catalog_name: str
    branch: str
    partition_by: Sequence[str]
    merge_schema: bool
    file_bytes: int
    compression: Literal["snappy", "zstd"]


class IcebergSinkOptions(SinkOptions):
    """The options of an ``IcebergSink``, in addition to those of all sinks.

    Attributes:
        table: ``namespace.name``; created with the first DataFrame's columns if it is missing.
        catalog: the properties of its catalog, as for ``pyiceberg``. By default those that
            ``.pyiceberg.yaml`` or the environment has for ``catalog_name``.
        catalog_name: a different one for each catalog: with ``table`` it names the output.
        branch: of the table, which must exist; readers see ``main`` by default.
        partition_by: columns of a new table, or transforms of them: ``day(ts)``,
            ``bucket(16, id)``, ``truncate(4, name)``; existing tables keep theirs.
        merge_schema: add missing columns to the table, and missing fields to its structs, in a
            commit before the rows are written. No type is widened.
        file_bytes: size at which a file is closed and the next one is opened.
        compression: of the Parquet files, snappy or zstd.
    """

    table: Annotated[Text, checked_by(check_table_name)]
    catalog: Mapping[str, str] | None = Field(default=None, repr=False)
    catalog_name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")] = "default"
    branch: Text = MAIN
    partition_by: tuple[Annotated[str, checked_by(parse_partition_field)], ...] = ()
    merge_schema: bool = False
    file_bytes: Annotated[int, Field(ge=1024 * 1024)] = 128 * 1024 * 1024
    compression: Literal["snappy", "zstd"] = "zstd"

    @field_validator("partition_by", mode="before")
    @classmethod
    def _partition_by(cls, value: object) -> object:
        return _list_of_names(value)

    @property
    def address(self) -> TableAddress:
        """The table."""
        return TableAddress(self.table, self.catalog_name, self.branch, self.catalog or {})


class PostgresSinkArguments(TableSinkArguments, total=False):
    """The options of a ``PostgresSink``; see ``PostgresSinkOptions``."""

    conninfo: Required[str]
    table: Required[str]
    staging_schema: str | None


class PostgresSinkOptions(TableSinkOptions):
    """The options of a ``PostgresSink``, in addition to those of ``TableSinkOptions``.

    Attributes:
        conninfo: the database, as for ``psql``: ``postgresql://user@host:5432/database`` or
            ``host=... dbname=...``; the password in it, in PGPASSWORD, or in a password file that
            driver and executors have. A remote server's certificate is verified, unless ``sslmode``
            says otherwise.
        table: ``schema.table``, or a table of the schema ``public``; created with the first
            DataFrame's columns if it is missing, with ``merge_on`` as its primary key.
            An existing one needs a unique index on ``merge_on``.
        staging_schema: schema of the sink's own tables, ``eos_epochs`` and one for each attempt; by
            default the table's.
    """

    conninfo: Text = Field(repr=False)
    table: Text
    staging_schema: Text | None = None

    @property
    def schema_and_table(self) -> tuple[str, str]:
        """The option ``table``, with its schema."""
        schema, dot, table = self.table.partition(".")
        return (schema, table) if dot else ("public", schema)


def _list_of_names(value: object) -> object:
    if isinstance(value, str):
        raise ValueError(f"must be a list of names: [{value!r}]")
    return value


def _is_within(inner: str, outer: str) -> bool:
    # Also if both are the same folder.
    return f"{inner}/".startswith(f"{outer}/")


def _canonical(uri: str) -> str:
    """Return one name for a folder, however it is written."""
    scheme, separator, path = uri.partition("://")
    if not separator:
        return os.path.realpath(uri)
    return f"{'s3' if scheme == 's3a' else scheme}://{path.rstrip('/')}"
