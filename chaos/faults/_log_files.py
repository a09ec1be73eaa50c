"""Faults of the commit log's files, for workloads with a log in a local folder."""

from __future__ import annotations

import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import psutil
from deltalake import DeltaTable

from eos.chaos.cluster.driver_process import DriverProcess
from eos.chaos.cluster.processes import stopped
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults._fault import Act, Armed, Fault, Proof, Violated, acts, ask, refused
from eos.cli.reports import Exit
from eos.steps import Step

_NEWER_RECORDS: Final = 6  # minimum number of records missing in the older copy: two epochs
_WRITES_WITHIN_S: Final = 180.0
_ROUNDS: Final = 3
_BESIDE_S: Final = 5.0
_TIGHT_S: Final = 0.001
_NOTICED: Final = "CommitLogError"  # the error of a driver that can't read or write its log


def _table(target: FaultTarget) -> Path:
    return Path(target.job.commit_log) / target.sink_id


@contextmanager
def _log_away(target: FaultTarget) -> Iterator[Proof]:
    table = _table(target)
    elsewhere = table.with_name(f".{table.name}.away")
    if not table.exists():
        yield Proof()
        return
    log = target.driver_log()
    table.rename(elsewhere)
    try:
        # Counts only if it has hindered a driver: without an append it was not missed.
        yield Proof(log.await_line(_NOTICED))
    finally:
        # Fails if another log was created meanwhile.
        elsewhere.rename(table)


@contextmanager
def _log_cut(target: FaultTarget) -> Iterator[Proof]:
    # At a start: a running driver does not read its own records again, and noticed it by chance.
    whole: dict[Path, bytes] = {}

    def cut() -> None:
        newest = max((_table(target) / "_delta_log").glob("*.json"))
        whole[newest] = newest.read_bytes()
        newest.write_bytes(whole[newest][: len(whole[newest]) // 2])

    def restore() -> None:
        for path, content in whole.items():
            path.write_bytes(content)

    # Not sure: Delta does not read the commit of a version that has a checkpoint.
    yield Proof(refused(target, _NOTICED, break_it=cut, heal_it=restore, is_sure=False))


@contextmanager
def _disk_full(target: FaultTarget) -> Iterator[Proof]:
    log = target.driver_log()
    with _no_space(target.supervisor.current):
        yield Proof(log.await_line(_NOTICED))


@contextmanager
def _no_space(driver: DriverProcess) -> Iterator[None]:
    # A limit for the process: it can't extend any file, as on a full disk, and others can.
    process = psutil.Process(driver.pid)
    before = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        if driver.is_alive:  # it may have ended because of it
            process.rlimit(psutil.RLIMIT_FSIZE, before)


@acts
def _disk_full_after(target: FaultTarget, step: Step) -> Iterator[Proof]:
    armed = Armed(target, step, "stop", count=2)
    asleep = armed.await_asleep()
    if asleep is None:
        yield Proof()
        return
    log = target.driver_log()
    # It sleeps until there is no space for its next record.
    with _no_space(armed.driver):
        asleep.resume()
        yield Proof(log.await_line(_NOTICED))


@contextmanager
def _rolled_back(target: FaultTarget) -> Iterator[Proof]:
    table = _table(target)
    older = table.with_name(f".{table.name}.older")
    newest = table.with_name(f".{table.name}.newest")
    shutil.copytree(table, older)
    wanted = len(target.log_records() or []) + _NEWER_RECORDS
    if not ask(lambda: len(target.log_records() or []) >= wanted, _WRITES_WITHIN_S):
        yield Proof()
        return

    def swap() -> None:
        table.rename(newest)
        older.rename(table)

    def restore() -> None:
        shutil.rmtree(table)
        newest.rename(table)

    yield Proof(refused(target, "CommitLogError", break_it=swap, heal_it=restore))


@contextmanager
def _record_missing(target: FaultTarget) -> Iterator[Proof]:
    # Of the newest version: a file that is not committed yet is missed by nobody.
    files = map(Path, DeltaTable(str(_table(target))).file_uris())
    file = max(files, key=lambda path: path.stat().st_mtime)
    away = file.with_name(f".{file.name}.away")
    yield Proof(
        refused(
            target,
            file.name,  # the error must name it
            break_it=lambda: file.rename(away),
            heal_it=lambda: away.rename(file),
        )
    )


@contextmanager
def _two_compactions(target: FaultTarget) -> Iterator[Proof]:
    # Two of Delta's own compactions both succeed, and every record is there twice.
    compact = ("log", "compact", target.sink_id, "--apply", "--yes")
    ends = []
    for _ in range(_ROUNDS):
        records = len(target.log_records() or [])
        stopped_one = target.start_recovery(*compact)
        if not _is_at_work(stopped_one, _table(target)):
            continue
        with stopped([psutil.Process(stopped_one.pid)]):
            other = target.recovery(*compact)
            # Let the driver append too, if it has anything to write.
            ask(partial(_has_more, target, records), _BESIDE_S)
        ends.append((other.returncode, stopped_one.wait(timeout=_WRITES_WITHIN_S)))
        # One may not know its result; anything else is a failure of the tool.
        if not {*ends[-1]} <= {Exit.CLEAN, Exit.UNKNOWN}:
            raise Violated(f"compaction ended with {ends[-1]}: {other.stdout}{other.stderr}")
    yield Proof(f"{len(ends)} times two at once; exit codes {ends}" if ends else "")


def _has_more(target: FaultTarget, records: int) -> bool:
    return len(target.log_records() or []) != records


def _is_at_work(process: subprocess.Popen[bytes], table: Path) -> bool:
    # A new file is most likely its own and not committed yet: the moment to stop it.
    known = set(table.glob("*.parquet"))
    while process.poll() is None:
        if not known.issuperset(table.glob("*.parquet")):
            return True
        time.sleep(_TIGHT_S)
    return False


def _fault(name: str, text: str, act: Act) -> Fault:
    return Fault(name, "log", text, act)


FAULTS: Final = (
    _fault(
        "two-compactions",
        "a compaction of the log is stopped while another one runs, and a driver appends",
        _two_compactions,
    ),
    _fault("log-away", "the commit log is missing for a while", _log_away),
    _fault("log-cut", "the newest commit of the log is cut in half when a driver starts", _log_cut),
    _fault(
        "log-rolled-back", "an older copy of the log is in place when a driver starts", _rolled_back
    ),
    _fault("record-missing", "a file of the log is missing when a driver starts", _record_missing),
    _fault("disk-full", "the driver can't write files for a while", _disk_full),
    _fault(
        "disk-full-at-prepare",
        "the driver can't write files when it must append PREPARED",
        _disk_full_after(Step.RECEIPT),
    ),
    _fault(
        "disk-full-at-finish",
        "the driver can't write files when it must append COMMITTED",
        _disk_full_after(Step.END),
    ),
)
