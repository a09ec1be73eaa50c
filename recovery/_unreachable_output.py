"""An output that gives no answer and never will, as a person says."""

# ruff: noqa: ARG002 - it asks nobody
from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Never

from eos.errors import ConfigurationError
from eos.participant import Attempt, Participant
from eos.protocol import ABORTED, Fate, History, LogRecord, Part, unknown


class GivenUp(Participant):
    """Stands for an output that nobody asks any more: what it holds stays as it is.

    A commit of it stays unknown, so that only a person's decision goes on without it. What is to be
    aborted counts as aborted: nobody commits it once the log says so.
    """

    def __init__(self, part: Part) -> None:
        self._part = part

    def claimed(self, history: History, log_table_id: str) -> Part:
        """What the log names."""
        return self._part

    def begin(self, attempt: Attempt) -> Never:
        """Recovery begins nothing."""
        raise NotImplementedError

    def count(self, part: Part, written: Sequence[Any]) -> Never:
        """Recovery writes nothing."""
        raise NotImplementedError

    def prepare(self, record: LogRecord, part: Part) -> Never:
        """Recovery prepares nothing."""
        raise NotImplementedError

    def commit(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Not asked."""
        return unknown("given up")

    def abort(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """What it has staged is left."""
        return ABORTED

    def outcome(self, part: Part, *, timeout_s: float) -> Fate:
        """Not asked."""
        return unknown("given up")


def check_given_up(outputs: Collection[str], parts: Iterable[Part], sink_id: str) -> None:
    """Check that all of ``outputs`` are there, and may be given up.

    Raises:
        ConfigurationError: there is no such output, or it is the one that decides.
    """
    known = {part.output: part for part in parts}
    for name in outputs:
        if name not in known:
            raise ConfigurationError(
                f"This sink has no output {name}.",
                hint=f"It has: {', '.join(known)}.",
                sink_id=sink_id,
            )
        if known[name].can_expire:
            raise ConfigurationError(
                f"{name} can't be given up: what became of it decides for the others.",
                hint="Give the address of a cluster that answers: --service-url.",
                sink_id=sink_id,
            )
