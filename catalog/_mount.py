"""Mounts a catalog in a Spark session, by a Java class that asks Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from eos.errors import ConfigurationError, EosError, TopicNotFound
from eos.ids import TopicName

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]*")
_OF_SPARK: Final = {"spark_catalog", "system"}
_CLASS_NAME: Final = "EosTopics"
_JAVA_VERSION: Final = 8  # the first with static methods of interfaces, such as ``Identifier.of``

_SOURCE: Final = r"""
import java.util.Arrays;
import java.util.Collections;
import java.util.Map;
import java.util.function.BiFunction;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.analysis.AnalysisContext;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.collection.Seq;

public final class EosTopics implements TableCatalog, SupportsNamespaces {
  private static final String NAMESPACES =
      "Namespaces can't be created, altered or dropped by SQL: use pulsar-admin namespaces.";
  private final String name;
  private final BiFunction python;

  public EosTopics(String name, BiFunction python) {
    this.name = name;
    this.python = python;
  }

  // Spark 4.2 keeps the relation of the first place of a statement that names a table, and uses it,
  // with its options, for each other place: of two windows or epochs one would be lost. It asks for
  // this name whenever it looks for one. There is none then, so each place has its own options.
  public String name() {
    scala.collection.mutable.Map kept = AnalysisContext.get().relationCache();
    Iterator keys = kept.keysIterator().toList().iterator();
    while (keys.hasNext()) {
      Object key = keys.next();  // where it is no pair of a name and a version, it has the options
      if (key instanceof Tuple2 && ((Seq) ((Tuple2) key)._1()).head().equals(name))
        kept.remove(key);
    }
    return name;
  }

  public void initialize(String name, CaseInsensitiveStringMap options) {}

  public String[][] listNamespaces() {
    String[] found = lines(ask("namespaces", new String[0]));
    String[][] namespaces = new String[found.length][];
    for (int i = 0; i < found.length; i++) namespaces[i] = new String[] {found[i]};
    return namespaces;
  }

  public String[][] listNamespaces(String[] parent) throws NoSuchNamespaceException {
    if (parent.length == 0) return listNamespaces();
    loadNamespaceMetadata(parent);
    return new String[0][];
  }

  public Map loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
    if (ask("namespace", namespace) == null) throw new NoSuchNamespaceException(namespace);
    return Collections.emptyMap();
  }

  public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
    String answer = ask("tables", namespace);
    if (answer == null) throw new NoSuchNamespaceException(namespace);
    String[] found = lines(answer);
    Identifier[] tables = new Identifier[found.length];
    for (int i = 0; i < found.length; i++) tables[i] = Identifier.of(namespace, found[i]);
    return tables;
  }

  public Table loadTable(Identifier table) throws NoSuchTableException {
    int depth = table.namespace().length;
    String[] names = (String[]) Arrays.copyOf(table.namespace(), depth + 1);
    names[depth] = table.name();
    String answer = ask("table", names);
    if (answer == null) throw new NoSuchTableException(table);
    int end = answer.indexOf('\n');
    // A provider creates its Python source once, with the options of its first call: those of the
    // statement. So it is not called here, and each table has its own provider.
    PythonDataSourceV2 provider = new PythonDataSourceV2();
    provider.setShortName(answer.substring(0, end));
    StructType columns = (StructType) DataType.fromJson(answer.substring(end + 1));
    return provider.getTable(columns, new Transform[0], Collections.emptyMap());
  }

  public Table loadTable(Identifier table, String version) { throw travel(); }
  public Table loadTable(Identifier table, long timestamp) { throw travel(); }

  // Spark 4.0 calls this; the newer method with TableInfo calls it, too.
  public Table createTable(Identifier table, Column[] columns, Transform[] parts, Map properties) {
    throw refused("Topics can't be created by SQL: use PulsarCatalog.create.");
  }

  public Table alterTable(Identifier table, TableChange[] changes) {
    throw refused("Topics can't be altered by SQL: the columns come from the registered schema. "
        + "For the rest use pulsar-admin topics.");
  }

  public boolean dropTable(Identifier table) {
    throw refused("Topics can't be dropped or replaced by SQL: use PulsarCatalog.drop, which asks "
        + "for the full name.");
  }

  public void renameTable(Identifier from, Identifier to) {
    throw refused("Topics can't be renamed.");
  }

  public void createNamespace(String[] namespace, Map metadata) { throw refused(NAMESPACES); }
  public void alterNamespace(String[] namespace, NamespaceChange[] changes) {
    throw refused(NAMESPACES);
  }
  public boolean dropNamespace(String[] namespace, boolean cascade) { throw refused(NAMESPACES); }

  private String ask(String question, String[] names) {
    String answer = (String) python.apply(question, names);
    if (answer == null) return null;
    if (answer.startsWith("!"))
      EosTopics.<RuntimeException>raise(analysisError(answer.substring(1)));
    return answer.substring(1);
  }

  private static String[] lines(String answer) {
    return answer.isEmpty() ? new String[0] : answer.split("\n");
  }

  private static UnsupportedOperationException refused(String why) {
    return new UnsupportedOperationException(why);
  }

  private static UnsupportedOperationException travel() {
    return refused("A topic has no versions: read it WITH (startingTime='...').");
  }

  private static AnalysisException analysisError(String why) {
    // Scripts look for the handler of an error by its condition, which must be one of Spark's.
    return new AnalysisException(why, Option.empty(), Option.empty(), Option.empty(),
        Option.apply("PYTHON_DATA_SOURCE_ERROR"), scala.collection.immutable.Map$.MODULE$.empty(),
        new QueryContext[0]);
  }

  // AnalysisException is checked, and Spark's interface does not declare it.
  private static <T extends Throwable> void raise(Throwable it) throws T { throw (T) it; }
}
"""


@dataclass(frozen=True)
class TopicAnswers:
    """Answers a mounted catalog's questions, by the cluster's current state.

    Attributes:
        table: returns the name of a topic's registered data source, and its columns.
    """

    namespaces: Callable[[], list[str]]
    topics: Callable[[str], list[str]]
    table: Callable[[TopicName], tuple[str, StructType]]

    class Java:
        """The Java interface, for py4j."""

        implements = ("java.util.function.BiFunction",)

    def apply(self, question: str, names: Iterable[str]) -> str | None:
        """Return ``=`` and the answer, ``!`` and an error, or None if the thing does not exist."""
        # An exception would end as a traceback in SQL.
        try:
            return f"={self._answer(question, list(names))}"
        except TopicNotFound:
            return None
        except EosError as error:
            return f"!{error}"

    def _answer(self, question: str, names: list[str]) -> str:
        if question == "namespaces":
            return "\n".join(self.namespaces())
        if question == "table":
            name, columns = self.table(_topic(names))
            return f"{name}\n{columns.json()}"
        found = self.topics(_topic([*names, "any"]).namespace_name)
        return "\n".join(TopicName.parse(topic).local for topic in found)


def _topic(names: list[str]) -> TopicName:
    # ["public/default", "orders"]; other spellings of a topic are not accepted.
    try:
        topic = TopicName.parse("/".join(names))
    except ConfigurationError:
        topic = None
    if topic is None or names != [topic.namespace_name, topic.local]:
        raise TopicNotFound(f"Topic {names} does not exist.")
    return topic


def mount(spark: SparkSession, name: str, answers: TopicAnswers) -> None:
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
    # The JVM calls Python through this server, which PySpark starts on demand.
    ensure_callback_server_started(spark.sparkContext._gateway)  # type: ignore[no-untyped-call]
    try:
        catalogs = _catalogs(session)
        if _is_taken(spark, catalogs, name):
            raise ConfigurationError(f"Catalog {name} already exists, and is not one of topics.")
        loader = session.getClass().getClassLoader()
        catalogs.put(name, _new_catalog(spark._jvm, loader, name, answers))
    except Py4JError as error:
        raise ConfigurationError(
            f"A catalog can't be mounted in this Spark version: {str(error)[:200]}",
            hint="Mounting uses internals of Spark 4.0 to 4.3. Use PulsarCatalog.register instead.",
        ) from error


def _new_catalog(jvm: Any, loader: Any, name: str, answers: TopicAnswers) -> Any:
    # A py4j proxy alone would do, but every name(), equals() and method with a default would call
    # Python, and every error would arrive as a traceback in a Py4JException. So a small class is
    # compiled in the driver's JVM, by Spark's own compiler for generated code. It calls a proxy
    # with four kinds of questions, as text.
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.setTargetVersion(_JAVA_VERSION)
    compiler.cook(_SOURCE)
    (constructor,) = compiler.getClassLoader().loadClass(_CLASS_NAME).getConstructors()
    arguments = jvm.java.util.ArrayList()
    arguments.add(name)
    arguments.add(answers)
    return constructor.newInstance(arguments.toArray())


def _catalogs(session: Any) -> Any:
    # Spark's own map of the catalogs of a session, by name, is private: spark.sql.catalog.x needs
    # the name of a class in a jar, and there is no jar.
    manager = session.sessionState().catalogManager()
    field = manager.getClass().getDeclaredField("catalogs")
    field.setAccessible(True)
    return field.get(manager)


def _is_taken(spark: SparkSession, catalogs: Any, name: str) -> bool:
    if catalogs.contains(name):
        return bool(catalogs.apply(name).getClass().getName() != _CLASS_NAME)
    return spark.conf.get(f"spark.sql.catalog.{name}", None) is not None
