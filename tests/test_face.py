"""The names that users import from ``eos``, and the packages that this imports."""

from __future__ import annotations

import subprocess
import sys

import pytest

import eos

# Packages outside the standard library; each delays a notebook's start. pandas alone: 0.4 s.
MAY_BE_IMPORTED = {
    *("annotated_types", "arro3", "deltalake", "eos", "google", "google_crc32c", "numpy", "py4j"),
    *("pyarrow", "pydantic", "pydantic_core", "pyspark", "tenacity", "typing_extensions"),
    *("typing_inspection", "cython_runtime"),
}


@pytest.mark.parametrize("name", eos.__all__)
def test_each_name_is_there_and_listed(name):
    assert getattr(eos, name).__name__ == name
    assert name in dir(eos)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'PulsarSnk'"):
        _ = eos.PulsarSnk


def test_the_names_alone_import_nothing():
    assert imported("import eos") == {"eos"}


def test_a_sink_imports_no_more_packages_than_it_needs():
    extra = imported("from eos import PulsarSink") - MAY_BE_IMPORTED
    assert {name for name in extra if not name.startswith("_")} == set()


def imported(code: str) -> set[str]:
    """The packages outside the standard library that ``code`` imports."""
    listing = (
        f"import sys\nbefore = set(sys.modules)\n{code}\n"
        "tops = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(*(tops - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())
