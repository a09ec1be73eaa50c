"""Checks the arguments of a sink's calls: the DataFrame, and the key of a batch job."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from numbers import Integral
from typing import Any

from pyspark.sql.dataframe import DataFrame

from eos.errors import ConfigurationError
from eos.protocol import UNNAMED
from eos.sinks.spark_compat import ClassicDataFrame

# A batch job's key: text, a whole number, a date, or a datetime with a time zone.
BatchKey = str | int | date

_FROM_PANDAS = "spark.createDataFrame(pdf)"
# Package of another kind of table -> the code that makes it a Spark DataFrame.
_MAKE_ONE = {
    "pandas": _FROM_PANDAS,
    "pyspark.pandas": "psdf.to_spark()",
    "pyarrow": "spark.createDataFrame(table)",
    "polars": "spark.createDataFrame(df.to_arrow())",
}


@dataclass(frozen=True)
class NamedKey:
    """A batch job's key, as the log records it.

    ``similar_keys``: other keys that people use for the same rows: a date and its midnight, or the
    text that earlier releases recorded for a datetime. ``midnights``: of a date, the moments at
    which it begins in some time zone.
    """

    text: str
    similar_keys: tuple[str, ...] = ()
    midnights: tuple[str, ...] = ()


def batch_key(epoch: object) -> NamedKey:
    """Return the key that is recorded for ``epoch``; ``20261120`` and ``"20261120"`` are the same.

    A datetime is recorded in UTC: the same moment in two time zones is one key.

    Raises:
        ConfigurationError: it has another type (a bool is not a number), is a datetime without a
            time zone, or looks like the name that eos gives to a job without a key.
    """
    match epoch:
        case str():
            text = str.__str__(epoch)  # the value of an Enum, not its name
            if text.startswith(UNNAMED):
                raise ConfigurationError(
                    f"epoch can't begin with {UNNAMED}: jobs without a key do."
                )
            return NamedKey(text)
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
        "epoch must be a str, an int, a datetime.date, or a datetime.datetime with a time zone, "
        f"not {type(epoch).__name__}.",
        hint=_key_hint(epoch),
    )


def _midnights(day: date) -> tuple[str, ...]:
    # In some time zone: from UTC-12 to UTC+14, in quarters of an hour.
    if not date.min < day < date.max:
        return ()
    utc = datetime.combine(day, time(tzinfo=UTC))
    steps = range(-14 * 4, 12 * 4 + 1)
    return tuple((utc + timedelta(minutes=15 * step)).isoformat() for step in steps)


def _moment(given: datetime) -> NamedKey:
    if given != given:  # pandas' NaT, which is a datetime
        raise ConfigurationError("epoch must not be NaT.", hint=_key_hint(None))
    if given.utcoffset() is None:
        raise ConfigurationError(
            f"epoch {given.isoformat()} has no time zone, so its moment depends on the machine.",
            hint="Add one, for example epoch.replace(tzinfo=UTC). For a whole day use "
            "epoch.date(). For a key that an earlier release wrote use epoch.isoformat().",
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
                "Use epoch=str(key) if a rerun of the job has the same key: with a new key each "
                "time, no rerun is skipped."
            )
    return 'Choose a key that names these rows and no others, for example epoch="2026-11-20".'


def check_dataframe(df: Any) -> None:
    """Raise ConfigurationError unless ``df`` is a DataFrame of classic Spark."""
    if isinstance(df, ClassicDataFrame):
        return
    # On 3.5 the DataFrame of Connect is another class.
    if isinstance(df, DataFrame) or type(df).__module__.startswith("pyspark.sql.connect"):
        raise ConfigurationError(
            "Spark Connect is not supported: the sink must run in the driver's process.",
            hint="Run the job with a classic SparkSession (spark-submit, or master(...)).",
        )
    raise ConfigurationError(
        f"Expected a Spark DataFrame, not {_described(df)}.", hint=_hint(type(df))
    )


def check_batch(df: DataFrame) -> None:
    """Raise ConfigurationError if ``df`` is streaming."""
    if df.isStreaming:
        raise ConfigurationError(
            "sink.write takes a batch DataFrame; this one is streaming.",
            hint="Use df.writeStream.foreachBatch(sink).start().",
        )


def _described(thing: object) -> str:
    if thing is None:
        return "None"
    kind = type(thing)
    if kind.__module__ == "builtins":
        return f"{kind.__qualname__}"
    return f"{_package(kind) or kind.__module__}.{kind.__qualname__}"


def _hint(kind: type) -> str:
    if kind is type(None):
        return "Return the DataFrame from the function that makes it; show() returns None."
    return f"Convert it: {_MAKE_ONE.get(_package(kind) or '', _FROM_PANDAS)}."


def _package(kind: type) -> str | None:
    return next((name for name in _MAKE_ONE if f"{kind.__module__}.".startswith(f"{name}.")), None)
