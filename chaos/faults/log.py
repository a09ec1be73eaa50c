"""Faults of the commit log's files, for workloads that keep one in a folder of this machine."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil

from chaos.faults.fault import Fault, Proof
from chaos.target import Target


def _table(target: Target) -> Path:
    return Path(target.job.commit_log) / target.job.sink_id


@contextmanager
def _log_away(target: Target) -> Iterator[Proof]:
    table = _table(target)
    elsewhere = table.with_name(f".{table.name}.away")
    if not table.exists():
        yield Proof()
        return
    table.rename(elsewhere)
    try:
        yield Proof(f"{table.name} was not there")
    finally:
        # Refuses to take the place of a log that somebody made meanwhile.
        elsewhere.rename(table)


@contextmanager
def _log_cut(target: Target) -> Iterator[Proof]:
    commits = sorted((_table(target) / "_delta_log").glob("*.json"))
    if not commits:
        yield Proof()
        return
    newest = commits[-1]
    whole = newest.read_bytes()
    newest.write_bytes(whole[: len(whole) // 2])
    try:
        yield Proof(f"{newest.name} had {len(whole) // 2} of {len(whole)} bytes")
    finally:
        newest.write_bytes(whole)


@contextmanager
def _disk_full(target: Target) -> Iterator[Proof]:
    """No file of the driver's Python may grow: what a full disk looks like to it."""
    life = target.supervisor.current
    process = psutil.Process(life.pid)
    before = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        yield Proof(f"pid {life.pid} could write nothing")
    finally:
        if life.is_alive:
            process.rlimit(psutil.RLIMIT_FSIZE, before)


FAULTS: Final = (
    Fault("log-away", "log", "the commit log is gone for a while", _log_away),
    Fault("log-cut", "log", "the newest commit of the log is cut for a while", _log_cut),
    Fault("disk-full", "log", "the driver can write no file for a while", _disk_full),
)
