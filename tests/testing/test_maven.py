"""The jar cache, with a fake Maven that counts its runs."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from eos.errors import ConfigurationError
from eos.testing import maven

FAKE_MAVEN = """\
#!/bin/sh
for argument; do case "$argument" in -DoutputDirectory=*) out="${argument#*=}";; esac; done
echo run "$@" >> "$RUNS"
[ -n "$FAIL" ] && { echo "[ERROR] no such artifact"; exit 1; }
sleep 0.2
mkdir -p "$out" && echo a > "$out/a-1.jar" && echo bb > "$out/b-1.jar"
echo "[INFO] Copying a-1.jar"
"""


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(FAKE_MAVEN)
    program.chmod(0o755)
    counted = tmp_path / "runs"
    counted.touch()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("EOS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("RUNS", str(counted))
    return counted


def resolve() -> list[str]:
    return [jar.name for jar in maven.resolve(["g:a:1"], "thing-1", boms=["g:bom:1"])]


def test_maven_runs_once_and_the_pom_imports_the_boms(runs: Path, tmp_path: Path):
    assert resolve() == resolve() == ["a-1.jar", "b-1.jar"]
    assert len(runs.read_text().splitlines()) == 1
    assert [path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()] == ["thing-1"]


def test_maven_checks_checksums_strictly(runs: Path):
    resolve()
    assert "--strict-checksums" in runs.read_text().split()


@pytest.mark.parametrize("content", [None, "cut short", "xx\n"])
def test_an_incomplete_folder_is_resolved_again(runs: Path, tmp_path: Path, content: str | None):
    resolve()
    jar = tmp_path / "cache" / "thing-1" / "b-1.jar"
    jar.unlink() if content is None else jar.write_text(content)
    assert resolve() == ["a-1.jar", "b-1.jar"]
    assert jar.read_text() == "bb\n"
    assert len(runs.read_text().splitlines()) == 2


@pytest.mark.parametrize("sums", [None, "", "nonsense"])
def test_a_folder_without_its_checksums_is_resolved_again(
    runs: Path, tmp_path: Path, sums: str | None
):
    resolve()
    file = tmp_path / "cache" / "thing-1" / "SHA256SUMS"
    good = file.read_text()
    file.unlink() if sums is None else file.write_text(sums)
    resolve()
    assert file.read_text() == good
    assert len(runs.read_text().splitlines()) == 2


def test_other_coordinates_under_the_same_name_are_resolved_again(runs: Path):
    resolve()
    maven.resolve(["g:a:2"], "thing-1")
    assert len(runs.read_text().splitlines()) == 2


def test_concurrent_calls_resolve_once(runs: Path):
    threads = [threading.Thread(target=resolve) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(runs.read_text().splitlines()) == 1


def test_a_failure_shows_mavens_error_and_leaves_no_folder(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FAIL", "1")
    with pytest.raises(ConfigurationError, match="no such artifact"):
        resolve()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["thing-1.lock"]


def test_a_malformed_coordinate_is_refused(runs: Path):
    with pytest.raises(ConfigurationError, match="group:artifact:version"):
        maven.resolve(["g:a"], "thing-1")


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("EOS_CACHE_DIR", raising=False)
    assert maven.cache_dir() == tmp_path / "eos"
    monkeypatch.setenv("EOS_CACHE_DIR", str(tmp_path / "jars"))
    assert maven.cache_dir() == tmp_path / "jars"
    monkeypatch.setenv("EOS_CACHE_DIR", "~nosuchuser/jars")
    with pytest.raises(ConfigurationError, match="no such user"):
        maven.cache_dir()
