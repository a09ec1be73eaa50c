"""What a statement says of a table, place by place.

Spark resolves a name once in a statement, and takes the options of the place that comes first for
all of them (measured, PySpark 4.2): ``t WITH (epoch='1')`` beside ``t WITH (epoch='2')`` is twice
epoch 1. A table is not told the options of the others, so the statement is parsed once more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from eos.errors import ConfigurationError

_RELATION = re.compile(
    r"UnresolvedRelation \[(?P<name>[^\n]*?)\], \[(?P<options>[^\n]*?)\], (?:true|false)"
)
"""As Spark shows a table in a plan that is only parsed: its name, its options, is it a stream."""

_PRIVILEGES = re.compile(r"__required_write_privileges__=[A-Z,]*(, )?")
"""What Spark adds to the options where a table is written to."""


def check_options(spark: SparkSession, statement: str, name: Sequence[str]) -> None:
    """Refuse a statement that gives one table different options.

    Args:
        statement: SQL; "" where a DataFrame was made without.
        name: catalog, namespace and table. The statement may leave out the first ones (``USE``).

    Raises:
        ConfigurationError: it does.
    """
    if not re.search(r"(?i)\bWITH\s*\(", statement):
        return
    try:
        parser = spark._jsparkSession.sessionState().sqlParser()
        plan = parser.parsePlan(statement).treeString()
    except Py4JError:
        return  # another Spark; it parses the statement by itself
    spelt = {", ".join(name[begin:]) for begin in range(len(name))}
    given = {
        _PRIVILEGES.sub("", found["options"]).rstrip(", ")
        for found in _RELATION.finditer(plan)
        if found["name"] in spelt
    }
    if len(given) > 1:
        raise ConfigurationError(
            f"The statement names {name[-1]} with different options, and Spark takes those of the "
            "first place for all of them.",
            hint="Mount the catalog under a second name, and use each name once; or make a "
            "DataFrame of each: spark.read.option(...).table(...).",
        )
