"""Epochs of few rows, which the driver sends by itself.

Most of what such an epoch takes is what Spark needs to run Python in tasks: planning it, sockets
there and back, the roll call. Few rows are fetched instead, and sent over the driver's connections,
in the same transaction and by the same code as a task's.

How many rows there will be nobody can say before they are computed. So it is guessed, by the epochs
before, and what is fetched is cut off in Spark, one row beyond what few are. A guess that was wrong
shows by that row: nothing was sent, what was fetched is dropped, and tasks compute and write the
epoch.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame

_IN_A_ROW: Final = 3
"""So many epochs had few rows before it is guessed that the next one has."""
_MOST_IN_A_ROW: Final = 192
_ROW_OF_PARTITION: Final = (1 << 33) - 1
"""The bits of Spark's ``monotonically_increasing_id`` that count the rows of one partition."""

_TOO_LARGE: Final = "spark.driver.maxResultSize"
"""What Spark names when it refuses to bring so many bytes to the driver."""


class FewRows:
    """Guesses whether an epoch has few rows, and fetches those of one.

    Args:
        most: rows that are few; 0: none are.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._in_a_row = 0
        self._wanted = _IN_A_ROW

    @property
    def are_expected(self) -> bool:
        """Whether the next epoch will have few, by those before."""
        return self._most > 0 and self._in_a_row >= self._wanted

    def saw(self, records: int) -> None:
        """An epoch of so many rows was written."""
        self._in_a_row = self._in_a_row + 1 if records <= self._most else 0

    def fetch(self, rows: DataFrame) -> list[pa.RecordBatch] | None:
        """All of ``rows``; None: they are not few.

        Computes each partition to its end, which ``limit`` would not: state stores need that. Of
        each it fetches one row more than are few, at most.
        """
        number = f"monotonically_increasing_id() & {_ROW_OF_PARTITION}"
        few = rows.filter(f"{number} <= {self._most}")
        try:
            found = few.toArrow()
        except Exception as error:
            self._guess_less()  # whatever it was, tasks are asked next
            if _TOO_LARGE in str(error):
                return None
            raise _what_happened(error) from None
        if found.num_rows > self._most:
            self._guess_less()
            return None
        fetched: list[pa.RecordBatch] = found.to_batches()
        return fetched

    def _guess_less(self) -> None:
        """A stream of all sizes would be computed twice again and again."""
        self._wanted = min(2 * self._wanted, _MOST_IN_A_ROW)
        self._in_a_row = 0


def _what_happened(error: BaseException) -> BaseException:
    """What is behind an error of ``toArrow``. Spark fetches rows in a thread of its own: the error
    says of that thread only that something went wrong, and it takes the place of an interrupt."""
    before: BaseException | None = error
    while before is not None:
        if isinstance(before, KeyboardInterrupt):
            return before
        before = before.__context__
    if isinstance(error, Py4JJavaError) and (cause := error.java_exception.getCause()) is not None:
        inner: BaseException = Py4JJavaError(error.errmsg, cause)
        return inner
    return error
