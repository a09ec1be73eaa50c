"""A driver without Spark, and recovery, for the contract of participants."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, Protocol

import pytest

from eos.commit_log import CommitLog
from eos.committer import Claim, OpenAttempt, Participants
from eos.errors import EosError
from eos.participant import Access, Kind, Participant
from eos.protocol import BATCH, History, Known, LogRecord, Part, Run, State

_SYSTEM: Final = {"posix", "io", "sqlite3", "_socket"}
ROWS: Final = ["one", "two", "three"]


class OutputUnderTest(Protocol):
    """An empty output for one test, with methods to write to it and to read it."""

    kind: Kind  # the object of the entry point
    access: Access  # how recovery reaches the output

    def participant(self) -> Participant:
        """Return a new participant, as a starting driver creates it."""

    def write(self, part: Part, rows: Sequence[str]) -> Sequence[Any]:
        """Write ``rows`` in the attempt of ``part``, as one run of one task does.

        ``count`` gets what is returned: of several tasks the sum of their lists, and nothing of a
        run that Spark repeats, or that ends late.
        """

    def read(self) -> list[str]:
        """Return the rows that a plain reader finds, in any order."""

    def hidden(self) -> AbstractContextManager[None] | None:
        """Make the output look empty or unreachable for a while, as a disk that is not mounted.

        None: that can't be done here; a few tests are skipped.
        """


@dataclass
class DriverRun:
    """One run of a driver, from its start to its end, with the only participant of a sink."""

    log: CommitLog
    participant: Participant
    output: OutputUnderTest

    def __post_init__(self) -> None:
        self.claim = Claim(self.log, Participants(self.log, [self.participant]), deadline_s=20)

    def begin(self, epoch: str = "a", run: Run | None = None) -> OpenAttempt:
        """Claim the sink if needed, and append OPEN."""
        with ThreadPoolExecutor(1) as executor:
            opened, _ = OpenAttempt.begin(
                self.log,
                self.claim,
                BATCH,
                epoch,
                run or Run(1, None),
                executor=executor,
                meanwhile=lambda _: None,
                deadline_s=20,
            )
        return opened

    def prepared(self, epoch: str = "a", rows: Sequence[str] = tuple(ROWS)) -> LogRecord:
        """Write an epoch up to PREPARED, as a driver that dies then."""
        opened = self.begin(epoch)
        opened.prepare([self.output.write(part_of(opened.record), rows)])
        return opened.record

    def commit(self, record: LogRecord) -> Any:
        """Call the participant's method, as for another driver's attempt; like ``abort``."""
        return self.participant.commit(part_of(record), deadline_s=20, is_own=False)

    def abort(self, record: LogRecord) -> Any:
        """See ``commit``."""
        return self.participant.abort(part_of(record), deadline_s=20, is_own=False)

    def outcome(self, record: LogRecord) -> Known:
        """Ask the participant."""
        return self.participant.outcome(part_of(record), timeout_s=20).known


def part_of(record: LogRecord) -> Part:
    """Return the part of the only participant."""
    (part,) = record.participants
    return part


def part_of_claim(output: OutputUnderTest) -> Part:
    """Return the part of a first claim."""
    return output.participant().claimed(History("contract"), "00000000")


def hidden(output: OutputUnderTest) -> AbstractContextManager[None]:
    """Hide the output, or skip the test."""
    found: AbstractContextManager[None] | None = getattr(output, "hidden", lambda: None)()
    if found is None:
        pytest.skip("the output can't be hidden")
    return found


def need_newer_commit(output: OutputUnderTest) -> None:
    """Skip the test if the output can't notice an older copy of the log."""
    if type(output.participant()).newer_commit is Participant.newer_commit:
        pytest.skip("the output does not know commits that the log lacks")


@contextmanager
def watched(output: OutputUnderTest) -> Iterator[list[int]]:
    """Count the readable rows after each step of this thread that others could see."""
    seen: list[int] = []

    def look(_: FrameType, event: str, called: Any) -> None:
        if event != "c_return" or called.__name__ == "fspath":
            return
        if (called.__module__ or type(called.__self__).__module__) in _SYSTEM:
            with suppress(Exception):  # the commit may lock out its readers
                seen.append(len(output.read()))

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield seen
    finally:
        sys.setprofile(before)


def recover(output: OutputUnderTest, driver: DriverRun) -> LogRecord:
    """End the unfinished attempt as ``eos recovery resolve`` does; return its last record."""
    (record,) = driver.log.history.unfinished
    other = output.kind.open("contract", part_of(record), output.access)
    participants = Participants(driver.log, [other])
    claim = Claim(
        driver.log, participants, deadline_s=1, on_new_cluster="continue", in_recovery=True
    )
    try:
        return claim.finish(record)
    finally:
        other.close()


def recover_in_vain(output: OutputUnderTest, driver: DriverRun) -> None:
    """As ``recover``; check that nothing is assumed about an attempt that can't be asked for."""
    with pytest.raises(EosError):
        recover(output, driver)
    (record,) = driver.log.history.unfinished
    assert record.state is State.PREPARED
