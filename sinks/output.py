"""The writing side of one output: from a DataFrame to what its participant counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from pyspark import SparkContext
from pyspark.sql import DataFrame

from eos.participant import Participant
from eos.protocol import History, Part

Begun = Callable[[], Part]
"""Waits for an output's part of an attempt that is being begun."""

Write = Callable[[], Sequence[Any]]
"""Writes the rows; what it returns goes to ``Participant.count``. When it comes back, no task of it
runs any more."""


class Output(ABC):
    """One output of a sink: where rows go, and the participant that commits them."""

    participant: Participant

    @abstractmethod
    def plan(self, df: DataFrame, context: SparkContext, begun: Begun) -> Write:
        """Step 5 up to the one Spark action that writes ``df``; touches nothing yet.

        Args:
            begun: waits for the output's part of the attempt, which is being begun.

        Raises:
            InputError: the DataFrame can't be written there.
            EosError: no attempt could be begun.
        """

    def check(self, df: DataFrame) -> None:
        """Before each attempt: can rows with these columns be written there?

        Raises:
            InputError: they can't; nothing was begun.
        """

    def traces(self) -> list[str]:
        """What earlier logs of this sink have left at the output, by name: signs that the sink has
        written before.

        Raises:
            Retriable: it does not answer.
        """
        return []

    @abstractmethod
    def is_written_by(self, part: Part) -> bool:
        """Whether ``part``, of another sink's log, may be of the same output."""

    def on_open(self, history: History, df: DataFrame) -> None:
        """The log was opened, for an epoch of ``df``: make what has to be there by its columns, and
        give the user a word about what has changed since.

        Raises:
            InputError: the DataFrame can't be written there.
        """
