"""Columns that are not those of the topic or table any more: a line in the log, or a refusal.

A renamed column is a new one and a missing one. No schema forbids that: the output has both from
then on, and readers of the old one get nulls.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from eos.errors import InputError

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChangedColumns:
    """What the rows have and the output lacks (``new``), and the other way round (``missing``)."""

    new: Sequence[str]
    missing: Sequence[str]

    def tell(self, output: str, sink_id: str, *, may_change: bool) -> None:
        """Say it to the user.

        Raises:
            InputError: there are such columns, and they may not change.
        """
        parts = [
            f"{word}: {', '.join(names)}"
            for word, names in (("new", self.new), ("missing", self.missing))
            if names
        ]
        if not parts:
            return
        what = f"columns of the rows are not those of {output}: {'; '.join(parts)}"
        if not may_change:
            raise InputError(
                f"The {what}.",
                hint="Name them as before, or write them so with on_changed_columns='continue'.",
            )
        # New and missing at once is what a renamed column looks like.
        level = logging.WARNING if self.new and self.missing else logging.INFO
        logger.log(level, "sink %s: %s", sink_id, what, extra={"sink": sink_id})
