"""``eos chaos``: wrong options get one line that says what to do; lists are there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eos.chaos._run_options import parse_faults
from eos.chaos.checker.anomalies import AnomalyKind
from eos.chaos.faults import FAULTS

ROOT = Path(__file__).parent.parent.parent


def chaos(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "eos", "chaos", *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--faults", "bogus"), "no bogus. Choose from driver-kill, "),
        (("--faults", "bookie-kill"), "bookie-kill needs several brokers. Add --brokers 2."),
        (("--faults", "cluster-wiped", "--singles", "--brokers", "2"), "Leave out --brokers."),
        (("--workload", "nowhere:nothing"), "Name a function as MODULE:FUNCTION"),
        (("--workload", "eos.chaos.workloads"), "Name a function as MODULE:FUNCTION"),
        (("--workload", "eos.chaos.workloads:no"), "has no attribute 'no'"),
        (("--shard", "3"), "Say 2/6 for the second of six parts."),
        (("--shard", "3/2"), "Say 2/6 for the second of six parts."),
        (("--always", "bogus"), "no condition bogus. Choose from notebook, "),
        (("--always", "caches,shuffles"), "caches and shuffles can't hold together"),
        (("--always", "notebook,caches"), "notebook and caches can't hold together"),
        (("--always", "caches", "--workload", "eos.chaos.workloads:naive"), "Leave it out."),
        (("--always", "caches", "--singles"), "--always is for schedules of seeds"),
        (("--keep", "9"), "seed-1 has "),
        (("--keep", "0"), "give the faults' numbers, as 1,3"),
        (("--keep", "a"), "give the faults' numbers, as 1,3"),
    ],
    ids=" ".join,
)
def test_a_wrong_option_is_named_with_what_to_do(args, says, tmp_path):
    ended = chaos("run", "--report", str(tmp_path / "report"), *args)
    assert ended.returncode == 2
    assert says in " ".join(ended.stderr.split())
    assert len(ended.stderr.strip().splitlines()) == 1
    assert "Traceback" not in ended.stderr


def test_what_faults_hit_stands_for_all_of_them():
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


def test_help_teaches():
    ended = chaos("run", "--help")
    assert ended.returncode == 0
    for option in ("--schedules", "--seed", "--faults", "--workload", "--report", "--shard"):
        assert option in ended.stdout
