"""What the doctor asks the outputs that are no topics: may they be written to?"""

from __future__ import annotations

from eos.committer.participants import reached
from eos.errors import EosError
from eos.protocol import LogRecord, Part
from eos.pulsar.part import parts_elsewhere
from recovery._target import Target
from recovery.checks.check import Check, failed, of_error, ok


def check_outputs(target: Target, newest: list[LogRecord]) -> list[Check]:
    """One check for each output of the newest records."""
    return [
        _check(target, record.sink_id, part)
        for record in newest
        for part in parts_elsewhere(record)
    ]


def _check(target: Target, sink_id: str, part: Part) -> Check:
    name = f"{part.kind} {part.output}"
    try:
        with reached(sink_id, part, target.access) as participant:
            participant.check(part)
            missing = participant.missing(part, target.log(sink_id).history)
    except EosError as error:
        return of_error(name, error)
    if missing is not None:
        return failed(
            name, missing, "Is it mounted? A driver refuses to go on: see on_new_cluster."
        )
    return ok(name, "is there, and may be appended to")
