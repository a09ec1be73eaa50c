"""Stands in for an output that, according to a person, will never answer again."""

# ruff: noqa: ARG002 - nothing is asked
from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Never

from eos.errors import ConfigurationError
from eos.participant import Attempt, Participant
from eos.protocol import ABORTED, Fate, History, LogRecord, Part, unknown


class GivenUpOutput(Participant):
    """An output that is no longer asked; its content stays unchanged.

    The outcome of a commit is unknown, so only a person's decision continues without it. An abort
    counts as done: once the log says so, its part is never committed.
    """

    def __init__(self, part: Part) -> None:
        self._part = part

    def claimed(self, history: History, log_table_id: str) -> Part:
        """The part in the log."""
        return self._part

    def begin(self, attempt: Attempt) -> Never:
        """Not used by recovery."""
        raise NotImplementedError

    def count(self, part: Part, written: Sequence[Any]) -> Never:
        """Not used by recovery."""
        raise NotImplementedError

    def prepare(self, record: LogRecord, part: Part) -> Never:
        """Not used by recovery."""
        raise NotImplementedError

    def commit(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Unknown."""
        return unknown("given up")

    def abort(self, part: Part, *, deadline_s: float, is_own: bool) -> Fate:
        """Aborted; staged data stays where it is."""
        return ABORTED

    def outcome(self, part: Part, *, timeout_s: float) -> Fate:
        """Unknown."""
        return unknown("given up")


def check_given_up(outputs: Collection[str], parts: Iterable[Part], sink_id: str) -> None:
    """Check that all of ``outputs`` exist and may be given up.

    Raises:
        ConfigurationError: the output does not exist, or it decides the outcome.
    """
    known = {part.output: part for part in parts}
    for name in outputs:
        if name not in known:
            raise ConfigurationError(
                f"Output {name} does not exist in this sink.",
                hint=f"Its outputs: {', '.join(known)}.",
                sink_id=sink_id,
            )
        if known[name].can_expire:
            raise ConfigurationError(
                f"{name} can't be given up: its outcome decides for the other outputs.",
                hint="Pass a cluster that answers with --service-url.",
                sink_id=sink_id,
            )
