"""A place in Spark for a catalog that no setting names.

``spark.sql.catalog.x`` takes the name of a class that a jar has. There is no jar, so the catalog is
put where Spark keeps those that it has made, which is private to it.
"""

from __future__ import annotations

import re
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from eos.catalog._java import CLASS_NAME, CatalogAnswers, new_catalog
from eos.errors import ConfigurationError

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
_OF_SPARK: Final = {"spark_catalog", "system"}


def mount(spark: SparkSession, name: str, answers: CatalogAnswers) -> None:
    """Make ``answers`` the catalog ``name`` of a session. One that was mounted before is replaced.

    Raises:
        ConfigurationError: the name is none, or another catalog's; the session is one of Spark
            Connect, or of a Spark that keeps its catalogs elsewhere.
    """
    if not _NAME.fullmatch(name) or name in _OF_SPARK:
        raise ConfigurationError(
            f"catalog {name!r}: expected small letters, digits and '_', and no name of Spark's own."
        )
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        raise ConfigurationError(
            "Spark Connect has no place for a catalog: only a classic session has.",
            hint="PulsarCatalog.register makes tables there too.",
        )
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    try:
        catalogs = _catalogs(session)
        if _is_taken(spark, catalogs, name):
            raise ConfigurationError(f"There is a catalog {name} already, which is not of topics.")
        loader = session.getClass().getClassLoader()
        catalogs.put(name, new_catalog(spark._jvm, loader, name, answers))
    except Py4JError as error:
        raise ConfigurationError(
            f"This Spark takes no catalog of topics: {str(error)[:200]}",
            hint="This is experimental, and for PySpark 4.2. PulsarCatalog.register needs no such "
            "place.",
        ) from error


def _catalogs(session: Any) -> Any:
    """Spark's own map of the catalogs of a session, by name."""
    manager = session.sessionState().catalogManager()
    field = manager.getClass().getDeclaredField("catalogs")
    field.setAccessible(True)
    return field.get(manager)


def _is_taken(spark: SparkSession, catalogs: Any, name: str) -> bool:
    if catalogs.contains(name):
        return bool(catalogs.apply(name).getClass().getName() != CLASS_NAME)
    return spark.conf.get(f"spark.sql.catalog.{name}", None) is not None
