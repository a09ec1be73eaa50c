"""Data from a topic, registry, table, checkpoint or file is never unpickled or evaluated.

Spark pickles the data that it sends between its processes: functions, data sources, partitions and
the messages of tasks. None of it comes from a place that other applications can write to.
"""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eos.delta.folder import Folder
from eos.errors import EosError
from eos.sources._history_files import HistoryFile, batches_of
from eos.sources._offsets import Offset
from tests.support.checkout import ROOT, SHIPPED

MODULES = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "yaml"}
CALLS = {"eval", "exec", "compile", "__import__", "execfile"}
NAMED = {"allow_pickle", "CloudPickleSerializer", "CPickleSerializer", "PickleSerializer"}


# Most files contain none of these words, and parsing takes time.
WORTH_PARSING = re.compile(
    r"(?i)pickle|marshal|shelve|dill|joblib|yaml|runpy|(?<![.\w])(eval|exec|compile|__import__)\("
)


def findings(tree: ast.AST) -> Iterator[str]:
    """Yield names that unpickle or evaluate data, or could."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or "", *(f"{node.module}.{one.name}" for one in node.names)]
        else:
            names = []
        yield from (name for name in names if (MODULES | NAMED) & set(name.split(".")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield from {node.func.id} & CALLS
        name = getattr(node, "attr", getattr(node, "id", getattr(node, "arg", None)))
        if isinstance(name, str):
            yield from {name} & NAMED
            yield from {name} & {"read_pickle"}


@pytest.mark.parametrize("package", SHIPPED)
def test_no_code_of_ours_unpickles_or_evaluates(package):
    found = {}
    for path in (ROOT / package).rglob("*.py"):
        text = path.read_text()
        some = set(findings(ast.parse(text))) if WORTH_PARSING.search(text) else set()
        if some:
            found[str(path.relative_to(ROOT))] = some
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle", "from pickle import loads", "import numpy, cloudpickle",
        "from pyspark import cloudpickle", "eval('1')", "np.load(f, allow_pickle=True)",
        "from pyspark.serializers import CPickleSerializer as s; s()", "pd.read_pickle(f)",
    ],
)  # fmt: skip
def test_the_search_finds_forbidden_code(text):
    assert WORTH_PARSING.search(text)
    assert set(findings(ast.parse(text)))


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_a_type_that_is_pickled_in_a_file_of_a_table_is_not_unpickled(tmp_path):
    went_off, name = tmp_path / "went-off", "part-0.parquet"
    metadata = {
        "ARROW:extension:name": "arrow.py_extension_type",
        "ARROW:extension:metadata": pickle.dumps(Bomb(went_off)),
    }
    hostile = pa.schema([pa.field("value", pa.binary(), metadata=metadata)])
    pq.write_table(pa.table([[b"x"]], schema=hostile), tmp_path / name)
    schema = pa.schema([("value", pa.binary())])
    files = [HistoryFile(name, None)]
    folder = Folder(str(tmp_path))
    rows = [
        one for batch in batches_of(folder, files, schema, ["value"]) for one in batch.to_pylist()
    ]
    assert rows == [{"value": b"x"}]
    assert not went_off.exists()
    pickle.loads(metadata["ARROW:extension:metadata"])
    assert went_off.exists()


def test_a_checkpoint_with_anything_else_than_an_offset_is_refused(tmp_path):
    went_off = tmp_path / "went-off"
    bomb = pickle.dumps(Bomb(went_off)).decode("latin-1")
    for state in ({"version": bomb}, {"topics": bomb}, {bomb: bomb}, {"ends": {bomb: bomb}}):
        with pytest.raises(EosError):
            Offset.from_json(state)
    assert not went_off.exists()
