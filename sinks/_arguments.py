"""What users hand to a sink: the DataFrame and a batch job's key."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from numbers import Integral
from typing import Any

from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
from pyspark.sql.dataframe import DataFrame

from eos.errors import ConfigurationError

BatchKey = str | int | date
"""A batch job's key: text, a whole number, a date, or a datetime with a time zone."""

_FROM_PANDAS = "spark.createDataFrame(pdf)"
_MAKE_ONE = {
    "pandas": _FROM_PANDAS,
    "pyspark.pandas": "psdf.to_spark()",
    "pyarrow": "spark.createDataFrame(table)",
    "polars": "spark.createDataFrame(df.to_arrow())",
}
"""Package of a table that is no DataFrame of Spark's -> how to make it one."""


@dataclass(frozen=True)
class NamedKey:
    """A batch job's key, as the log records it.

    ``similar_keys``: other keys that people use for the same rows: a day's date and its midnight;
    the text that earlier releases made of a datetime. ``midnights``: the moments at which a date
    begins in some zone, as they are recorded.
    """

    text: str
    similar_keys: tuple[str, ...] = ()
    midnights: tuple[str, ...] = ()


def batch_key(epoch: object) -> NamedKey:
    """The key that ``epoch`` is recorded as: ``20261120`` and ``"20261120"`` are one.

    A datetime is a moment: the same one in two time zones is one key, written in UTC.

    Raises:
        ConfigurationError: it is something else, or a datetime without a time zone; True is no
            number.
    """
    match epoch:
        case str():
            return NamedKey(str.__str__(epoch))  # of an Enum its value, not its name
        case bool():
            pass
        case Integral():  # numpy's, too
            return NamedKey(str(int(epoch)))
        case datetime():
            return _moment(epoch)
        case date():
            day = epoch.isoformat()
            return NamedKey(day, (f"{day}T00:00:00+00:00", f"{day}T00:00:00"), _midnights(epoch))
    raise ConfigurationError(
        f"epoch is of type {type(epoch).__name__}: a batch job's key is a str, an int, a "
        "datetime.date, or a datetime.datetime with a time zone.",
        hint=_key_hint(epoch),
    )


def _midnights(day: date) -> tuple[str, ...]:
    """Zones are 12 hours behind UTC to 14 ahead of it, in steps of a quarter of an hour."""
    if not date.min < day < date.max:
        return ()
    utc = datetime.combine(day, time(tzinfo=UTC))
    steps = range(-14 * 4, 12 * 4 + 1)
    return tuple((utc + timedelta(minutes=15 * step)).isoformat() for step in steps)


def _moment(given: datetime) -> NamedKey:
    if given != given:  # pandas' NaT, which is a datetime
        raise ConfigurationError("epoch is NaT, which is no moment.", hint=_key_hint(None))
    if given.utcoffset() is None:
        raise ConfigurationError(
            f"epoch is the datetime {given.isoformat()} without a time zone: which moment that is "
            "depends on the machine.",
            hint="Give it one, for example epoch.replace(tzinfo=UTC). For a whole day use "
            "epoch.date(). A key that an earlier release wrote is epoch.isoformat().",
        )
    moment = given.astimezone(UTC)
    midnights = [one for one in (given, moment) if one.time() == one.time().min]
    others = [given.isoformat(), given.replace(tzinfo=None).isoformat()]
    others += [one.date().isoformat() for one in midnights]
    text = moment.isoformat()
    return NamedKey(text, tuple(dict.fromkeys(one for one in others if one != text)))


def _key_hint(epoch: object) -> str:
    match epoch:
        case Enum():
            return "Use its value: epoch=key.value."
        case uuid.UUID():
            return (
                "Use epoch=str(key), if a rerun of the job has the same one: with a new one each "
                "time nothing is ever skipped."
            )
    return 'Give what names these rows and no others, for example epoch="2026-11-20".'


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
