"""What users hand to a sink: the DataFrame and a batch job's key."""

from __future__ import annotations

from datetime import date
from typing import Any

from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.dataframe import DataFrame

from eos.errors import ConfigurationError

BatchKey = str | int | date
"""A batch job's key. An int counts as its digits, a date or datetime as its ISO text."""

_FROM_PANDAS = "spark.createDataFrame(pdf)"
_MAKE_ONE = {
    "pandas": _FROM_PANDAS,
    "pyspark.pandas": "psdf.to_spark()",
    "pyarrow": "spark.createDataFrame(table)",
    "polars": "spark.createDataFrame(df.to_arrow())",
}
"""Package of a table that is no DataFrame of Spark's -> how to make it one."""


def batch_key(epoch: object) -> str:
    """The text that ``epoch`` is recorded as: ``20261120`` and ``"20261120"`` are one key.

    Raises:
        ConfigurationError: it is neither text nor a whole number nor a date; True is no number.
    """
    match epoch:
        case str():
            return epoch
        case bool():
            pass
        case int():
            return str(int(epoch))
        case date():  # and datetime
            return epoch.isoformat()
    raise ConfigurationError(
        f"epoch is of type {type(epoch).__name__}: a batch job's key is a str, an int, a "
        "datetime.date or a datetime.datetime.",
        hint='Give what names these rows and no others, for example epoch="2026-11-20".',
    )


def check_dataframe(df: Any) -> None:
    """Nothing, when ``df`` is a DataFrame that a sink can write.

    Raises:
        ConfigurationError: it is something else, or belongs to Spark Connect; says what to do.
    """
    if isinstance(df, ClassicDataFrame):
        return
    if isinstance(df, DataFrame):
        raise ConfigurationError(
            "Spark Connect is not supported: the sink has to run in the driver's process.",
            hint="Run the job with a classic SparkSession (spark-submit, or master(...)).",
        )
    raise ConfigurationError(
        f"A Spark DataFrame is wanted; this is {_described(df)}.", hint=_hint(type(df))
    )


def check_batch(df: DataFrame) -> None:
    """Nothing, when ``df`` is a batch job's.

    Raises:
        ConfigurationError: it is a stream's.
    """
    if df.isStreaming:
        raise ConfigurationError(
            "sink.write takes the rows of a batch job; this DataFrame is a stream.",
            hint="Use df.writeStream.foreachBatch(sink).start().",
        )


def _described(thing: object) -> str:
    if thing is None:
        return "None"
    kind = type(thing)
    if kind.__module__ == "builtins":
        return f"of type {kind.__qualname__}"
    return f"a {_package(kind) or kind.__module__}.{kind.__qualname__}"


def _hint(kind: type) -> str:
    if kind is type(None):
        return "A function that makes a DataFrame has to return it; show() and such return None."
    return f"Make it one: {_MAKE_ONE.get(_package(kind) or '', _FROM_PANDAS)}."


def _package(kind: type) -> str | None:
    """The package of a known table type, by its public name."""
    return next((name for name in _MAKE_ONE if f"{kind.__module__}.".startswith(f"{name}.")), None)
