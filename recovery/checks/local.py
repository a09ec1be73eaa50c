"""Checks that need no cluster: the commit logs, their storage, Spark's settings."""

from __future__ import annotations

from pathlib import Path

from eos.cli.reports import age_s, duration
from eos.commit_log import probe_storage
from eos.errors import EosError
from eos.protocol import History, LogRecord
from eos.recovery._target import Target
from eos.recovery.checks._java_properties import parse_properties
from eos.recovery.checks.check_result import (
    Check,
    failed,
    not_checked,
    of_error,
    ok,
    unknown,
    warning,
)

MAX_AHEAD_S = 5.0


def check_logs(target: Target, sink: str | None) -> tuple[list[Check], list[History]]:
    """Check storage and logs; also return the histories of non-empty logs, for other checks."""
    checks: list[Check] = []
    histories: list[History] = []
    if not target.commit_log:
        return [unknown("commit log", "not checked", "Pass --commit-log.")], histories
    checks.append(_check_storage(target))
    names = target.sinks(sink)
    broken = 0
    for name in names:
        try:
            history = target.log(name).history
        except EosError as error:
            broken += 1
            checks.append(of_error(f"log of {name}", error))
            continue
        left = (*history.unfinished, *history.owing)
        if left:
            epochs = ", ".join(f"{record.epoch} {record.state.value}" for record in left[:3])
            more = f", and {len(left) - 3} more" if left[3:] else ""
            checks.append(
                warning(
                    f"log of {name}",
                    f"unfinished or not written epochs: {epochs}{more}",
                    "A running driver finishes them. If none is running, see `status`.",
                )
            )
        if history.last is not None:
            histories.append(history)
    if not broken:
        checks.append(ok("commit logs", f"{len(names)} of {len(names)} are readable and complete"))
    checks.append(_check_clock([history.last for history in histories if history.last is not None]))
    return checks, histories


def _check_storage(target: Target) -> Check:
    name = "log storage"
    try:
        probe = probe_storage(target.root, storage_options=target.storage_options)
    except EosError as error:
        return of_error(name, error)
    if not probe.is_writable:
        return failed(name, probe.detail, "A driver must be able to write there.")
    if not probe.is_exclusive:
        return failed(
            name,
            probe.detail,
            "Two drivers could both succeed with the same append. Use storage with conditional put "
            "(docs/commit-log.md).",
        )
    return ok(name, f"writable; {probe.detail}")


def _check_clock(newest: list[LogRecord]) -> Check:
    name = "clock of the logs"
    ahead = [-(age_s(record.written_at) or 0.0) for record in newest]
    if not ahead:
        return not_checked(name, "the logs have no records")
    worst = max(ahead)
    if worst > MAX_AHEAD_S:
        return warning(
            name,
            f"the newest record is {duration(worst)} in the future",
            "Synchronize the clocks (NTP): times in reports are wrong. Order and safety do not "
            "depend on clocks.",
        )
    return ok(name, "no record is in the future")


def check_spark(conf_dir: str | None) -> Check:
    """Check ``spark.speculation`` in ``spark-defaults.conf``. The sink refuses to start with it."""
    name = "Spark settings"
    if conf_dir is None:
        return not_checked(
            name,
            "no --spark-conf; the sink refuses speculation at start",
            "Pass the folder that contains spark-defaults.conf.",
        )
    path = Path(conf_dir) / "spark-defaults.conf"
    try:
        settings = parse_properties(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return not_checked(
            name, f"{path} not found; the sink refuses speculation at start", "Check --spark-conf."
        )
    except OSError as error:
        return unknown(name, f"{path}: {error.strerror}")
    except ValueError as error:
        return unknown(name, f"{path}: {error}", "Spark can't read it either.")
    if settings.get("spark.speculation", "false").strip().lower() == "true":
        return failed(
            name,
            f"spark.speculation is true in {path}",
            "Set it to false for jobs that write with eos: the sink refuses to start, because a "
            "second copy of a task poisons its transaction.",
        )
    return ok(name, f"no speculation in {path}; the sink checks a job's own settings at start")
