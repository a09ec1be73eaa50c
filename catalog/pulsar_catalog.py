"""``PulsarCatalog``: lists and describes topics, and makes tables of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from eos.admin import AdminClient
from eos.catalog._bound_source import bound_source, database_of, source_of, table_of
from eos.catalog._cluster_topics import ClusterTopics, TopicDescription, new_schema, type_name
from eos.catalog._mount import TopicAnswers, mount
from eos.catalog._mounted_tables import MountedTables
from eos.client import PulsarClient
from eos.client.worker_cache import ClientOptions
from eos.errors import ConfigurationError, EosError, TopicNotFound
from eos.ids import TopicName
from eos.schemas import Schema
from eos.sinks import spark_compat
from eos.sinks.dataframe_columns import check_has_schema
from eos.sources.history_frame import history
from eos.transport.address import ClusterRules, parse_service_url
from eos.transport.auth import Auth
from eos.transport.message_keys import Encryption

logger = logging.getLogger(__name__)

_TIMEOUT_S: Final = 30.0
_SESSION_CATALOG: Final = "spark.sql.catalog.spark_catalog"
_PROVIDER: Final = re.compile(r"^Provider: (.+)$", re.MULTILINE)
_TABLE: Final = re.compile(r"(\w+\.)?\w+")


class PulsarCatalog:
    """The topics of a cluster, as tables for a Spark session.

    ::

        catalog = PulsarCatalog(spark, "pulsar://localhost:6650", "http://localhost:8080",
                                commit_log="/data/eos")
        catalog.register("public/default/orders")
        spark.sql("SELECT count(*) FROM public_default.orders").show()
        spark.sql("INSERT INTO public_default.orders WITH (epoch='2026-11-24') SELECT * FROM new")

    Tables belong to the session: a new session must register them again, even if Spark's metastore
    still has their names. Each method raises an ``EosError`` if the broker refuses, or does not
    answer.

    Args:
        admin_url: of the admin API; several hosts by comma.
        commit_log: root of the sinks' logs; without it tables are read only.
        auth: how to authenticate, and which certificates to trust.
        listener_name, subscription_prefix: as for ``PulsarSink``; also used by the tables.
        encryption: of the messages that tables read, and with ``encryption_keys`` write; with a
            ``key_location``.

    Raises:
        ConfigurationError: a URL is wrong.
    """

    def __init__(
        self,
        spark: SparkSession,
        service_url: str,
        admin_url: str,
        *,
        commit_log: str | None = None,
        auth: Auth | None = None,
        listener_name: str | None = None,
        subscription_prefix: str | None = None,
        encryption: Encryption | None = None,
    ) -> None:
        self._spark = spark
        self._service_url = service_url
        self._auth = auth or Auth()
        self._rules = ClusterRules(listener_name, subscription_prefix)
        self._commit_log = commit_log
        self._reads = {} if encryption is None else encryption.as_text()
        self._writes = self._reads if "encryption_keys" in self._reads else {}
        addresses = parse_service_url(service_url)
        self._admin_url = admin_url
        admin = AdminClient(admin_url, self._auth, timeout_s=_TIMEOUT_S, service=addresses)
        self._topics = ClusterTopics(admin, self._connect)

    def namespaces(self, tenant: str | None = None) -> list[str]:
        """Return namespaces as ``tenant/namespace``; None: of all tenants, for superusers."""
        return self._topics.namespaces(tenant)

    def topics(self, namespace: str) -> list[str]:
        """Return the full names of the topics of ``tenant/namespace``, without the broker's own."""
        return [str(topic) for topic in self._topics.names(namespace)]

    def describe(self, topic: str) -> TopicDescription:
        """Return its schema, partitions, sizes, backlog, retention and subscriptions.

        Raises:
            TopicNotFound: the topic does not exist.
        """
        return self._topics.describe(TopicName.parse(topic))

    def create(
        self,
        topic: str,
        *,
        partitions: int = 0,
        schema: Schema | str = "bytes",
        columns: StructType | str | None = None,
    ) -> None:
        """Create a topic, and register its schema.

        Args:
            partitions: 0: not partitioned.
            schema: as for ``PulsarSink``; a name such as ``avro`` makes a schema of ``columns``.
            columns: of its rows, for example ``"id BIGINT, name STRING"``.

        Raises:
            ConfigurationError, InputError: the topic already exists, or schema and columns don't
                fit; a column has a type that no schema has.
        """
        info = new_schema(schema, None if columns is None else _row(columns))
        self._topics.create(TopicName.parse(topic), partitions, info)

    def drop(self, topic: str, *, confirm: str) -> None:
        """Delete a topic with all its messages, for all users, and its table in Spark.

        Args:
            confirm: the topic's full name again: ``persistent://tenant/namespace/topic``.

        Raises:
            ConfigurationError: ``confirm`` is another name.
            TopicNotFound: the topic does not exist.
            NotAllowed: it is in use.
            BrokerNotReady: it has just come into use.
        """
        name = TopicName.parse(topic)
        table = f"{database_of(name.namespace_name)}.{table_of(name)}"
        # Another table of that name may be the user's own. Looked up first: a drop can't be undone.
        is_its_own = self._provider(table) == self._source(name, table)
        self._topics.drop(name, confirm=confirm)
        if is_its_own:
            self._spark.sql(f"DROP TABLE {_in_sql(table)}")

    def register(
        self,
        topic: str,
        *,
        table: str | None = None,
        metadata: Sequence[str] = (),
        sink_id: str | None = None,
        **options: str,
    ) -> str:
        """Make a table of a topic, for SELECT, INSERT, ``readStream.table`` and ``toTable``.

        The columns of the value come from the currently registered schema; register again after it
        changes.

        Args:
            table: its name; default: ``public_default.orders_x`` for ``public/default/orders-x``.
            metadata: columns of the message's own, such as ``["__key", "__keyIsBinary"]``. INSERT
                leaves out those that producers and brokers set, such as ``__publishTime``.
            sink_id: for INSERT; default: ``pulsar_<topic>_<8 digits of a hash>``, which
                ``SHOW TABLE EXTENDED`` shows.
            options: of the source, for all reads: ``startingOffsets="latest"``.

        Returns:
            the table's name with its database, as in ``SHOW TABLES``; SQL needs backquotes for a
            name like a number: ``public_default.`2024```.

        Raises:
            TopicNotFound: the topic does not exist.
            ConfigurationError: another table has that name; or Spark's own catalog is replaced.
        """
        name = TopicName.parse(topic)
        replaced = self._spark.conf.get(_SESSION_CATALOG, None)
        if replaced not in (None, "builtin"):
            # It makes the table, but calls its source "not a valid Spark SQL Data Source".
            raise ConfigurationError(
                f"Spark finds no tables of topics with {_SESSION_CATALOG}={replaced}.",
                hint="catalog.mount() has all topics: SELECT ... FROM pulsar.`public/default`."
                "`orders`; or make a view of a DataFrame of format('pulsar').",
            )
        table = (table or f"{database_of(name.namespace_name)}.{table_of(name)}").lower()
        if "." not in table:
            table = f"{self._spark.catalog.currentDatabase()}.{table}"
        self._check_free(table, name)
        reading, writing = self._options(name, self._kind(name), sink_id)
        called = self._source(name, table)
        source = bound_source(called, reading | options, writing, tuple(metadata))
        self._spark.dataSource.register(source)
        quoted = _in_sql(table)
        self._spark.sql(f"CREATE DATABASE IF NOT EXISTS {quoted.partition('.')[0]}")
        # The metastore may have it from an earlier session, of which the options are lost.
        self._spark.sql(f"DROP TABLE IF EXISTS {quoted}")
        comment = f"topic {name}"
        if writing is not None:
            comment += f"; INSERT writes as sink {writing['sinkId']}"
        self._spark.sql(f"CREATE TABLE {quoted} USING {source.name()} COMMENT {_quoted(comment)}")
        logger.info("table %s: %s", table, comment)
        return table

    def register_all(self, namespace: str) -> list[str]:
        """Make a table of each topic of ``tenant/namespace``, and return their names.

        Topics that can't be tables are left out, with a warning (logger ``eos.catalog``): Spark
        does not support the schema, another table has the name, or the broker does not answer.
        """
        tables = []
        for topic in self.topics(namespace):
            try:
                tables.append(self.register(topic))
            except (AnalysisException, EosError) as error:
                # Spark's text has a traceback of the worker; its line of the source's error says
                # why.
                reason = next(
                    (line for line in str(error).splitlines() if "eos.errors." in line), error
                )
                logger.warning("%s has no table: %s", topic, reason)
        return tables

    def register_history(
        self, topic: str, archive: str, *, view: str | None = None, **options: str
    ) -> str:
        """Make a temporary view of a topic's archive and the rest of the topic: ``eos.history``.

        ::

            catalog.register_history("public/default/orders", "/data/orders")
            spark.sql("SELECT * FROM orders_history WHERE __publishTime > '2026-11-01'")

        Register again when more was archived: the view keeps the table's version.

        Args:
            archive: folder or URL of a table of ``eos catalog archive``.
            view: its name; default: ``orders_x_history`` for ``orders-x``.
            options: as of ``eos.history``.

        Returns:
            the view's name.

        Raises:
            TopicNotFound: the topic does not exist.
            ConfigurationError, IncompatibleSchema: as of ``eos.history``.
        """
        name = TopicName.parse(topic)
        view = view or f"{table_of(name)}_history"
        reading, _ = self._options(name, self._kind(name))
        given: dict[str, Any] = reading | options
        history(self._spark, archive, **given).createOrReplaceTempView(view)
        return view

    def mount(self, name: str = "pulsar", *, metadata: Sequence[str] = ()) -> None:
        """Experimental: mount it as a catalog of Spark, where each topic is a table with its name.

        ::

            catalog.mount("pulsar")
            spark.sql("SELECT * FROM pulsar.`public/default`.`orders-x`")

        It belongs to this session, which must be a classic one: Spark Connect does not support it.
        Each statement looks up the current topics. SQL can't create, alter or drop topics.

        Args:
            name: of the catalog, in SQL.
            metadata: columns of the message's own, for every table, as for ``register``.

        Raises:
            ConfigurationError: another catalog has the name; or this Spark does not support it.
        """
        tables = MountedTables(self._spark, name, tuple(metadata), self._kind, self._options)
        mount(self._spark, name, TopicAnswers(self.namespaces, self.topics, tables.table))

    def _check_free(self, table: str, topic: TopicName) -> None:
        if not _TABLE.fullmatch(table):
            raise ConfigurationError(
                f"table {table!r}: expected letters, digits and '_', as database.table."
            )
        # I8: a user's own table must not be replaced by a topic's.
        if self._provider(table) not in ("", self._source(topic, table)):
            raise ConfigurationError(
                f"Table {table} already exists, and belongs to something else than this topic of "
                f"{self._service_url}.",
                hint=f"Choose another name: register('{topic}', table='...'). DROP TABLE forgets a "
                "topic's table, and leaves the topic.",
            )

    def _source(self, topic: TopicName, table: str) -> str:
        return source_of(topic, table, self._service_url)

    def _kind(self, topic: TopicName) -> str:
        with self._connect() as client:
            if not client.exists(str(topic)):
                raise TopicNotFound(f"Topic {topic} does not exist.")
            return type_name(client.schema(str(topic)))

    def _options(
        self, topic: TopicName, kind: str, sink_id: str | None = None
    ) -> tuple[dict[str, str], dict[str, str] | None]:
        """Return the options for reading, and for writing if there is a commit log."""
        common = {
            "serviceUrl": self._service_url,
            "adminUrl": self._admin_url,
            "topic": str(topic),
            **self._login(),
        }
        # Without a schema, values are bytes: there are no columns to find.
        reading = (common if kind == "bytes" else common | {"schema": "auto"}) | self._reads
        if self._commit_log is None:
            return reading, None
        sink = {"commitLog": self._commit_log, "sinkId": sink_id or source_of(topic)}
        return reading, common | sink | {"schema": kind} | self._writes

    def _provider(self, table: str) -> str:
        """Return the provider of a table; "" if the table does not exist."""
        if not self._spark.catalog.tableExists(_in_sql(table)):
            return ""
        # DESCRIBE does not show it for tables of Python sources (measured).
        database, _, name = table.partition(".")
        shown = self._spark.sql(f"SHOW TABLE EXTENDED IN `{database}` LIKE '{name}'")
        rows = [_PROVIDER.search(row.information) for row in shown.collect()]
        return next((found[1] for found in rows if found), "?")

    def _login(self) -> dict[str, str]:
        given = {**vars(self._auth), **vars(self._rules)}
        if callable(self._auth.token):
            raise ConfigurationError(
                "A function that returns the token can't be an option of a table.",
                hint="Set token_file, or format(...).option(...) without the catalog.",
            )
        return {name: str(value) for name, value in given.items() if value is not None}

    def _connect(self) -> PulsarClient:
        return ClientOptions(self._service_url, self._auth, _TIMEOUT_S, self._rules).make()


def _in_sql(table: str) -> str:
    # Without quotes, 2024 and 1e5 are numbers for Spark. Names have letters, digits and "_" only.
    return ".".join(f"`{part}`" for part in table.split("."))


def _quoted(text: str) -> str:
    # Spark replaces variables in quotes, too, including the environment's (${env:HOME}), and other
    # users may choose a topic's name.
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def _row(columns: StructType | str) -> pa.StructType:
    row: object = columns
    if isinstance(columns, str):
        try:
            row = StructType.fromDDL(columns)
        except ParseException as error:
            row = str(error).strip().splitlines()[0]
    if not isinstance(row, StructType):
        raise ConfigurationError(
            f"The columns {columns!r:.200} are not those of a row: {row}.",
            hint="Set a StructType, or text for Spark: columns='id BIGINT, name STRING'.",
        )
    check_has_schema(row)
    return pa.struct(list(spark_compat.arrow_schema(row)))
