"""The client and the modules it depends on import nothing that an executor lacks."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import sys
for name in ("deltalake", "pydantic", "tenacity", "pulsar", "pyspark", "typer", "rich"):
    sys.modules[name] = None
import eos.client, eos.task_report, eos.transport
import eos.transport.connection
import pyarrow as pa
from eos.wire.batch import Rows, encode_batches
assert [b.num_messages for b in encode_batches(Rows(pa.array([b"x", b"y"])))] == [2]
"""


def test_the_client_imports_nothing_that_an_executor_lacks():
    result = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
