"""A real standalone Spark cluster: a master and workers as separate processes."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from eos.chaos.cluster.processes import kill_session

HOME = Path(pyspark.__file__).parent


@contextmanager
def standalone_cluster(
    folder: Path, *, cores: int, memory_mb: int, workers: int = 1
) -> Iterator[str]:
    """The master's URL. All ports are on loopback and chosen by Spark.

    ``cores`` and ``memory_mb`` are those of each worker.
    """
    with ExitStack() as stack:
        place = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log = stack.enter_context(_daemon("master.Master", folder / "master.log", *place))
        (url,) = _await(log, r"Starting Spark master at (spark://\S+)")
        size = ("--cores", str(cores), "--memory", f"{memory_mb}m", "--work-dir", str(folder))
        logs = [folder / f"worker-{number}.log" for number in range(workers)]
        for log in logs:
            stack.enter_context(_daemon("worker.Worker", log, *place, *size, url))
        for log in logs:
            _await(log, r"Successfully registered with master")
        yield url


@contextmanager
def _daemon(name: str, log: Path, *args: str) -> Iterator[Path]:
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
    # The tests' own path must not reach the executors.
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    env |= {"SPARK_HOME": str(HOME), "SPARK_DAEMON_MEMORY": "512m"}
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, *args],
            cwd=log.parent,
            env=env,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield log
    finally:
        kill_session(process.pid)
        process.wait()


def _await(log: Path, pattern: str) -> tuple[str, ...]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text())
        if found:
            return found.groups()
        time.sleep(0.1)
    raise AssertionError(f"{pattern!r} is not in {log.name}: {log.read_text()[-2000:]}")
