"""The house rules as tests: direction of imports, size of packages, docstrings, current docs."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from eos.chaos.checker.history import AnomalyKind
from eos.chaos.faults import FAULTS
from eos.chaos.faults.conditions import CONDITIONS
from eos.cli.programs import PROGRAMS
from eos.protocol import diagram
from eos.recovery.cli import VERBS
from eos.steps import Step, TaskStep
from tests.mutants.__main__ import read_mutants
from tests.support.checkout import LINKED, PRODUCT, ROOT, SHIPPED, files, module_name

# Modules for users' chaos runs, which no module of eos imports.
FOR_USERS = {"eos.chaos.job", "eos.chaos.planning", "eos.chaos.schedule"}
# Imported by name, as late as possible (`eos.cli.programs`).
STARTED = {
    *("eos.chaos.cli", "eos.recovery.cli", "eos.catalog.cli", "eos.testing.cli"),
    *(f"eos.recovery.verbs.{module}" for module, _ in VERBS.values()),
}
# Tests that do not belong to a single folder.
OF_THE_WHOLE = {"model", "scenarios"}
# The size of the house: it may only get smaller.
MAX_MODULES = 452
MAX_SHORT_MODULES = 10  # under 40 lines
MAX_REPEATED_NAMES = 5  # file names that stand in the tree more than once
MAX_CHAIN = 16  # modules that import one another in a line
MAX_DOC_WORDS = 38_000
MAX_LINES = 88_163
MIN_COMMENTS = 0.04  # of all lines
MAX_README_LINES = 150
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

# Package -> the packages of eos that it may import. Packages that are not listed fail.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "steps": set(),
    "spark_worker": set(),
    "ids": {"errors"},
    "task_report": {"errors", "ids"},
    "user_input": set(),
    "waiting": set(),
    "retry": {"errors"},
    "failpoints": {"errors", "steps"},
    "forking": {"errors"},
    "wire": {"errors", "ids"},
    "schemas": {"errors", "wire"},
    "transport": {"errors", "forking", "waiting", "wire"},
    "client": {
        "errors", "forking", "ids", "retry", "transport", "waiting", "wire",
    },
    "admin": {"errors", "ids", "transport"},
    "protocol": {"errors", "ids"},
    "participant": {"errors", "protocol", "retry", "transport"},
    "events": {"protocol", "steps"},
    "metrics": {"events", "forking", "protocol"},
    "tracing": {"events"},
    "_storage": set(),
    "commit_log": {
        "errors", "events", "failpoints", "forking", "ids", "participant", "protocol", "steps",
        "_storage", "task_report", "waiting",
    },
    "delta": {
        "commit_log", "errors", "failpoints", "ids", "participant", "protocol", "retry", "steps",
        "_storage",
    },
    "iceberg": {"delta", "errors", "participant", "protocol", "retry", "_storage"},
    "committer": {
        "commit_log", "errors", "events", "failpoints", "participant", "protocol", "retry",
        "steps", "waiting",
    },
    "postgres": {"errors", "forking", "participant", "protocol", "retry"},
    "_kinds": {"delta", "iceberg", "ids", "participant", "postgres", "protocol", "pulsar"},
    "pulsar": {
        "admin", "client", "errors", "failpoints", "forking", "ids", "participant", "protocol",
        "retry", "steps", "task_report", "transport", "waiting", "wire",
    },
    "testing": {
        "admin", "cli", "commit_log", "committer", "errors", "failpoints", "participant",
        "protocol", "steps", "transport",
    },
    "__main__": {"cli"},
    "cli": {"admin", "client", "errors", "transport"},
}  # fmt: skip
# The only importers of pyspark, and those of the kill-and-check tools.
MAY_IMPORT_PYSPARK = ("sinks", "sources", "catalog", "chaos", "examples", "bench", "tests")
MAY_IMPORT_CHAOS = ("chaos", "examples", "tests")
NO_IO = ("eos/wire", "eos/protocol")
IO_MODULES = {"socket", "ssl", "threading", "time", "select", "asyncio", "subprocess", "requests"}
# Files with a reason to be longer; a name that no longer needs to be listed fails the test.
LONG_FILES: set[str] = set()
LONG_FUNCTIONS: set[str] = set()


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@functools.cache
def parsed(path: Path) -> ast.Module:
    """The syntax tree of a file. Most rules need most files."""
    return ast.parse(path.read_text())


@functools.cache
def imports(path: Path) -> set[str]:
    """Full names of the modules that ``path`` imports, anywhere in the file."""
    found: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def room_of(path: Path) -> str:
    return path.relative_to(ROOT / "eos").parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", files("eos"), ids=name_of)
def test_imports_in_eos_go_one_way(path):
    if path.name == "__init__.py" and path.parent.name == "eos":
        return
    room = room_of(path)
    allowed = MAY_IMPORT[room] | {room}
    parts = {name.split(".")[1] for name in imports(path) if name.startswith("eos.")}
    rooms = {part for part in parts if part in MAY_IMPORT or part in LINKED}
    assert rooms <= allowed


def test_only_sinks_import_pyspark_and_only_tests_and_the_demo_import_chaos():
    for path in files(*PRODUCT, "tests"):
        names = imports(path)
        tops = {name.split(".")[0] for name in names}
        linked = {top for top in LINKED for name in names if name.startswith(f"eos.{top}")}
        top = path.relative_to(ROOT).parts[0]
        assert top in MAY_IMPORT_PYSPARK or "pyspark" not in tops, path
        assert top in MAY_IMPORT_CHAOS or "chaos" not in linked, path
        assert top not in ("eos", "sinks") or not tops & {"tests", "examples"}, path
        assert top != "sinks" or "recovery" not in linked, path


def test_the_linked_folders_are_imported_as_parts_of_eos():
    """`import sinks` would work in a checkout, and make a second copy of each of its classes."""
    for path in files(*PRODUCT, "tests"):
        assert not {name.split(".")[0] for name in imports(path)} & set(LINKED), path
    for top in LINKED:
        assert (ROOT / "eos" / top).readlink() == Path("..") / top


def test_the_core_knows_no_system_that_looks_on():
    found: dict[str, set[str]] = {"prometheus_client": set(), "opentelemetry": set()}
    for path in files(*PRODUCT):
        for name in {name.split(".")[0] for name in imports(path)} & found.keys():
            found[name].add(name_of(path))
    assert found == {
        "prometheus_client": {"eos/metrics.py", "recovery/verbs/metrics_verb.py"},
        "opentelemetry": {"eos/tracing.py"},
    }


def test_no_module_imports_itself_by_way_of_others():
    """Imports for types and in functions count too: modules in a cycle are really one module."""
    modules = {module_name(path): path for path in files(*PRODUCT)}
    imported = {name: imports(path) & modules.keys() - {name} for name, path in modules.items()}
    # A package that re-exports is imported with all its modules: count those modules instead.
    sorter = graphlib.TopologicalSorter(
        {
            name: {other for other in others if modules[other].name != "__init__.py"}
            for name, others in imported.items()
        }
    )
    sorter.prepare()


def importers() -> dict[Path, set[Path]]:
    """The shipped modules, each with the files outside the tests that import it."""
    modules = {module_name(path): path for path in files(*SHIPPED) if path.name != "__init__.py"}
    found: dict[Path, set[Path]] = {path: set() for path in modules.values()}
    for path in files(*PRODUCT):
        for name in imports(path) & modules.keys():
            found[modules[name]].add(path)
    return found


def test_what_begins_with_an_underscore_is_its_own_folders_business():
    for module, paths in importers().items():
        if module.name.startswith("_") and module.name != "__main__.py":
            assert not [path for path in paths if not path.is_relative_to(module.parent)], module


def test_what_nobody_outside_its_folder_imports_begins_with_an_underscore():
    named = "".join(
        path.read_text()
        for path in (ROOT / "README.md", ROOT / "pyproject.toml", *(ROOT / "docs").rglob("*.md"))
    )
    for module, paths in importers().items():
        name = module_name(module)
        is_used = any(not path.is_relative_to(module.parent) for path in paths)
        is_named = re.search(rf"{re.escape(name)}\b", named) is not None
        assert module.name.startswith("_") or is_used or is_named or name in FOR_USERS | STARTED, (
            name
        )


def test_tests_lie_where_the_code_lies():
    folders = {path.parent.relative_to(ROOT / "tests") for path in files("tests") if is_test(path)}
    for folder in folders:
        is_there = (ROOT / "eos" / folder).is_dir() or (ROOT / folder).is_dir()
        assert is_there or folder.parts[0] in OF_THE_WHOLE, folder


def is_test(path: Path) -> bool:
    return path.name.startswith("test_")


def test_no_verb_imports_a_verb_and_nothing_but_the_command_line_does():
    for path in files("recovery"):
        verbs = {name for name in imports(path) if name.startswith("eos.recovery.verbs")}
        assert not verbs or path.name == "cli.py", path


def test_the_pure_rooms_do_no_input_or_output_and_have_no_clock():
    for path in files(*NO_IO):
        assert not {name.split(".")[0] for name in imports(path)} & IO_MODULES, path


def comments_in(path: Path) -> int:
    with path.open() as file:
        return sum(
            token.type == tokenize.COMMENT for token in tokenize.generate_tokens(file.readline)
        )


def test_the_house_does_not_grow():
    modules = files(*PRODUCT)
    names = Counter(path.name for path in modules)
    short = [
        path
        for path in modules
        if path.name != "__init__.py" and len(path.read_text().splitlines()) < 40
    ]
    lines = sum(len(path.read_text().splitlines()) for path in modules)
    assert len(modules) <= MAX_MODULES
    assert lines <= MAX_LINES
    assert sum(map(comments_in, modules)) >= MIN_COMMENTS * lines
    assert len(short) <= MAX_SHORT_MODULES
    assert len([name for name, count in names.items() if count > 1]) <= MAX_REPEATED_NAMES
    pages = [
        path
        for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))
        if path.name != "CHANGELOG.md"
    ]
    assert sum(len(path.read_text().split()) for path in pages) <= MAX_DOC_WORDS
    assert len((ROOT / "README.md").read_text().splitlines()) <= MAX_README_LINES


def test_no_merge_is_left_unfinished():
    lines = subprocess.run(
        ["git", "grep", "-nE", "^(<{7}|>{7})( |$)"], cwd=ROOT, capture_output=True, text=True
    )
    assert lines.stdout == ""


def test_no_chain_of_imports_is_longer_than_today():
    paths = {module_name(path): path for path in files(*SHIPPED) if path.name != "__init__.py"}

    @functools.cache
    def length(module: str) -> int:
        others = imports(paths[module]) & paths.keys() - {module}
        return 1 + max(map(length, others), default=0)

    assert max(map(length, paths)) <= MAX_CHAIN


def test_a_file_is_a_room():
    long = {name_of(p) for p in files(*PRODUCT) if len(p.read_text().splitlines()) > MAX_FILE_LINES}
    assert long == LONG_FILES


def test_a_function_fits_a_screen():
    long = set()
    for path in files(*PRODUCT):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                if node.end_lineno - node.lineno >= MAX_FUNCTION_LINES:
                    long.add(f"{name_of(path)}:{node.name}")
    assert long == LONG_FUNCTIONS


def undocumented(path: Path) -> list[str]:
    """Public classes and functions without a docstring; fields suffice for message classes."""
    tree = parsed(path)
    missing = [] if ast.get_docstring(tree) else ["the module"]
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name.startswith(("_", "test_")):  # a test's name is a sentence
            continue
        bases = {base.id for base in getattr(node, "bases", []) if isinstance(base, ast.Name)}
        if isinstance(node, ast.ClassDef):
            todo += node.body
        stub = len(node.body) == 1 and isinstance(node.body[0], ast.Expr | ast.Pass)
        if not ast.get_docstring(node) and "WireMessage" not in bases and not stub:
            missing.append(node.name)
    return missing


def public_types(path: Path) -> Iterator[str]:
    """Public classes, and aliases of types."""
    for node in parsed(path).body:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        names = [one.id for one in targets if isinstance(one, ast.Name)]
        if isinstance(node, ast.ClassDef):
            names = [node.name]
        yield from (name for name in names if name[0].isupper() and not name.isupper())


def test_a_name_of_a_type_has_one_meaning():
    places: dict[str, list[str]] = {}
    for path in files(*PRODUCT):
        if path.parent.name != "commands":  # the messages of Pulsar's protocol have its names
            for name in public_types(path):
                places.setdefault(name, []).append(name_of(path))
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("path", files(*PRODUCT), ids=name_of)
def test_what_is_public_has_a_docstring(path):
    assert undocumented(path) == []


def test_a_folders_init_only_says_what_it_is_and_re_exports():
    for path in files(*PRODUCT):
        if path.name != "__init__.py":
            continue
        for node in parsed(path).body:
            assert not isinstance(node, ast.ClassDef), path
            if isinstance(node, ast.FunctionDef):
                assert node.name in ("__getattr__", "__dir__"), path


def test_no_unpickling_and_no_evaluation():
    for path in files(*PRODUCT):
        assert not imports(path) & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, path
        assert not re.search(r"(?<![\w.])(eval|exec)\(", path.read_text()), path


def test_the_diagram_of_the_states_in_architecture_is_the_table():
    assert diagram() in (ROOT / "ARCHITECTURE.md").read_text()


def test_the_steps_in_architecture_are_those_of_the_code():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for step in Step:
        assert f"| {step.number} | `{step.name}` | {step.text} |" in text


@pytest.mark.parametrize("patch", sorted((ROOT / "tests/mutants").glob("*.patch")), ids=name_of)
def test_every_mutant_still_applies(patch):
    command = ["git", "apply", "--check", "--unidiff-zero", str(patch)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def test_every_mutant_names_a_test_that_is_there():
    """Pytest itself looks for them, with their parameters: one wrong id stops ``make mutants``."""
    killers = sorted({mutant.killed_by for mutant in read_mutants()})
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    found = subprocess.run(
        [*command, *killers], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr


def test_the_files_that_the_docs_name_are_there():
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")):
        if path.name == "CHANGELOG.md":  # it mentions files that no longer exist
            continue
        named = re.findall(r"`([a-z_]+/[a-z_/]+\.(?:py|patch))`", path.read_text())
        assert [name for name in named if not (ROOT / name).exists()] == [], path


def test_the_commands_that_texts_name_are_there():
    known = {
        (program, name)
        for program, line in PROGRAMS.items()
        for name in typer.main.get_group(importlib.import_module(line.module).app).commands
    }
    texts = [*files(*PRODUCT), *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    named = {
        found
        for path in texts
        for found in re.findall(r"`eos ([a-z]+) ([a-z][a-z-]*)", path.read_text())
    }
    assert len(named) > 15
    assert named <= known


def test_a_modules_private_names_are_used():
    for path in files(*PRODUCT):
        text = path.read_text()
        for node in ast.parse(text).body:
            match node:
                case ast.FunctionDef(name=name, decorator_list=[]) | ast.ClassDef(name=name):
                    pass
                case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign([ast.Name(id=name)]):
                    pass
                case _:
                    continue
            is_private = name.startswith("_") and not name.startswith("__")
            assert not is_private or len(re.findall(rf"\b{name}\b", text)) > 1, (path, name)


def test_the_rooms_for_twenty_changes_are_there():
    text = (ROOT / "CONTRIBUTING.md").read_text().split("## Where to begin")[1]
    rooms = re.findall(r"^\| [^|]+ \| `([^`]+)` \|$", text, re.M)
    assert len(rooms) == 20
    assert [room for room in rooms if not (ROOT / room).is_file()] == []


def test_the_faults_and_anomalies_in_the_docs_are_those_of_the_code():
    text = (ROOT / "docs/chaos.md").read_text()
    parts = re.search(r"^`eos chaos faults` describes each.*: (`.*)\.$", text, re.M)
    assert parts is not None
    groups = re.findall(r"^\*\*(\w+)\*\*\n\n((?:- .*\n)+)", text, re.M)
    rows = {(group, row) for group, rows in groups for row in rows.splitlines()}
    lists = dict(
        re.findall(
            r"^STEP of an? (driver|recovery|task|archiver)\b.*:\n\n((?:- .*\n)+)", text, re.M
        )
    )
    steps = {who: re.findall(r"[-,] `(\w+)`", names) for who, names in lists.items()}
    forms = re.findall(r"`([a-z-]+)-at-STEP`", text)
    after_steps = {
        f"{form}-at-{step}"
        for form in forms
        for step in steps[form.split("-")[0] if "-" in form else "driver"]
    }
    assert set(re.findall(r"`(\w+)`", parts[1])) == {fault.part for fault in FAULTS.values()}
    for one in CONDITIONS.values():
        assert (one.part, f"- `{one.name}`: {one.summary}") in rows
    assert after_steps <= FAULTS.keys()
    for task_step in TaskStep:
        assert f": {task_step.text}\n" in lists["task"]
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for kind in AnomalyKind:
        assert re.search(
            rf"^\| {kind.number} \| {kind.name.lower().replace('_', ' ')} \|", text, re.M
        )
