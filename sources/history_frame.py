"""An archive and the rest of its topics as one DataFrame: ``history``."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import col, lit
from pyspark.sql.types import StructField, StructType

from eos.errors import ConfigurationError, IncompatibleSchema
from eos.sources._epoch_planner import EpochPlanner, values_of
from eos.sources._history_files import TOPIC_COLUMN, drops_malformed
from eos.sources._history_table import HistoryTable
from eos.sources._offsets import Ends, place_text
from eos.sources._row_format import METADATA, value_columns
from eos.sources._source_options import SourceOptions
from eos.sources._spark_columns import row_format
from eos.sources._value_format import MALFORMED_REASON
from eos.user_input import plain


def history(
    spark: SparkSession,
    table: str,
    *,
    columns: StructType | str | None = None,
    version: int | None = None,
    **options: Any,
) -> DataFrame:
    """Return all rows of topics, each once: those of their archive, then the messages after it.

    ::

        orders = eos.history(spark, "/data/orders", topic="orders",
                             serviceUrl="pulsar://localhost:6650")
        orders.where("__publishTime > '2026-11-01'").count()

    Spark itself reads the table, with its filters and statistics. The DataFrame keeps the table's
    version, and where that ends: make it again when more was archived. If messages behind that end
    were deleted meanwhile, a query ends with ``DataLost``.

    Args:
        spark: a session with Delta, as of ``delta.configure_spark_with_delta_pip``.
        table: folder or URL of a table of ``eos catalog archive``; this process and Spark's must
            both find it.
        columns: those to read, such as ``"id BIGINT, __key BINARY"``; fewer are cheaper. Default:
            those of the values, and ``METADATA``.
        version: of the table; default: the newest.
        options: of the source, such as ``topic`` or ``topics``. The default of ``schema`` is auto,
            as of an archive.

    Raises:
        ConfigurationError: an option is wrong, the table is not an archive, or Spark lacks Delta.
        IncompatibleSchema: a column of the table has another type than that of the topics.
        EosError: a topic or the table can't be read.
    """
    if taken := {"history", "historyversion", "metadata"} & set(map(plain, options)):
        raise ConfigurationError(
            f"eos.history has no option {min(taken)}.", hint="Set table, version or columns."
        )
    options = {**({} if "schema" in map(plain, options) else {"schema": "auto"}), **options}
    pinned = {} if version is None else {"historyVersion": str(version)}
    parsed = SourceOptions.parse({**options, "history": table, **pinned})
    archive = HistoryTable.for_new_query(parsed)
    ends = {name: place_text(place) for name, place in _ends(parsed, archive).items()}
    source = spark.read.format("pulsar").options(**options, startingOffsets=json.dumps(ends))
    rest = (source.option("metadata", "true") if columns is None else source.schema(columns)).load()
    values = values_of(parsed)
    if len({name.lower() for name in rest.columns}) < len(rest.columns):
        raise ConfigurationError(f"columns: {', '.join(rest.columns)} has a name twice.")
    if columns is not None:
        row_format(values, rest.schema)  # Spark would ask the source later
    past = _snapshot(spark, archive)
    hint = "Set schema as the archive was made, which is auto by default."
    value_columns(past.columns, values.schema.names, archive.uri, hint)
    if drops_malformed(parsed.mode, past.columns):
        past = past.where(col(MALFORMED_REASON).isNull())
    of_topics = col(TOPIC_COLUMN).isin([str(one) for one in parsed.topic_names])
    same = [_column(past, field, archive.uri) for field in rest.schema]
    return past.where(of_topics).select(*same).union(rest)


def _ends(options: SourceOptions, archive: HistoryTable) -> Ends:
    """Return up to where the archive has each partition that it has."""
    if options.pattern is not None:
        raise ConfigurationError(
            "topicsPattern: an archive and its topics become one DataFrame by their names only.",
            hint="Name them in topics, or use the source's option history.",
        )
    planner = EpochPlanner(options, None)
    try:
        places = archive.archived_places(planner.partitions())
    finally:
        planner.close()
    if places is None:
        raise ConfigurationError(
            f"Delta table {archive.uri} is not an archive.",
            hint="Make one with eos catalog archive, or use the source's option history, which "
            "takes any table with the source's columns.",
        )
    return places


def _snapshot(spark: SparkSession, archive: HistoryTable) -> DataFrame:
    # Hadoop knows S3 by another name.
    folder = archive.uri.replace("s3://", "s3a://", 1)
    reader = spark.read.format("delta").option("versionAsOf", archive.version)
    try:
        return reader.load(folder)
    except Exception as error:
        # It is py4j's error, not one of Spark's in Python (4.2).
        if "DATA_SOURCE_NOT_FOUND" not in str(error):
            raise
        raise ConfigurationError(
            "This Spark session can't read Delta tables.",
            hint="Make it by delta.configure_spark_with_delta_pip, or use the source's option "
            "history, which needs no jar.",
        ) from None


def _column(past: DataFrame, field: StructField, uri: str) -> Column:
    """Return the table's column for one of the topics'."""
    name, kind = field.name, field.dataType
    # Delta takes no two names that differ only in case.
    there = {one.name.lower(): one for one in past.schema}
    if name.lower() not in there:
        if name in METADATA:
            raise ConfigurationError(f"Delta table {uri} has no column {name}.")
        return lit(None).cast(kind).alias(name, metadata=field.metadata)  # newer than the archive
    found = there[name.lower()]
    if found.dataType.simpleString() != kind.simpleString():
        raise IncompatibleSchema(
            f"Column {name} of {uri} is {found.dataType.simpleString()}, but that of the topic "
            f"{kind.simpleString()}.",
            hint="If a field was added within it, archive once more. Otherwise archive the topic "
            "into another table, or choose other columns.",
        )
    quoted = "`" + found.name.replace("`", "``") + "`"
    return col(quoted).alias(name, metadata=field.metadata)
