"""The writing side of an output, which turns a DataFrame into reports for its participant."""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame

from eos.errors import InputError, reported_error
from eos.participant import Participant
from eos.protocol import History, Part
from eos.sinks._spark_jvm import tagged_jobs
from eos.sinks.options import SinkOptions

logger = logging.getLogger(__name__)

Begun = Callable[[], Part]
"""Waits until an attempt has begun, and returns the output's part of it."""

Write = Callable[[], Sequence[Any]]
"""Writes the rows, and returns the reports for ``Participant.count``. When it returns, none of its
tasks is running."""


class Output(ABC):
    """One output of a sink: writes rows, and has the participant that commits them."""

    participant: Participant

    @abstractmethod
    def plan(self, df: DataFrame, context: SparkContext, begun: Begun) -> Write:
        """Plan step 5, up to the Spark action that writes ``df``; nothing is written yet.

        Args:
            begun: waits until the attempt has begun, and returns the output's part of it.

        Raises:
            InputError: the DataFrame can't be written there.
            EosError: the attempt could not begin.
        """

    def check(self, df: DataFrame) -> None:
        """Check, before each attempt, that rows with these columns can be written there.

        Raises:
            InputError: they can't.
        """

    def traces(self) -> list[str]:
        """Return signs, in words, that an earlier log of this sink has written to the output.

        Raises:
            Retriable: the output does not answer.
        """
        return self.participant.traces()

    @abstractmethod
    def is_written_by(self, part: Part) -> bool:
        """Whether ``part``, of another sink's log, may have been written to the same output."""

    def on_open(self, history: History, df: DataFrame) -> None:
        """Create the output if needed, after the log was opened for an epoch of ``df``, and warn of
        changes since the last run.

        Raises:
            InputError: the DataFrame can't be written there.
        """


@dataclass(frozen=True)
class ChangedColumns:
    """The columns that only the rows have (``new``), and those that only the output has."""

    # No schema forbids a renamed column, which is new and missing at once: the output then has
    # both, and readers of the old one get nulls.

    new: Sequence[str]
    missing: Sequence[str]

    def report(self, output: str, options: SinkOptions) -> None:
        """Log the changes.

        Raises:
            InputError: there are changes, and the options refuse them.
        """
        parts = [
            f"{word}: {', '.join(names)}"
            for word, names in (("new", self.new), ("missing", self.missing))
            if names
        ]
        if not parts:
            return
        text = f"columns of the rows differ from those of {output}: {'; '.join(parts)}"
        if options.on_changed_columns == "refuse":
            raise InputError(
                f"The {text}.",
                hint="Rename them back, or set on_changed_columns='continue' to write them.",
            )
        # A renamed column is new and missing at once.
        level = logging.WARNING if self.new and self.missing else logging.INFO
        logger.log(level, "sink %s: %s", options.sink_id, text, extra={"sink": options.sink_id})


def collect_staged(tasks: DataFrame, context: SparkContext) -> list[str]:
    """Run the tasks, and return the JSON of each item that they have staged.

    Args:
        tasks: rows in which a ``StageTask`` was mapped, which reports by ``REPORT_SCHEMA``.

    Raises:
        EosError: of a task that failed.
    """
    with tagged_jobs(context):
        reports = tasks.collect()
    for report in reports:
        if report.error is not None:
            raise reported_error(*json.loads(report.error))
    return [text for report in reports for text in json.loads(report.staged)]
