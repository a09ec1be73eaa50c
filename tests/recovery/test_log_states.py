"""Damaged commit logs: no damage is mistaken for a wrong name, or for a clean log."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from eos.commit_log import CommitLog
from eos.errors import CommitLogError, CommitLogUnreadable
from eos.protocol import LogRecord
from tests.support.command_line import Ended
from tests.support.logs import small_log

_NOBODY = 65534


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """The logs of ``orders`` and ``ticks``, to be copied."""
    whole: Path = tmp_path_factory.mktemp("whole")
    for sink_id in ("orders", "ticks"):
        small_log(whole, sink_id)
    return whole


@pytest.fixture
def root(whole) -> Iterator[Path]:
    """A copy of the logs, readable by all users (unlike tmp_path)."""
    root = Path(tempfile.mkdtemp(prefix="eos-log-states-"))
    shutil.copytree(whole, root, dirs_exist_ok=True)
    for path in (root, *root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    yield root
    for path in (root, *root.rglob("*")):
        path.chmod(stat.S_IRWXU)
    shutil.rmtree(root)


@contextmanager
def not_root() -> Iterator[None]:
    """Run as a user to whom file modes apply: not as root."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(_NOBODY)
    try:
        yield
    finally:
        os.seteuid(me)


def said(ended: Ended) -> str:
    return f"{ended.out} {ended.err}"


def remove(folder: Path, *patterns: str) -> None:
    for pattern in patterns:
        for path in sorted(folder.glob(pattern)):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def half_restored(ticks: Path) -> None:
    """Every second data file."""
    for path in sorted(ticks.glob("*.parquet"))[::2]:
        path.unlink()


def file_instead(ticks: Path) -> None:
    shutil.rmtree(ticks)
    ticks.write_text("a file")


def delta_log_is_a_file(ticks: Path) -> None:
    remove(ticks, "_delta_log")
    (ticks / "_delta_log").write_text("a file")


DAMAGED: dict[str, tuple[Callable[[Path], None], str]] = {
    "_delta_log gone": (lambda t: remove(t, "_delta_log"), "data without a Delta log"),
    "_delta_log emptied": (lambda t: remove(t, "_delta_log/*"), "data without a Delta log"),
    "_delta_log alone": (lambda t: remove(t, "*.parquet"), ".parquet is missing"),
    "emptied": (lambda t: remove(t, "*"), "its folder is empty"),
    "both emptied": (lambda t: remove(t, "*.parquet", "_delta_log/*"), "its folder is empty"),
    "half restored": (half_restored, ".parquet is missing"),
    "first commit gone": (lambda t: remove(t, f"_delta_log/{0:020}.json"), f"{0:020}.json is"),
    "a commit gone": (lambda t: remove(t, f"_delta_log/{3:020}.json"), f"{3:020}.json is missing"),
    "a file": (file_instead, "it is not a folder"),
    "_delta_log a file": (delta_log_is_a_file, "_delta_log holds no commit"),
}


@pytest.mark.parametrize("verb", ["status", "verify", "resolve"])
@pytest.mark.parametrize("state", DAMAGED)
def test_damage_is_reported_with_a_remedy_and_needs_action(recovery, root, state, verb):
    damage, says = DAMAGED[state]
    damage(root / "ticks")
    ended = recovery(verb, "ticks", "--commit-log", str(root))
    assert ended.code == 1, ended
    assert says in said(ended)
    assert "estore" in said(ended)
    with pytest.raises(CommitLogError, match="estore"):
        CommitLog.open_read_only(root, "ticks")


@pytest.mark.parametrize("state", [name for name in DAMAGED if name != "a file"])
def test_damaged_log_does_not_hide_the_others(recovery, root, state):
    DAMAGED[state][0](root / "ticks")
    report = recovery("status", "--json", "--commit-log", str(root))
    assert (report.code, len(report.json["sinks"])) == (1, 1)
    assert [(one["sink_id"], one["is_broken"]) for one in report.json["broken"]] == [
        ("ticks", True)
    ]


@pytest.mark.parametrize("what", ["", "ticks", "ticks/_delta_log", "ticks/*.parquet"])
def test_unreadable_log_is_unknown_and_names_its_owner(recovery, root, whole, tmp_path, what):
    verbs = (["status"], ["status", "ticks"], ["verify", "ticks"])
    shutil.copytree(whole, tmp_path / "broken")
    remove(tmp_path / "broken" / "ticks", "_delta_log")
    for args in verbs:  # import everything first: this user can't read Python's folders either
        recovery(*args, "--commit-log", str(tmp_path / "broken"))
    for path in root.glob(what) if what else [root]:
        path.chmod(0)
    with not_root():
        for args in verbs:
            ended = recovery(*args, "--commit-log", str(root))
            assert ended.code == 2, ended
            assert "ermission denied" in said(ended)
            assert "sudo -u root" in said(ended) or os.geteuid() != _NOBODY
        with pytest.raises(CommitLogUnreadable, match="ermission denied"):
            CommitLog.open(root, "ticks")


UNREADABLE = {
    "pointer": "_delta_log/_last_checkpoint",
    "checkpoint": "_delta_log/*.checkpoint.parquet",
    "newest commit": f"_delta_log/{8:020}.json",
    "data": "",
    "list of commits": "_delta_log",
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_one_unreadable_file_is_named_and_hides_no_other_log(recovery, root, tmp_path, what):
    CommitLog.open(root, "ticks").compact()
    for args in (["status"], ["resolve"], ["log", "repair", "orders"]):  # imports everything
        recovery(*args, "--json", "--commit-log", str(root))
    os.chown(root / "ticks", _NOBODY, -1) if os.geteuid() == 0 else None
    log = root / "ticks"
    (data,) = DeltaTable(log).file_uris()
    path = next(log.glob(UNREADABLE[what])) if UNREADABLE[what] else Path(data)
    path.chmod(0o311 if path.is_dir() else 0)  # its files can be opened, but not listed
    where = "--json", "--commit-log", str(root)
    with not_root():
        for verb in ("status", "resolve"):
            ended = recovery(verb, *where)
            assert (ended.code, "ermission denied" in ended.out) == (2, True), ended
        assert str(path) in recovery("status", *where).json["broken"][0]["error"].partition(" [")[2]
        assert [one["sink_id"] for one in recovery("status", *where).json["sinks"]] == ["orders"]
        assert recovery("log", "repair", "ticks", *where).code == 2
        with pytest.raises(CommitLogUnreadable, match="ermission denied") as error:
            CommitLog.open(root, "ticks")
    assert str(path) in (error.value.hint or "")


def test_newest_commit_that_only_its_checkpoint_holds_is_written_again(recovery, root):
    claim = CommitLog.open(root, "ticks").history.last_claim
    DeltaTable(root / "ticks").create_checkpoint()
    remove(root / "ticks", "_delta_log/*.json")  # by their age, as a cron job does

    def append() -> LogRecord:
        return CommitLog.open(root, "ticks").append(replace(claim, run_id="f" * 32))

    with pytest.raises(CommitLogError, match="log compact ticks --apply"):
        append()
    compact = ("log", "compact", "ticks", "--apply", "--yes", "--commit-log", str(root))
    assert recovery(*compact).code == 0
    assert append().seq == 8


@pytest.mark.parametrize("is_compacted", [False, True])
def test_copied_or_renamed_log_is_named_as_that(recovery, root, is_compacted):
    if is_compacted:
        CommitLog.open(root, "ticks").compact()
    shutil.copytree(root / "ticks", root / "ticks.bak")
    ended = recovery("status", "--json", "--commit-log", str(root))
    (broken,) = ended.json["broken"]
    assert (ended.code, len(ended.json["sinks"])) == (1, 2)
    assert "is the log of sink ticks: its folder was copied or renamed" in broken["error"]
    assert "truncated" not in broken["error"]
    assert "on_new_query" not in broken["error"]
    with pytest.raises(CommitLogError, match="Move a copy out of the root"):
        CommitLog.open(root, "ticks.bak")


def test_misspelt_sink_exits_with_64_and_similar_names(recovery, root):
    ended = recovery("status", "tick", "--commit-log", str(root))
    assert ended.code == 64
    assert "Sink 'tick' does not exist" in said(ended)
    assert "Did you mean 'ticks'? Existing sinks: orders, ticks." in said(ended)
    (root / "notes").mkdir()
    (root / "notes" / "todo.txt").touch()
    assert recovery("status", "notes", "--commit-log", str(root)).code == 64
    assert "notes" not in recovery("status", "--commit-log", str(root)).out
