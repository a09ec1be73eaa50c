"""``metrics``: Prometheus text of the logs, on standard output or in a file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from eos.commit_log import CommitLog
from eos.protocol import State
from tests.protocol.epochs import NOW, claim, committed_epoch, opened, step
from tests.support.logs import failed_epoch, small_log

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.fixture
def in_doubt(root) -> CommitLog:
    """The log of "orders": two epochs committed, a third one in doubt; half a minute old."""
    log = CommitLog.open(root, "orders", clock=lambda: NOW + timedelta(seconds=30))
    run = log.append(claim())
    for epoch in ("0", "1"):
        for record in committed_epoch(run, epoch):
            log.append(record)
    record = log.append(opened(run, "2", least=9))
    log.append(step(record, State.PREPARED, run))
    return log


def samples(text: str) -> dict[tuple[str, ...], float]:
    """By name and label values, in the order of label names."""
    return {
        (sample.name, *(sample.labels[label] for label in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_it_is_prometheus_text_with_help_and_type(recovery, root, in_doubt):
    ended = recovery("metrics", "--commit-log", root)
    assert (ended.code, ended.err) == (0, "")
    families = list(text_string_to_metric_families(ended.raw))
    assert all(family.name.startswith("eos_") for family in families)
    assert all(family.documentation and family.type != "unknown" for family in families)
    assert ended.raw.count("# HELP") == ended.raw.count("# TYPE") == len(families)
    found = samples(ended.raw)
    assert found["eos_unfinished_transactions", "orders", "in_doubt"] == 1
    assert found["eos_unfinished_transactions", "orders", "open"] == 0
    assert found["eos_oldest_transaction_age_seconds", "orders", "in_doubt"] > 0
    assert found["eos_owed_epochs", "orders"] == 0
    assert found["eos_log_records_total", "orders"] == 9
    assert found["eos_log_readable", "orders"] == 1
    at = (NOW + timedelta(seconds=30)).timestamp()
    assert found["eos_last_commit_timestamp_seconds", "orders"] == at
    assert found["eos_claim_timestamp_seconds", "orders"] == at
    assert not any(name == "eos_broker_transactions" for name, *_ in found), "nobody was asked"


def test_unwritten_epochs_and_unreadable_logs_are_counted(recovery, root):
    run = claim()
    log = CommitLog.open(root, "orders")
    log.append(run)
    log.append(failed_epoch(run, "0"))
    broken = root / "broken" / "_delta_log"
    broken.mkdir(parents=True)
    (broken / "00000000000000000000.json").write_text("{")
    ended = recovery("metrics", "--commit-log", root)
    assert ended.code == 1
    assert "broken" in ended.err
    found = samples(ended.raw)
    assert found["eos_owed_epochs", "orders"] == 1
    assert (found["eos_log_readable", "broken"], found["eos_log_readable", "orders"]) == (0, 1)
    assert ("eos_last_commit_timestamp_seconds", "orders") not in found


def test_file_is_replaced_atomically_by_concurrent_runs(recovery, root, in_doubt, tmp_path):
    out = tmp_path / "textfile" / "eos.prom"
    out.parent.mkdir()
    ended = recovery("metrics", "--commit-log", root, "--out", out)
    assert (ended.code, ended.out) == (0, f"Written: {out}")
    expected = samples(out.read_text()).keys()
    assert list(out.parent.iterdir()) == [out]
    with out.open() as opened_before:
        recovery("metrics", "--commit-log", root, "--out", out)
        assert samples(opened_before.read()).keys() == expected, "the old one, whole"
        assert os.fstat(opened_before.fileno()).st_ino != out.stat().st_ino
    command = [
        sys.executable,
        "-m",
        "eos",
        "recovery",
        "metrics",
        "--commit-log",
        root,
        "--out",
        out,
    ]
    writers = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) for _ in range(3)]
    is_done, torn = threading.Event(), []

    def read() -> None:
        while not is_done.is_set():
            if samples(out.read_text()).keys() != expected:
                torn.append(out.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    codes = [writer.wait(60) for writer in writers]
    is_done.set()
    reader.join()
    assert (codes, torn) == ([0, 0, 0], [])
    assert list(out.parent.iterdir()) == [out]


def test_unwritable_file_is_refused_and_the_old_one_stays(recovery, root, in_doubt, tmp_path):
    ended = recovery("metrics", "--commit-log", root, "--out", tmp_path / "nowhere" / "eos.prom")
    assert ended.code == 64
    assert "No such file or directory" in ended.err
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert recovery("metrics", "--commit-log", root, "--out", tmp_path / "loop").code == 64


def test_devices_are_refused_and_links_are_followed(recovery, root, in_doubt, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ended = recovery("metrics", "--commit-log", root, "--out", pipe)
    assert ended.code == 64
    assert "not a regular file" in " ".join(ended.err.split())
    assert pipe.is_fifo()
    target, link = tmp_path / "target.prom", tmp_path / "link.prom"
    link.symlink_to(target)
    assert recovery("metrics", "--commit-log", root, "--out", link).code == 0
    assert link.is_symlink()
    assert target.read_text().startswith("# HELP")


def test_json_holds_the_text(recovery, root, in_doubt):
    facts = recovery("metrics", "--commit-log", root, "--json").json
    assert facts["exit_code"] == 0
    assert samples(facts["text"])["eos_log_readable", "orders"] == 1


def test_hostile_names_are_escaped(recovery, root, monkeypatch):
    small_log(root)
    name = 'orders"} 1\nup{x="\\'
    monkeypatch.setattr("eos.recovery._survey.view", lambda *_: hostile(name, root))
    found = samples(recovery("metrics", "--commit-log", root).raw)
    assert found["eos_log_readable", name] == 1


def hostile(name: str, root: Path) -> object:
    from eos.recovery._sink_view import view

    log = CommitLog.open_read_only(root, "orders")
    return view(log.history, log.records()).model_copy(update={"sink_id": name})


def test_missing_prometheus_client_is_explained_and_other_verbs_work(root, in_doubt):
    block = "import sys; sys.modules['prometheus_client'] = None; sys.argv = sys.argv[1:]; "
    run = "from eos.recovery.cli import main; main()"
    ends = {}
    for verb in ("metrics", "status"):
        ends[verb] = subprocess.run(
            [sys.executable, "-c", block + run, "eos recovery", verb, "--commit-log", str(root)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ends["metrics"].returncode == 64
    assert "pip install 'prometheus-client" in " ".join(ends["metrics"].stderr.split())
    assert ends["status"].returncode == 1
    assert "in doubt" in ends["status"].stdout


def test_broker_is_asked_with_an_admin_url(
    recovery, root, make_driver, dies_behind, pulsar_standalone
):
    from eos.steps import Step

    dies_behind(make_driver(), Step.PREPARE, "0")
    where = ("--commit-log", root, "--admin-url", pulsar_standalone.admin_url)
    text = recovery("metrics", *where).raw
    assert re.search(r'eos_broker_transactions\{sink="[^"]+",status="open"\} 1\.0', text)
    nowhere = recovery("metrics", "--commit-log", root, "--admin-url", "http://127.0.0.1:1")
    assert nowhere.code == 2
    assert "eos_unfinished_transactions" in nowhere.raw


def test_every_metric_is_in_the_manual(recovery, root, in_doubt):
    manual = (ROOT / "docs" / "monitoring.md").read_text()
    for line in recovery("metrics", "--commit-log", root).raw.splitlines():
        if line.startswith("# TYPE "):
            name, kind = line.split()[2:]
            assert f"| `{name}` | {kind} |" in manual
