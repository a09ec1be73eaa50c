"""docs/json.md names every key that the command lines print with ``--json``."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import eos.catalog.verbs
import eos.recovery.verbs
from eos.cli.reports import Facts, Report

MANUAL = Path(__file__).parent.parent.parent / "docs" / "json.md"
for package in (eos.recovery.verbs, eos.catalog.verbs):
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")


def kinds(of: type[Facts]) -> Iterator[type[Facts]]:
    for kind in of.__subclasses__():
        if kind.__module__.split(".")[1] in ("recovery", "catalog"):
            yield kind
        yield from kinds(kind)


def keys_of(kind: type[Facts]) -> frozenset[str]:
    computed = set(kind.model_computed_fields) - set(Report.model_computed_fields)
    return frozenset({*kind.model_fields, *computed})


# Parts of other models, never printed alone.
PARTS = {"Survey"}
KINDS = {kind for kind in kinds(Facts) if kind.__name__ not in PARTS}


def rows() -> list[frozenset[str]]:
    lines = [line for line in MANUAL.read_text().splitlines() if line.startswith("| ")]
    return [frozenset(re.findall(r"`(\w+)`", line.split(" | ", 1)[1])) for line in lines]


@pytest.mark.parametrize("kind", sorted(KINDS, key=lambda kind: kind.__name__))
def test_the_manual_has_a_row_with_just_these_keys(kind):
    assert keys_of(kind) in rows(), sorted(keys_of(kind))
