"""A participant of another package raises what it should not: each verb names it in one line."""

from __future__ import annotations

import pytest

from eos import failpoints, participant
from eos.commit_log import CommitLog
from eos.committer import Committer, OpenAttempt
from eos.delta.participant import DeltaParticipant
from eos.errors import InDoubt
from eos.protocol import BATCH
from eos.recovery.resolve import resolve
from eos.steps import Step
from examples.folder.participant import FolderKind, FolderPart, FolderParticipant
from tests.support.plain_driver import Interrupted
from tests.testing.outputs import FolderOutput, TableOutput

SAYS = ("participant 'folder'", "RuntimeError: no place")


def fails(*_: object, **__: object) -> None:
    raise RuntimeError("no place")


class Failing(FolderParticipant):
    missing = outcome = commit = audit = check = fails  # type: ignore[assignment]


class FailingPart(FolderPart):
    parse = fails  # type: ignore[assignment]


class FailingKind(FolderKind):
    def open(self, sink_id, part, access):
        return Failing(part.root)


@pytest.fixture
def install(monkeypatch):
    """Installs a release of the folder's package."""
    real = participant.kind_of

    def run(kind: object) -> None:
        for module in ("commit_log.schema", "committer.participants"):
            find = lambda name: kind if name == "folder" else real(name)  # noqa: E731
            monkeypatch.setattr(f"eos.{module}.kind_of", find)

    run(FolderKind())
    return run


@pytest.fixture
def where(tmp_path, root, install):
    """Epoch a is committed in a folder and a Delta table, epoch b is PREPARED; the package fails
    since then."""
    folder, table = FolderOutput(tmp_path / "out"), TableOutput(tmp_path / "table")
    participants = [FolderParticipant(tmp_path / "out"), DeltaParticipant("both", table.uri)]
    committer = Committer(CommitLog.open(root, "both"), participants)

    def write(epoch: str) -> None:
        committer.run_epoch(
            BATCH,
            epoch,
            lambda begun: (
                lambda: [
                    folder.write(begun()[0], ["one"]),
                    table.write(begun()[1], ["one"]),
                ]
            ),
        )

    write("a")
    with pytest.MonkeyPatch.context() as dead:
        dead.setattr(OpenAttempt, "abort", lambda *_: None)

        def die() -> None:
            raise Interrupted

        with failpoints.armed(Step.PREPARE, die), pytest.raises(Interrupted):
            write("b")
    install(FailingKind())
    return ("--commit-log", root)


@pytest.mark.parametrize(
    "verb",
    [
        ("verify",),
        ("doctor",),
        ("resolve", "--apply", "--yes", "--deadline-s", "1"),
        ("decide", "both", "--epoch", "b", "--query", "batch", "--as", "aborted", "--because", "x"),
    ],
    ids=lambda verb: verb[0],
)
def test_a_verb_names_the_participant_and_goes_on(recovery, where, verb):
    ended = recovery(*verb, *where)
    assert all(text in ended.out + ended.err for text in SAYS), ended
    # Exit code 1 of `verify`: epoch b is unfinished.
    assert ended.code == (1 if verb[0] == "verify" else 2)
    assert "Traceback" not in ended.err
    if verb[0] == "verify":
        assert "1 row unchanged in delta" in ended.out
    if verb[0] == "doctor":
        assert "exists, has the log's newest commit" in ended.out


def test_the_cause_is_kept_for_programs(where, root):
    with pytest.raises(InDoubt, match="participant 'folder'") as failed:
        resolve("both", commit_log=root, deadline_s=1)
    assert isinstance(failed.value.__cause__, RuntimeError)


def test_status_shows_the_other_sinks_of_a_part_that_cannot_be_read(recovery, where, root, install):
    kind = FailingKind()
    kind.part = FailingPart
    third = TableOutput(root.parent / "third").participant()
    Committer(CommitLog.open(root, "other"), [third]).claim()
    install(kind)
    ended = recovery("status", *where)
    assert ended.code == 2
    assert all(text in ended.out for text in ("other", "participant", "'folder'", *SAYS[1:])), ended
