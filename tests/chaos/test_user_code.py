"""The variants of users' code, with a sink that only counts."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from eos.chaos._user_code import USER_CODE_ENV, log_prefix, with_user_code
from eos.chaos.faults._user import _take_back
from eos.chaos.job import Job
from eos.chaos.workloads import Notebook
from eos.errors import DuplicateEpochCall

SPARK = SimpleNamespace(sparkContext=SimpleNamespace(setJobGroup=lambda *_, **__: None))


class Failing:
    """A sink that raises these errors, one for each call."""

    def __init__(self, *errors: BaseException | None) -> None:
        self.errors = list(errors)
        self.epochs: list[object] = []

    def __call__(self, _: object, epoch: object) -> None:
        self.epochs.append(epoch)
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error

    def write(self, df: object, *, epoch: object) -> None:
        self(df, epoch)


def test_without_variants_the_sink_is_unchanged(monkeypatch):
    monkeypatch.delenv(USER_CODE_ENV, raising=False)
    sink = Failing()
    assert with_user_code((), SPARK, sink) is sink


def test_only_the_first_error_is_swallowed(capsys, monkeypatch):
    monkeypatch.setenv(USER_CODE_ENV, "swallows")
    call = with_user_code((), SPARK, Failing(None, ValueError("a row"), KeyError("again")))
    call(None, 0)
    call(None, 1)
    assert capsys.readouterr().out == "chaos: swallows: epoch 1: ValueError\n"
    with pytest.raises(KeyError):
        call(None, 2)


def test_refused_and_accepted_second_calls_are_distinguished(capsys):
    refused = Failing(None, None, DuplicateEpochCall("called twice"))
    call = with_user_code(("calls-twice",), SPARK, refused)
    call(None, 0)
    with pytest.raises(DuplicateEpochCall):
        call(None, 1)
    assert refused.epochs == [0, 1, 1]
    assert "epoch 1, refused: called twice" in capsys.readouterr().out
    call = with_user_code(("calls-twice",), SPARK, Failing())
    for epoch in range(3):
        call(None, epoch)
    assert capsys.readouterr().out == "chaos: calls-twice: epoch 1, not refused\n"


def test_epoch_is_removed_with_all_later_ones(tmp_path):
    for folder in ("commits", "offsets"):
        (tmp_path / folder).mkdir()
        for number in range(5):
            (tmp_path / folder / str(number)).touch()
            (tmp_path / folder / f".{number}.crc").touch()
    _take_back(tmp_path, 2)

    def left(folder: str) -> set[str]:
        return {path.name for path in (tmp_path / folder).iterdir()}

    assert left("commits") == {"0", "1", ".0.crc", ".1.crc"}
    assert left("offsets") == {"0", "1", "2", ".0.crc", ".1.crc", ".2.crc"}


class Mapped:
    """A DataFrame of frames that runs mapped functions like Spark's executors."""

    schema = "value string"

    def __init__(self, frames: list[list[int]]) -> None:
        self.frames = frames

    def mapInPandas(self, function, _: str) -> list[list[int]]:  # noqa: N802 - Spark's name
        return list(function(iter(self.frames)))


def test_function_fails_at_least_once_and_after_rows(monkeypatch):
    monkeypatch.setattr("eos.chaos._user_code._FAILS", 0)
    given: list[object] = []
    call = with_user_code(("fails-in-tasks",), SPARK, lambda df, _: given.append(df))
    with pytest.raises(RuntimeError, match=f"{log_prefix('fails-in-tasks')} after 2 rows"):
        call(Mapped([[], [1, 2], [3]]), 0)
    call(Mapped([[1, 2], [3]]), 0)
    assert given == [[[1, 2], [3]]]


class Rows:
    """A DataFrame with the methods used by the notebook."""

    def __getattr__(self, _: str):
        return lambda *_: self


def test_notebook_continues_with_the_same_key_and_sink(tmp_path, capsys):
    (tmp_path / "input").mkdir()
    for number in range(3):
        (tmp_path / "input" / f"input-{number:06}.parquet").touch()
    folders = {"checkpoint": str(tmp_path), "input_dir": str(tmp_path / "input")}
    job = Job("m:f", "", "", "t", "s", "", scratch_dir="", **folders)
    sink = Failing(None, KeyboardInterrupt(), None, SystemExit())
    notebook = Notebook(SimpleNamespace(read=Rows()), job, sink)
    with pytest.raises(SystemExit):
        notebook.awaitTermination()
    assert sink.epochs == [0, 1, 1, 2]
    out = capsys.readouterr().out
    assert out.splitlines() == [
        f"{log_prefix('notebook')} {x}" for x in ("key 0", "interrupted", "key 1")
    ]
    notebook.stop()
    notebook.awaitTermination()
    assert len(sink.epochs) == 4
