"""A catalog in Spark's JVM that asks Python.

Spark takes a catalog as a class of Java. A proxy of py4j alone would be one too, and worse: every
``name()``, ``equals()`` and method with a default would go to Python, and every error would come
back as a traceback in a ``Py4JException``. So a small class is compiled in the driver's JVM, by
the compiler that Spark has for its own generated code, and it asks a proxy five questions in text.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

CLASS_NAME: Final = "EosTopics"

_JAVA_VERSION: Final = 8  # the first with static methods of interfaces, as ``Identifier.of``

_SOURCE: Final = r"""
import java.util.Arrays;
import java.util.Collections;
import java.util.Map;
import java.util.Set;
import java.util.function.BiFunction;
import org.apache.spark.QueryContext;
import org.apache.spark.sql.AnalysisException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.trees.CurrentOrigin;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCatalog;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.Option;

public final class EosTopics implements TableCatalog, SupportsNamespaces {
  private static final String NAMESPACES =
      "Spark makes, changes and deletes no namespaces of Pulsar: use pulsar-admin namespaces.";
  private final String name;
  private final BiFunction python;

  public EosTopics(String name, BiFunction python) {
    this.name = name;
    this.python = python;
  }

  public String name() { return name; }
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
    return load("table", table);
  }

  public Table loadTable(Identifier table, Set privileges) throws NoSuchTableException {
    return load("target", table);
  }

  private Table load(String question, Identifier table) throws NoSuchTableException {
    int depth = table.namespace().length;
    String[] names = (String[]) Arrays.copyOf(table.namespace(), depth + 2);
    names[depth] = table.name();
    // The statement: Spark asks once for all its places that name the table.
    Option text = CurrentOrigin.get().sqlText();
    names[depth + 1] = text.isEmpty() ? "" : (String) text.get();
    String answer = ask(question, names);
    if (answer == null) throw new NoSuchTableException(table);
    int end = answer.indexOf('\n');
    // A provider makes its Python source once, with the options that it is asked with first: a
    // statement's own. So nothing is asked of it here, and each table has one to itself.
    PythonDataSourceV2 provider = new PythonDataSourceV2();
    provider.setShortName(answer.substring(0, end));
    StructType columns = (StructType) DataType.fromJson(answer.substring(end + 1));
    return provider.getTable(columns, new Transform[0], Collections.emptyMap());
  }

  public Table loadTable(Identifier table, String version) { throw travel(); }
  public Table loadTable(Identifier table, long timestamp) { throw travel(); }

  public Table createTable(Identifier table, TableInfo info) {
    throw refused("Spark makes no topic here: use PulsarCatalog.create.");
  }

  public Table alterTable(Identifier table, TableChange[] changes) {
    throw refused("Spark changes no topic: its columns are its schema's in the registry, and the "
        + "rest is for pulsar-admin topics.");
  }

  public boolean dropTable(Identifier table) {
    throw refused("Spark deletes or replaces no topic here: use PulsarCatalog.drop, which asks "
        + "for the full name.");
  }

  public void renameTable(Identifier from, Identifier to) {
    throw refused("A topic of Pulsar can't be renamed.");
  }

  public void createNamespace(String[] namespace, Map metadata) { throw refused(NAMESPACES); }
  public void alterNamespace(String[] namespace, NamespaceChange[] changes) {
    throw refused(NAMESPACES);
  }
  public boolean dropNamespace(String[] namespace, boolean cascade) { throw refused(NAMESPACES); }

  private String ask(String question, String[] names) {
    String answer = (String) python.apply(question, names);
    if (answer == null) return null;
    if (answer.startsWith("!")) EosTopics.<RuntimeException>raise(told(answer.substring(1)));
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

  private static AnalysisException told(String why) {
    return new AnalysisException(why, Option.empty(), Option.empty(), Option.empty(),
        Option.empty(), scala.collection.immutable.Map$.MODULE$.empty(), new QueryContext[0]);
  }

  // AnalysisException is checked, and Spark's interface does not declare it.
  private static <T extends Throwable> void raise(Throwable it) throws T { throw (T) it; }
}
"""


class CatalogAnswers(Protocol):
    """What the catalog asks; a proxy of ``java.util.function.BiFunction``."""

    def apply(self, question: str, names: Any) -> str | None:
        """``=`` and the answer, ``!`` and why there is none, or None: there is no such thing."""


def new_catalog(jvm: Any, loader: Any, name: str, answers: CatalogAnswers) -> Any:
    """A ``TableCatalog`` of Spark that is called ``name``.

    Args:
        loader: the class loader that has Spark's classes.

    Raises:
        Py4JJavaError: this Spark's interfaces are others.
    """
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(loader)
    compiler.setTargetVersion(_JAVA_VERSION)
    compiler.cook(_SOURCE)
    (constructor,) = compiler.getClassLoader().loadClass(CLASS_NAME).getConstructors()
    arguments = jvm.java.util.ArrayList()
    arguments.add(name)
    arguments.add(answers)
    return constructor.newInstance(arguments.toArray())
