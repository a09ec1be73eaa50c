"""Participants that are each broken in one way on purpose; run by ``test_sink_contract``."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from eos.protocol import ABORTED, COMMITTED
from eos.testing import SinkContract
from examples.folder.participant import FolderKind, FolderPart, FolderParticipant
from tests.testing.outputs import FolderOutput


def of(
    participant: type[FolderParticipant],
    part: type[FolderPart] = FolderPart,
    output: type[FolderOutput] = FolderOutput,
) -> type:
    class Kind(FolderKind):
        def open(self, sink_id, part, access):
            return participant(part.root)

    Kind.part = part

    class Broken(output):  # type: ignore[misc, valid-type]
        kind = Kind()

        def participant(self):
            return participant(self.folder)

    return Broken


class _Suite(SinkContract):
    broken: type

    @pytest.fixture
    def output(self, tmp_path):
        return self.broken(tmp_path / "out")


class CommitsTwice(FolderParticipant):
    def commit(self, part, **_):
        if part.staged.is_dir():
            shutil.copytree(part.staged, Path(part.root, os.urandom(4).hex()))
        return COMMITTED


class TestCommitsTwice(_Suite):
    broken = of(CommitsTwice)


class NeverCommits(FolderParticipant):
    def commit(self, part, **_):
        return COMMITTED


class TestNeverCommits(_Suite):
    broken = of(NeverCommits)


class ReadableBeforeCommit(FolderParticipant):
    def count(self, part, written):
        counted = super().count(part, written)
        self.commit(counted, deadline_s=1, is_own=True)
        return counted


class TestReadableBeforeCommit(_Suite):
    broken = of(ReadableBeforeCommit)


class AbortsCommits(FolderParticipant):
    def abort(self, part, **_):
        shutil.rmtree(part.done, ignore_errors=True)
        return ABORTED


class TestAbortsCommits(_Suite):
    broken = of(AbortsCommits)


class DeniesCommits(FolderParticipant):
    def abort(self, part, **_):
        return ABORTED


class TestDeniesCommits(_Suite):
    broken = of(DeniesCommits)


class Guesses(FolderParticipant):
    def outcome(self, part, *, timeout_s):
        return COMMITTED


class TestGuesses(_Suite):
    broken = of(Guesses)


class OutcomeCommits(FolderParticipant):
    def outcome(self, part, *, timeout_s):
        if part.staged.is_dir():
            part.staged.rename(part.done)
        return super().outcome(part, timeout_s=timeout_s)


class TestOutcomeCommits(_Suite):
    broken = of(OutcomeCommits)


class CallsStagedAborted(FolderParticipant):
    def outcome(self, part, *, timeout_s):
        return COMMITTED if part.done.is_dir() else ABORTED


class TestCallsStagedAborted(_Suite):
    broken = of(CallsStagedAborted)


class CreatesInRecovery(FolderParticipant):
    def attach(self, claim, history):
        self.make(claim, in_recovery=False)
        super().attach(claim, history)


class TestCreatesInRecovery(_Suite):
    broken = of(CreatesInRecovery)


class DoesNotMissIt(FolderParticipant):
    def missing(self, claim, history):
        return None


class TestDoesNotMissIt(_Suite):
    broken = of(DoesNotMissIt)


class OlderLogUnseen(FolderParticipant):
    def newer_commit(self, history, *, timeout_s):
        return None


class TestOlderLogUnseen(_Suite):
    broken = of(OlderLogUnseen)


class Miscounts(FolderParticipant):
    def count(self, part, written):
        return replace(super().count(part, written), files=len(written) + 1)


class TestMiscounts(_Suite):
    broken = of(Miscounts)


class KeepsStateInMemory(FolderParticipant):
    def count(self, part, written):
        self.known = part.name
        return super().count(part, written)

    def commit(self, part, **options):
        if getattr(self, "known", None) != part.name:
            return ABORTED
        return super().commit(part, **options)


class TestKeepsStateInMemory(_Suite):
    broken = of(KeepsStateInMemory)


class CountsFromOne(FolderParticipant):
    def attach(self, claim, history):
        self._number = 0


class TestCountsFromOne(_Suite):
    broken = of(CountsFromOne)


class RaisesInCompaction(FolderParticipant):
    def after_end(self, record, part, *, is_last):
        raise OSError("disk full")


class TestRaisesInCompaction(_Suite):
    broken = of(RaisesInCompaction)


class Unchecked(FolderPart):
    def check(self, stage):
        pass

    def check_follows(self, previous):
        pass


class UncheckedParticipant(FolderParticipant):
    def claimed(self, history, log_table_id):
        return Unchecked(self._root)

    def begin(self, attempt):
        return Unchecked(**vars(super().begin(attempt)))


class TestUnchecked(_Suite):
    broken = of(UncheckedParticipant, Unchecked)


class Forgetful(FolderPart):
    def payload(self):
        return {"root": self.root}


class ForgetfulParticipant(FolderParticipant):
    def claimed(self, history, log_table_id):
        return Forgetful(self._root)

    def begin(self, attempt):
        return Forgetful(**vars(super().begin(attempt)))


class TestForgetful(_Suite):
    broken = of(ForgetfulParticipant, Forgetful)


class TakesAllFiles(FolderParticipant):
    def count(self, part, written):
        return super().count(part, list(part.written.glob("*")))


class TestTakesAllFiles(_Suite):
    broken = of(TakesAllFiles)


class CommitsFileByFile(FolderParticipant):
    def commit(self, part, *, deadline_s, is_own):
        for path in part.staged.glob("*"):
            part.done.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # another process renamed it
                path.rename(part.done / path.name)
        with suppress(FileNotFoundError):
            part.staged.rmdir()
        return self.outcome(part, timeout_s=deadline_s)


class TestCommitsFileByFile(_Suite):
    broken = of(CommitsFileByFile)


class KeepsOneOfEqualRows(FolderParticipant):
    def count(self, part, written):
        counted = super().count(part, written)
        for path in {path.read_text(): path for path in part.staged.glob("*")}.values():
            path.rename(path.with_suffix(".kept"))
        for path in set(part.staged.glob("*")) - set(part.staged.glob("*.kept")):
            path.unlink()
        return counted


class TestKeepsOneOfEqualRows(_Suite):
    broken = of(KeepsOneOfEqualRows)


class NamesWithoutTheTask(FolderOutput):
    def write(self, part, rows):
        paths = super().write(part, rows)
        return [path.rename(path.with_name(str(n))) for n, path in enumerate(paths)]


class TestNamesWithoutTheTask(_Suite):
    broken = of(FolderParticipant, output=NamesWithoutTheTask)


class Numbered(FolderPart):
    @property
    def done(self):
        return Path(self.root, f"{self.number}")


class NumberedParticipant(FolderParticipant):
    def claimed(self, history, log_table_id):
        return Numbered(self._root)

    def begin(self, attempt):
        return Numbered(**vars(super().begin(attempt)))

    def commit(self, part, **options):
        return COMMITTED if part.done.is_dir() else super().commit(part, **options)


class TestAttemptsOfOthersHaveItsName(_Suite):
    broken = of(NumberedParticipant, Numbered)


class DeniesCommitsOfOthers(FolderParticipant):
    def commit(self, part, **options):
        self.mine = part.name
        return super().commit(part, **options)

    def outcome(self, part, *, timeout_s):
        if part.done.is_dir() and getattr(self, "mine", None) != part.name:
            return ABORTED
        return super().outcome(part, timeout_s=timeout_s)


class TestDeniesCommitsOfOthers(_Suite):
    broken = of(DeniesCommitsOfOthers)
