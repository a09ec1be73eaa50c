"""Kinds of participants: built-in ones by name, third-party ones by entry point."""

from __future__ import annotations

import sys

import pytest

from eos.delta.part import DeltaPart
from eos.iceberg.part import IcebergPart
from eos.participant import kind_of
from eos.pulsar.part import PulsarPart

MODULE = """
from examples.folder.participant import FolderKind
KIND = FolderKind()
"""


@pytest.fixture(autouse=True)
def fresh():
    kind_of.cache_clear()
    yield
    kind_of.cache_clear()


def test_built_in_kinds_need_no_package():
    kinds = [kind_of(name) for name in ("pulsar", "delta", "iceberg")]
    assert [kind and kind.part for kind in kinds] == [PulsarPart, DeltaPart, IcebergPart]


def test_a_third_party_kind_is_found_by_its_entry_point(tmp_path, monkeypatch):
    assert kind_of("their-folder") is None
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[eos.participants]\ntheir-folder = theirs:KIND\n")
    (tmp_path / "theirs.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    kind_of.cache_clear()
    found = kind_of("their-folder")
    assert found is sys.modules["theirs"].KIND
