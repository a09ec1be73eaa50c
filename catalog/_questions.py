"""What Spark asks of a mounted catalog, and the answers, as ``_java`` has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pyspark.sql.types import StructType

from eos.errors import ConfigurationError, EosError, TopicNotFound
from eos.ids import TopicName


@dataclass(frozen=True)
class Questions:
    """Answers from what the cluster has now: nothing is remembered.

    Attributes:
        table: the name of a topic's data source, which the session knows, and its columns; given
            whether a job writes to it, and the statement, "" where none is known.
    """

    namespaces: Callable[[], list[str]]
    topics: Callable[[str], list[str]]
    table: Callable[[TopicName, bool, str], tuple[str, StructType]]

    class Java:
        """What py4j makes of it."""

        implements = ("java.util.function.BiFunction",)

    def apply(self, question: str, names: Iterable[str]) -> str | None:
        """See ``_java.CatalogAnswers``. What is raised here would end as a traceback in SQL."""
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
    """``["public/default", "orders"]``: a topic has one spelling, and others are of no topic."""
    try:
        topic = TopicName.parse("/".join(names))
    except ConfigurationError:
        topic = None
    if topic is None or names != [topic.namespace_name, topic.local]:
        raise TopicNotFound(f"There is no topic {names}.")
    return topic
