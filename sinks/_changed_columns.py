"""Reports columns that differ from those of the topic or table: in the log, or as an error.

A renamed column is a new one and a missing one. No schema forbids that: the output then has both,
and readers of the old one get nulls.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from eos.errors import InputError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChangedColumns:
    """The columns that only the rows have (``new``), and those that only the output has."""

    new: Sequence[str]
    missing: Sequence[str]

    def report(self, output: str, sink_id: str, *, may_change: bool) -> None:
        """Log the changes.

        Raises:
            InputError: there are changes, and ``may_change`` is False.
        """
        parts = [
            f"{word}: {', '.join(names)}"
            for word, names in (("new", self.new), ("missing", self.missing))
            if names
        ]
        if not parts:
            return
        text = f"columns of the rows differ from those of {output}: {'; '.join(parts)}"
        if not may_change:
            raise InputError(
                f"The {text}.",
                hint="Rename them back, or set on_changed_columns='continue' to write them.",
            )
        # A renamed column is new and missing at once.
        level = logging.WARNING if self.new and self.missing else logging.INFO
        logger.log(level, "sink %s: %s", sink_id, text, extra={"sink": sink_id})
