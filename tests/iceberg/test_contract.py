"""The Iceberg participant fulfils the contract of every participant."""

from __future__ import annotations

import pytest

from eos.testing import SinkContract
from tests.iceberg.tables import IcebergOutput


class TestIcebergTable(SinkContract):
    @pytest.fixture
    def output(self, tmp_path):
        return IcebergOutput(tmp_path)
