"""The examples of the first pages run, and print the output that the pages show."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from eos.testing import PostgresServer
from tests.support.checkout import ROOT

# Three Sparks and a broker start, one after the other.
pytestmark = pytest.mark.timeout(400)

MARK = "<!-- tests/docs/test_start_pages.py runs this block -->\n"
BLOCK = re.compile(f"{MARK}```python\n(.*?)```\n+(?:```text\n(.*?)```)?", re.DOTALL)


@pytest.fixture
def here(pulsar_standalone, tmp_path, name):
    """Make an example use the test's broker, folder and topics."""

    def replace(code: str) -> str:
        for there, mine in (
            ("pulsar://localhost:6650", pulsar_standalone.service_url),
            ("/tmp/eos", str(tmp_path / "eos")),
            ("persistent://public/default/", f"persistent://public/default/{name}-"),
            ('"topic": "', f'"topic": "{name}-'),
        ):
            code = code.replace(there, mine)
        return code

    return replace


def blocks(page: str) -> list[tuple[str, str]]:
    """The examples of a page that are run here, each with its output."""
    found = BLOCK.findall((ROOT / "docs" / page).read_text())
    assert found, page
    return found


def test_pages_and_examples_do_not_share_a_sink():
    """Run one after the other, as a new user does, each writes what it says."""
    pages = [path for path in (ROOT / "docs").glob("*.md") if MARK in path.read_text()]
    sources = [ROOT / "README.md", *pages, *(ROOT / "examples").glob("*.py")]
    used = [set(re.findall(r'sink_id="([^"]+)"', path.read_text())) for path in sources]
    assert len(set().union(*used)) == sum(map(len, used)) >= 9


def run_page(page: str, here, capsys) -> None:
    scope: dict[str, object] = {}
    for code, shown in blocks(page):
        exec(compile(here(code), page, "exec"), scope)
        assert capsys.readouterr().out.strip() == shown.strip()


def test_the_examples_of_reading(spark, pulsar_standalone, tmp_path, name, here, capsys):
    from eos import PulsarSink

    sink = PulsarSink(
        sink_id=name,
        service_url=pulsar_standalone.service_url,
        topic=f"persistent://public/default/{name}-ticks",
        commit_log=str(tmp_path / "log"),
        create_topics=True,
        schema="avro",
    )
    sink.write(spark.range(1000).selectExpr("id AS value", "STRING(id % 7) AS __key"), epoch="a")
    sink.close()
    run_page("start-read.md", here, capsys)


def test_the_example_with_a_table(spark, here, capsys):
    run_page("start-table.md", here, capsys)


def test_the_example_with_an_iceberg_table(spark, here, capsys):
    run_page("iceberg.md", here, capsys)


def test_the_example_with_postgres(spark, here, capsys, monkeypatch):
    with PostgresServer() as server:
        for variable in server.environment.items():
            monkeypatch.setenv(*variable)
        local = lambda code: here(code).replace("127.0.0.1:5432", f"127.0.0.1:{server.port}")  # noqa: E731
        run_page("postgres.md", local, capsys)


def test_a_killed_job_is_finished_by_the_commands_of_the_page(pulsar_standalone, tmp_path, here):
    page = (ROOT / "docs" / "start-crash.md").read_text()
    ((code, _),) = blocks("start-crash.md")
    (state,) = re.findall("```text\n(.*)\n```", page)
    job = tmp_path / "job.py"
    job.write_text(here(code))

    def run(*command: str, **variables: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
        return done.returncode, done.stdout

    def recovery(*verb: str) -> tuple[int, str]:
        log = str(tmp_path / "eos" / "log")
        return run("-m", "eos", "recovery", *verb, EOS_COMMIT_LOG=log)

    assert run("job.py", EOS_FAILPOINTS="prepare=kill")[0] == -9
    ended, status = recovery("status", "bills")
    assert ended == 1
    assert state in status
    ended, shown = recovery("resolve", "bills", "--apply", "--yes")
    assert ended == 0, shown
    ended, found = recovery("verify", "bills")
    assert ended == 0, found
    assert "1,000 messages" in found
    assert run("job.py")[1].splitlines()[-1] == "skipped"
