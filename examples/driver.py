"""A Spark driver as a demo sees it: a program with executors, one of which it may lose."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import psutil

from eos.chaos.cluster.processes import executors, kill_all
from eos.chaos.cluster.spark_env import spark_env
from examples.child import Child

_ROOT = Path(__file__).parent.parent


class Driver(Child):
    """One life of a driver program, with all that Spark starts.

    Args:
        module, task, log_file: as of ``Child``.
        scratch_dir: an existing folder for everything temporary of Spark.
        env: more of its environment.
    """

    def __init__(
        self,
        module: str,
        task: str,
        log_file: Path,
        scratch_dir: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        spark = spark_env(scratch_dir, path=(_ROOT,))
        super().__init__(module, task, log_file, {**spark, **(env or {})})

    def maybe_kill_an_executor(self) -> int | None:
        """SIGKILL the oldest executor; its pid, or None when none runs."""
        living: list[psutil.Process] = executors(self.pid)
        if not living:
            return None
        kill_all(living[:1])
        return int(living[0].pid)
