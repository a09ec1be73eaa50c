"""What Spark's Python workers are spared."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import gc, pyarrow
from eos.worker import spare_imports
spare_imports()
frozen, known = gc.get_freeze_count(), len(gc.get_objects())
assert frozen > 10_000 > known, (frozen, known)
later = [[] for _ in range(1000)]
spare_imports()
assert gc.get_freeze_count() <= frozen
for one in later:
    one.append(one)
del later, one
assert gc.collect() >= 1000
"""


def test_imports_are_frozen_once_and_what_comes_later_is_collected():
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
