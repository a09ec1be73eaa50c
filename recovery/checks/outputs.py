"""Checks of outputs that are not topics: the same as in the log, and writable."""

from __future__ import annotations

from collections.abc import Iterable

from eos.committer.participants import opened
from eos.errors import EosError
from eos.protocol import History, Part
from eos.pulsar.part import other_parts
from eos.recovery._target import Target
from eos.recovery.checks.check_result import Check, CheckStatus, failed, of_error, ok


def check_outputs(target: Target, histories: Iterable[History]) -> list[Check]:
    """Check each output of the newest claims that is not a topic."""
    checks = []
    for history in histories:
        claim = history.last_claim
        for part in () if claim is None else other_parts(claim):
            check = _check(target, history, part)
            if check.verdict is CheckStatus.FAILED:
                # A running driver may have committed after the log was read.
                check = _check(target, target.log(history.sink_id).history, part)
            checks.append(check)
    return checks


def _check(target: Target, history: History, part: Part) -> Check:
    name = f"{part.kind} {part.output}"
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
