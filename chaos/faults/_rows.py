"""Rows that no sink can write: in the input for good, so the job has to end with a clear error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from eos.chaos._records import release_row
from eos.chaos.cluster.target import FaultTarget
from eos.chaos.faults._fault import Act, Fault, Proof

_LARGER_THAN_THE_BROKER_TAKES: Final = 6 << 20


def _row(value: str | None) -> Act:
    @contextmanager
    def act(target: FaultTarget) -> Iterator[Proof]:
        release_row(target.job, value)
        yield Proof(f"a row of {'no value' if value is None else f'{len(value)} characters'}")

    return act


FAULTS: Final = (
    Fault("null-value", "input", "a row without a value", _row(None), ends_with="InputError"),
    Fault(
        "large-value",
        "input",
        "a row that is larger than the broker takes",
        _row("x" * _LARGER_THAN_THE_BROKER_TAKES),
        ends_with="MessageTooLarge",
    ),
)
