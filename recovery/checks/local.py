"""Checks that need no cluster: commit logs and their storage, other outputs, Spark's settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from eos.cli.reports import age_s, duration
from eos.commit_log import probe_storage
from eos.committer.participants import opened
from eos.errors import ConfigurationError, EosError
from eos.protocol import History, LogRecord, Part
from eos.pulsar.part import other_parts
from eos.recovery._target import Target
from eos.recovery.checks.result import (
    Check,
    CheckStatus,
    failed,
    not_checked,
    of_error,
    ok,
    unknown,
    warning,
)

MAX_AHEAD_S = 5.0  # for readable times in reports; order and safety do not depend on clocks


def check_logs(target: Target, sink: str | None) -> tuple[list[Check], list[History]]:
    """Check storage and logs; also return the histories of non-empty logs, for other checks."""
    checks: list[Check] = []
    histories: list[History] = []
    if not target.commit_log:
        return [unknown("commit log", "not checked", "Pass --commit-log.")], histories
    try:
        names = target.sinks(sink)
    except ConfigurationError as error:
        if sink is not None:
            raise
        # Perhaps before the first write. The storage is not tried: that would create the folder.
        hint = f"A sink's first write creates it. {error.hint}"
        return [unknown("commit logs", error.message.rstrip("."), hint)], histories
    checks.append(_check_storage(target))
    broken = 0
    for name in names:
        try:
            history = target.log(name).history
        except EosError as error:  # a damaged log must not hide the others
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
    # The fence of two drivers is the storage's conditional put; without it both append.
    if not probe.is_exclusive:
        return failed(
            name,
            probe.detail,
            "Two drivers could both succeed with the same append. Use storage with conditional "
            "puts, or a file system.",
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


def check_outputs(target: Target, histories: Iterable[History]) -> list[Check]:
    """Check each output of the newest claims that is not a topic."""
    checks = []
    for history in histories:
        claim = history.last_claim
        for part in () if claim is None else other_parts(claim):
            check = _check_output(target, history, part)
            for _ in range(_TRIES):
                # A running driver may have committed after the log was read.
                if check.verdict is CheckStatus.FAILED:
                    check = _check_output(target, target.log(history.sink_id).history, part)
            checks.append(check)
    return checks


def _check_output(target: Target, history: History, part: Part) -> Check:
    name = f"{part.kind} {part.output} of {history.sink_id}"
    try:
        with opened(history.sink_id, part, target.access) as participant:
            participant.check(part)
            lost = participant.missing(part, history) or participant.lost_commit(part, history)
            if lost is not None:
                return failed(
                    name,
                    lost,
                    "Check that it is the right one. Drivers refuse to continue: see "
                    "on_new_cluster.",
                )
            participant.attach(part, history)
            newer = participant.newer_commit(history, timeout_s=target.timeout_s)
    except EosError as error:
        return of_error(name, error)
    if newer is not None:
        return failed(
            name,
            f"{newer}, and the log ends before it",
            "The log was replaced by an older copy. Restore the newest one.",
        )
    return ok(name, "exists, has the log's newest commit, and is writable")


_TRIES: Final = 3
_BLANK: Final = " \t\f"
_PAIR: Final = re.compile(
    r"(?P<name>(?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Return names and values of a text, as Java's ``Properties.load`` documents it.

    Raises:
        ValueError: an escape ``\\uXXXX`` does not have four digits; Java refuses it too.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        pair = _PAIR.fullmatch(line)
        assert pair is not None  # every text matches
        # As in Java, the last one wins if a name is repeated.
        found[_unescape(pair["name"])] = _unescape(pair["value"])
    return found


def _logical_lines(text: str) -> Iterator[str]:
    begun = ""
    is_continued = False
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(_BLANK)
        if not is_continued and (not line or line[0] in "#!"):
            continue
        # An even number of backslashes is escaped backslashes; an odd one continues the line.
        is_continued = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        begun += line[:-1] if is_continued else line
        if not is_continued:
            yield begun
            begun = ""
    if begun:
        yield begun


def _unescape(text: str) -> str:
    def meaning(match: re.Match[str]) -> str:
        digits, letter = match[1], match[2]
        if digits is not None:
            return chr(int(digits, 16))
        if letter == "u":
            raise ValueError("malformed \\uXXXX")
        return _LETTERS.get(letter, letter or "")

    return _ESCAPE.sub(meaning, text)
