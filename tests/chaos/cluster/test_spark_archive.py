"""The archive of Spark's classes: created once, deleted with its Spark, and used."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from eos.chaos.cluster import spark_env, spark_rehearsal

_SESSION = """
import sys
from eos.chaos.cluster.spark_env import local_cluster
builder = local_cluster("archive", sys.argv[1], rows_per_step=100)
known = builder._options["spark.driver.extraJavaOptions"]
log = f"-Xlog:class+load:file={sys.argv[1]}/classes.log"
spark = builder.config("spark.driver.extraJavaOptions", f"{known} {log}").getOrCreate()
assert spark.range(10).count() == 10
spark.stop()
"""


@pytest.fixture
def rehearsals(tmp_path, monkeypatch):
    """Records each rehearsal, and creates an archive without one."""
    seen: list[Path] = []

    def rehearse(folder: Path, archive: Path) -> None:
        seen.append(folder)
        archive.touch()

    monkeypatch.setenv("EOS_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(spark_rehearsal, "_rehearse_apart", rehearse)
    return seen


def test_archive_is_created_once_and_used_by_each_jvm(rehearsals):
    assert spark_env.archive_options() == ""
    spark_rehearsal.create()
    spark_rehearsal.create()
    (folder,) = rehearsals
    assert f"-XX:SharedArchiveFile={folder}/classes.jsa" in spark_env.archive_options()
    assert [path.name for path in folder.iterdir()] == ["classes.jsa"]


def test_a_rehearsal_that_fails_does_no_harm(rehearsals, monkeypatch):
    monkeypatch.setattr(spark_rehearsal, "_rehearse_apart", lambda folder, archive: None)
    spark_rehearsal.create()
    assert spark_env.archive_options() == ""


def test_a_rehearsal_that_takes_too_long_does_no_harm(tmp_path, monkeypatch):
    monkeypatch.setenv("EOS_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(spark_rehearsal, "_WITHIN_S", 0.001)
    spark_rehearsal.create()
    assert spark_env.archive_options() == ""


def test_archive_of_a_removed_spark_is_deleted(rehearsals, tmp_path):
    gone, other = tmp_path / "spark-4.1.0-gone", tmp_path / "spark-4.1.0-other"
    for folder, jars in ((gone, tmp_path / "nowhere"), (other, tmp_path)):
        (folder / "spark-home").mkdir(parents=True)
        (folder / "spark-home" / "jars").symlink_to(jars)
    spark_rehearsal.create()
    assert not gone.exists()
    assert other.exists()


def test_folders_may_have_a_space_in_their_name(rehearsals, monkeypatch, tmp_path):
    monkeypatch.setenv("EOS_CACHE_DIR", str(tmp_path / "my cache"))
    spark_rehearsal.create()
    builder = spark_env.local_cluster("spaces", "/my files", rows_per_step=100)
    for name in ("driver", "executor"):
        options = shlex.split(builder._options[f"spark.{name}.extraJavaOptions"])
        assert "-Djava.io.tmpdir=/my files" in options
        assert f"-XX:SharedArchiveFile={rehearsals[0]}/classes.jsa" in options


@pytest.mark.chaos
def test_driver_loads_its_classes_from_the_archive(tmp_path):
    """In a separate scratch folder, like every driver: the archive must still fit."""
    spark_rehearsal.create()
    env = {**os.environ, **spark_env.spark_env(tmp_path, path=(Path.cwd(),))}
    subprocess.run(
        [sys.executable, "-c", _SESSION, str(tmp_path)], env=env, check=True, timeout=150
    )
    lines = (tmp_path / "classes.log").read_text().splitlines()
    archived = sum("shared objects file (top)" in line for line in lines)
    assert archived > 0.5 * len(lines)  # most other classes are generated at run time
