"""What a release of PySpark lacks: marks for the tests, or their parameters, that need it.

A part is looked for where Python can see it; otherwise it has the number of its first release.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Final

import pyspark
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import functions, streaming, types

_RELEASE: Final = tuple(int(part) for part in pyspark.__version__.split(".")[:2])

HAS_DATA_SOURCES: Final = find_spec("pyspark.sql.datasource") is not None
"""Whether there is ``format("pulsar")``, and so a source and a catalog."""
HAS_READ_LIMITS: Final = find_spec("pyspark.sql.streaming.datasource") is not None
"""Whether ``availableNow`` runs several epochs; before 4.2 it runs one."""
HAS_COLLATIONS: Final = hasattr(functions, "collate")
HAS_PARAMETERS_OF_OPTIONS: Final = _RELEASE >= (4, 1)
"""Whether ``WITH (epoch=:e)`` takes parameters."""

# 3.5 translates no error of a job that failed in Java.
JobFailed: Final[type[Exception]] = PySparkException if _RELEASE >= (4, 0) else Py4JJavaError
"""What an action raises whose job failed in Java, by ``raise_error`` for instance."""


def _needs(is_there: bool, what: str, since: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not is_there, reason=f"PySpark has {what} since {since}")


def _needs_type(name: str, since: str) -> pytest.MarkDecorator:
    return _needs(hasattr(types, name), name, since)


needs_data_sources = _needs(HAS_DATA_SOURCES, "data sources in Python", "4.0")
needs_collations = _needs(HAS_COLLATIONS, "collations", "4.0")
needs_variant = _needs_type("VariantType", "4.0")
needs_calendar_intervals = _needs_type("CalendarIntervalType", "4.0")
needs_time = _needs_type("TimeType", "4.1")
needs_geospatial = _needs_type("GeometryType", "4.1")
needs_stateful_processor = _needs(
    hasattr(streaming, "StatefulProcessor"), "transformWithStateInPandas", "4.0"
)
needs_empty_structs = _needs(_RELEASE >= (4, 0), "columns that are a struct without fields", "4.0")
needs_state_format_2 = _needs(_RELEASE >= (4, 0), "format 2 of state stores", "4.0")
needs_commit_validation = _needs(_RELEASE >= (4, 1), "a check of state stores' commits", "4.1")


def newer_types(**arguments: tuple[Any, ...]) -> list[types.DataType]:
    """Make those of the types that this release has: ``VariantType=(), GeometryType=(4326,)``."""
    return [
        getattr(types, name)(*given) for name, given in arguments.items() if hasattr(types, name)
    ]
