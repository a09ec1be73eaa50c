"""``eos chaos``: wrong options get one line with a hint; lists and help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eos.chaos._run_options import parse_faults
from eos.chaos.checker.history import AnomalyKind
from eos.chaos.faults import FAULTS

ROOT = Path(__file__).parent.parent.parent


def chaos(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "eos", "chaos", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--faults", "bogus"), "bogus does not exist. Choose from driver-kill, "),
        (("--faults", "bookie-kill"), "bookie-kill needs several brokers. Add --brokers 2."),
        (("--faults", "cluster-wiped", "--singles", "--brokers", "2"), "Remove --brokers."),
        (("--workload", "nowhere:nothing"), "Name a function as MODULE:FUNCTION"),
        (("--workload", "eos.chaos.workloads"), "Name a function as MODULE:FUNCTION"),
        (("--workload", "eos.chaos.workloads:no"), "has no attribute 'no'"),
        (("--shard", "3"), "2/6 is the second of six parts."),
        (("--shard", "3/2"), "2/6 is the second of six parts."),
        (("--always", "bogus"), "condition bogus does not exist. Choose from notebook, "),
        (("--always", "caches,shuffles"), "caches and shuffles exclude each other"),
        (("--always", "notebook,caches"), "notebook and caches exclude each other"),
        (("--always", "caches", "--workload", "eos.chaos.workloads:naive"), "Remove it."),
        (("--always", "caches", "--singles"), "--always only works with --schedules"),
        (("--faults", "input-cut"), "input-cut needs condition from-topic."),
        (("--faults", "deaf", "--soak-minutes", "1"), "does not work with --soak-minutes."),
        (("--keep", "9"), "seed-1 has only "),
        (("--keep", "0"), "--keep must be numbers of faults, such as 1,3"),
        (("--keep", "a"), "--keep must be numbers of faults, such as 1,3"),
    ],
    ids=" ".join,
)
def test_wrong_options_are_reported_with_a_hint(args, says, tmp_path):
    ended = chaos("run", "--report", str(tmp_path / "report"), *args)
    assert ended.returncode == 2
    assert says in " ".join(ended.stderr.split())
    assert len(ended.stderr.strip().splitlines()) == 1
    assert "Traceback" not in ended.stderr


def test_a_part_selects_all_of_its_faults():
    names = parse_faults("cluster,driver-kill", singles=False, brokers=2)
    hit = [name for name, fault in FAULTS.items() if fault.part == "cluster"]
    assert names == [*hit, "driver-kill"]
    assert not set(hit) & set(parse_faults("all", singles=True))
    assert set(hit) <= set(parse_faults("all", singles=False, brokers=2))


def test_faults_and_anomalies_are_listed():
    faults, anomalies = chaos("faults"), chaos("anomalies")
    assert (faults.returncode, anomalies.returncode) == (0, 0)
    assert all(name in faults.stdout for name in FAULTS)
    assert all(kind.name.lower().replace("_", " ") in anomalies.stdout for kind in AnomalyKind)


def test_help_has_the_main_options():
    ended = chaos("run", "--help")
    assert ended.returncode == 0
    for option in ("--schedules", "--seed", "--faults", "--workload", "--report", "--shard"):
        assert option in ended.stdout
