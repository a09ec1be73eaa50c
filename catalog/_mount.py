"""Mounts a catalog in a Spark session, and answers its questions.

``spark.sql.catalog.x`` needs the name of a class in a jar. There is no jar, so the catalog is put
into Spark's own map of catalogs, which is private.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from eos.catalog._java import CLASS_NAME, CatalogAnswers, new_catalog
from eos.errors import ConfigurationError, EosError, TopicNotFound
from eos.ids import TopicName

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
_OF_SPARK: Final = {"spark_catalog", "system"}


@dataclass(frozen=True)
class TopicAnswers:
    """Answers a mounted catalog's questions, as ``CatalogAnswers``, by the cluster's current state.

    Attributes:
        table: returns the name of a topic's registered data source, and its columns; given whether
            a batch job writes to it, and the statement ("" if unknown).
    """

    namespaces: Callable[[], list[str]]
    topics: Callable[[str], list[str]]
    table: Callable[[TopicName, bool, str], tuple[str, StructType]]

    class Java:
        """The Java interface, for py4j."""

        implements = ("java.util.function.BiFunction",)

    def apply(self, question: str, names: Iterable[str]) -> str | None:
        """See ``CatalogAnswers``. An exception would end as a traceback in SQL."""
        try:
            return f"={self._answer(question, list(names))}"
        except TopicNotFound:
            return None
        except EosError as error:
            return "!" + "\n".join((str(error), *getattr(error, "__notes__", ())))

    def _answer(self, question: str, names: list[str]) -> str:
        if question == "namespaces":
            return "\n".join(self.namespaces())
        if question in ("table", "target"):
            *names, statement = names
            name, columns = self.table(_topic(names), question == "target", statement)
            return f"{name}\n{columns.json()}"
        found = self.topics(_topic([*names, "any"]).namespace_name)
        return "\n".join(TopicName.parse(topic).local for topic in found)


def _topic(names: list[str]) -> TopicName:
    """Parse ``["public/default", "orders"]``; other spellings of a topic are not accepted."""
    try:
        topic = TopicName.parse("/".join(names))
    except ConfigurationError:
        topic = None
    if topic is None or names != [topic.namespace_name, topic.local]:
        raise TopicNotFound(f"Topic {names} does not exist.")
    return topic


def mount(spark: SparkSession, name: str, answers: CatalogAnswers) -> None:
    """Make ``answers`` the catalog ``name`` of a session. A catalog mounted before is replaced.

    Raises:
        ConfigurationError: the name is invalid, or another catalog's; the session is one of Spark
            Connect, or of another Spark version, which keeps its catalogs elsewhere.
    """
    if not _NAME.fullmatch(name) or name in _OF_SPARK:
        raise ConfigurationError(
            f"catalog {name!r}: expected lower case letters, digits and '_', and not a name of "
            "Spark's own."
        )
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        raise ConfigurationError(
            "A catalog can't be mounted with Spark Connect, only in a classic session.",
            hint="Use PulsarCatalog.register, which makes tables there, too.",
        )
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    try:
        catalogs = _catalogs(session)
        if _is_taken(spark, catalogs, name):
            raise ConfigurationError(f"Catalog {name} already exists, and is not one of topics.")
        loader = session.getClass().getClassLoader()
        catalogs.put(name, new_catalog(spark._jvm, loader, name, answers))
    except Py4JError as error:
        raise ConfigurationError(
            f"A catalog can't be mounted in this Spark version: {str(error)[:200]}",
            hint="Mounting is experimental, and for PySpark 4.2. Use PulsarCatalog.register "
            "instead.",
        ) from error


def _catalogs(session: Any) -> Any:
    """Return Spark's own map of the catalogs of a session, by name."""
    manager = session.sessionState().catalogManager()
    field = manager.getClass().getDeclaredField("catalogs")
    field.setAccessible(True)
    return field.get(manager)


def _is_taken(spark: SparkSession, catalogs: Any, name: str) -> bool:
    if catalogs.contains(name):
        return bool(catalogs.apply(name).getClass().getName() != CLASS_NAME)
    return spark.conf.get(f"spark.sql.catalog.{name}", None) is not None
