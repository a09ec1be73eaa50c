"""A topic and a folder in one epoch: both hold it or none, after a death at any step."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eos import failpoints, participant
from eos.commit_log import CommitLog
from eos.errors import ConfigurationError, EosError, InDoubt, NewCluster, TransactionPoisoned
from eos.participant import Access
from eos.protocol import State, UnknownPart, unknown
from eos.pulsar.part import pulsar_part
from eos.recovery._evidence import ask_outputs
from eos.recovery.decide import decide
from eos.recovery.resolve import resolve
from eos.steps import AnyStep, EndingStep, Step
from examples.folder.participant import KIND, FolderParticipant
from tests.support.expiry import await_expiry
from tests.support.judge import drain
from tests.support.plain_driver import PlainDriver, leave_behind, rows_of

STEPS = [
    Step.CLAIM, Step.DECIDE, Step.BEGIN, Step.OPEN, Step.WRITE, Step.CHECK, Step.RECEIPT,
    Step.PREPARE, Step.END, EndingStep.PART, EndingStep.OUTCOME, Step.FINISH,
]  # fmt: skip


@pytest.fixture(autouse=True)
def installed(monkeypatch) -> Iterator[Callable[[bool], None]]:
    """Installs or removes the folder's package."""
    real = participant.kind_of

    def install(is_there: bool) -> None:
        kinds = {"folder": KIND if is_there else None}
        find = lambda name: kinds[name] if name in kinds else real(name)  # noqa: E731
        monkeypatch.setattr("eos.commit_log.schema.kind_of", find)
        monkeypatch.setattr("eos.committer.participants.kind_of", find)

    install(True)
    return install


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def driver(make_driver, folder) -> PlainDriver:
    return make_driver(folder=folder)


def in_folder(folder: Path) -> list[bytes]:
    """The rows that a reader of the folder gets."""
    files = [path for path in folder.glob("*/*") if not path.parts[-2].startswith(".")]
    return sorted(path.read_bytes() for path in files if path.parent.name != ".staged")


def in_topic(driver: PlainDriver) -> list[bytes]:
    return [seen.value for seen in drain(driver.service_url, driver.topic)]


def both_hold(driver: PlainDriver, folder: Path, *epochs: str) -> None:
    rows = [row for epoch in epochs for row in rows_of(epoch)]
    assert in_topic(driver) == rows
    assert in_folder(folder) == sorted(rows)


def staged(folder: Path) -> list[Path]:
    return list((folder / ".staged").glob("*"))


def dies_behind(driver: PlainDriver, place: AnyStep, epoch: str) -> None:
    leave_behind(driver, place, epoch)
    driver.close()


def test_an_epoch_is_in_both(driver, folder):
    result = driver.run("0")
    assert (result.status, result.records) == ("written", 20)
    both_hold(driver, folder, "0")
    assert driver.run("1").txn is not None
    both_hold(driver, folder, "0", "1")
    record = driver.records()[-1]
    assert [part.kind for part in record.participants] == ["pulsar", "folder"]
    assert [part.records for part in record.participants] == [10, 10]


@pytest.mark.parametrize("place", STEPS, ids=lambda place: place.label)
def test_recovery_without_the_driver_completes_both_or_leaves_both_empty(
    driver, make_driver, folder, place
):
    driver.run("0")
    dies_behind(driver, place, "1") if place is not Step.CLAIM else None
    ended = resolve(driver.sink_id, commit_log=driver.commit_log)
    decided = {record.state for record in ended}
    committed = [*"01"] if in_topic(driver)[10:] else ["0"]
    both_hold(driver, folder, *committed)
    assert staged(folder) == []
    assert decided <= ({State.COMMITTED} if committed == [*"01"] else {State.ABORTED})
    again = make_driver(folder=folder)
    again.run("1")
    again.run("2")
    both_hold(again, folder, "0", "1", "2")


def test_after_a_death_between_the_two_commits_both_are_completed(driver, make_driver, folder):
    driver.run("0")
    dies_behind(driver, EndingStep.PART, "1")
    assert in_topic(driver) == rows_of("0") + rows_of("1")
    assert in_folder(folder) == rows_of("0")
    make_driver(folder=folder).committer.claim()
    both_hold(driver, folder, "0", "1")


def test_when_the_topics_part_has_expired_the_folders_part_is_aborted(make_driver, folder, client):
    driver = make_driver(folder=folder, ttl_ms=4000)
    waited = []

    def outlive_the_first() -> None:
        if not waited:
            waited.append(await_expiry(client, pulsar_part(driver.records()[-1]).txn))

    with failpoints.armed(Step.PREPARE, outlive_the_first):
        driver.run("0")
    states = ["OPEN", "PREPARED", "ABORTING", "ABORTED", "OPEN", "PREPARED", "COMMITTED"]
    assert driver.states("0")[-7:] == states  # one may expire before it is prepared
    both_hold(driver, folder, "0")
    assert staged(folder) == []


def test_a_poisoned_topic_leaves_nothing_in_the_folder(driver, folder):
    tries = []

    def fail(_) -> None:
        tries.append(1)
        raise TransactionPoisoned("a send is in doubt")

    driver.during_write = fail
    with pytest.raises(TransactionPoisoned):
        driver.run("0")
    assert len(tries) == 3
    assert (in_topic(driver), in_folder(folder), staged(folder)) == ([], [], [])


@pytest.mark.parametrize("empty", ["topic", "folder", "both"])
def test_an_output_without_rows_does_not_affect_the_other(driver, folder, empty):
    driver.topic_count = 0 if empty != "folder" else None
    driver.folder_count = 0 if empty != "topic" else None
    driver.run("0")
    assert in_topic(driver) == (rows_of("0") if empty == "folder" else [])
    assert in_folder(folder) == (rows_of("0") if empty == "topic" else [])
    assert driver.states("0")[-1] == ("EMPTY" if empty == "both" else "COMMITTED")
    assert staged(folder) == []


def test_a_participant_that_is_not_installed_leaves_the_epoch_in_doubt_with_a_hint(
    driver, folder, installed
):
    driver.run("0")
    dies_behind(driver, Step.PREPARE, "1")
    installed(False)
    log = CommitLog.open_read_only(driver.commit_log, driver.sink_id)
    assert isinstance(log.history.unfinished[0].participants[1], UnknownPart)
    with pytest.raises(InDoubt, match=r"'folder' .*not installed here.*Install its package"):
        resolve(driver.sink_id, commit_log=driver.commit_log)
    (found,) = ask_outputs(log.history.unfinished[0], log.history, Access(), timeout_s=1)
    assert not found.has_answered
    assert "not installed here" in found.says
    with pytest.raises(EosError, match="does not answer"):
        decide(
            driver.sink_id, commit_log=driver.commit_log, epoch="1", verdict="committed",
            because="it is there", by="ada", query_id=None,
        )  # fmt: skip
    assert driver.states("1") == ["OPEN", "PREPARED"]
    installed(True)
    resolve(driver.sink_id, commit_log=driver.commit_log)
    both_hold(driver, folder, "0", "1")


def test_a_kind_that_is_not_declared_is_refused_before_it_is_recorded(driver, installed):
    """Otherwise the driver could not read its own claim."""
    installed(False)
    with pytest.raises(ConfigurationError, match=r"'folder', which no installed.*entry point"):
        driver.run("0")
    assert CommitLog.open(driver.commit_log, driver.sink_id).records() == []
    installed(True)
    driver.run("0")


def test_a_sink_without_an_earlier_output_raises_in_doubt_with_a_hint(
    driver, make_driver, folder, monkeypatch
):
    driver.run("0")
    dies_behind(driver, Step.PREPARE, "1")
    alone, ended = make_driver(), []
    monkeypatch.setattr(alone.participant, "commit", lambda part, **_: ended.append(part))
    with pytest.raises(InDoubt, match=r"no longer writes with.*eos recovery resolve"):
        alone.committer.claim()
    assert ended == []  # also the topic's part is not ended
    resolve(driver.sink_id, commit_log=driver.commit_log)
    both_hold(driver, folder, "0", "1")
    assert make_driver().run("2").records == 10


def test_two_topics_in_one_epoch_are_refused_with_the_reason(make_driver):
    driver = make_driver()
    second = make_driver(sink_id=f"{driver.sink_id}-2")
    driver.committer._claim.participants.own += (second.participant,)
    with pytest.raises(ConfigurationError, match=r"all or nothing: .*both expire.*two sinks"):
        driver.committer.claim()


def test_a_part_lost_after_the_commit_is_in_doubt_and_a_person_may_accept_the_loss(
    driver, make_driver, folder
):
    driver.run("0")
    dies_behind(driver, EndingStep.PART, "1")
    shutil.rmtree(staged(folder)[0])
    with pytest.raises(InDoubt, match=r"is committed, and what folder .* had prepared is gone"):
        resolve(driver.sink_id, commit_log=driver.commit_log)
    decide(
        driver.sink_id,
        epoch="1",
        verdict="committed",
        because="the folder's copy is written by hand",
        by="ada",
        commit_log=driver.commit_log,
    )
    again = make_driver(folder=folder)
    assert again.run("1").status == "skipped"
    assert again.states("1") == ["OPEN", "PREPARED", "COMMITTED"]
    assert in_topic(driver) == rows_of("0") + rows_of("1")
    assert in_folder(folder) == rows_of("0")


def test_a_person_may_give_up_a_part_that_can_not_be_committed_after_the_topic(
    driver, make_driver, folder, monkeypatch
):
    driver.run("0")
    dies_behind(driver, EndingStep.PART, "1")
    with monkeypatch.context() as broken:
        full = lambda *_, **__: unknown("the disk is full")  # noqa: E731
        broken.setattr(FolderParticipant, "commit", full)
        with pytest.raises(InDoubt, match="the disk is full"):
            resolve(driver.sink_id, commit_log=driver.commit_log)
        choice = {"epoch": "1", "verdict": "committed", "because": "no room", "by": "ada"}
        last = decide(driver.sink_id, commit_log=driver.commit_log, **choice)
    assert str(last.reason).startswith("DECIDED: ada: no room; without folder ")
    assert str(last.reason).endswith("(the disk is full)")
    assert make_driver(folder=folder).run("1").status == "skipped"
    assert in_folder(folder) == rows_of("0")


def test_a_missing_folder_counts_as_another_output(driver, make_driver, folder):
    driver.run("0")
    driver.close()
    shutil.rmtree(folder)
    with pytest.raises(NewCluster, match=r"Folder .* does not exist.*a different one"):
        make_driver(folder=folder).committer.claim()


def test_a_sink_may_have_a_folder_as_its_only_output(make_driver, folder, tmp_path):
    from eos.committer import Committer

    log = CommitLog.open(tmp_path / "alone", "files")
    output = FolderParticipant(folder)

    def plan(begun):
        def write():
            (part,) = begun()
            part.staged.mkdir(parents=True)
            paths = [part.staged / f"{n}" for n in range(3)]
            for path in paths:
                path.write_bytes(b"row")
            return [paths]

        return write

    committer = Committer(log, [output])
    assert committer.run_epoch("batch", "a", plan).records == 3
    assert (
        Committer(CommitLog.open(tmp_path / "alone", "files"), [output])
        .run_epoch("batch", "a", plan)
        .status
        == "skipped"
    )
    assert in_folder(folder) == [b"row"] * 3
