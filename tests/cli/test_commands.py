"""What a command prints next to its report: the library's warnings, and errors."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Callable

import pytest
import typer
from rich.console import Console
from rich.progress import Progress

from eos.cli.commands import run_program, warnings_shown

library = logging.getLogger("eos.sources.some")


def run(
    command: Callable[[], None], monkeypatch: pytest.MonkeyPatch, *args: str
) -> int | str | None:
    """Run ``command`` as a program; return its exit code."""
    app = typer.Typer(add_completion=False)
    app.command()(command)
    monkeypatch.setattr(sys, "argv", ["eos some", *args])
    with pytest.raises(SystemExit) as ended:
        run_program(app)
    return ended.value.code


def test_warnings_of_the_library_are_shown_without_control_characters(monkeypatch, capsys):
    def command() -> None:
        library.warning("%s is [red]lost\x1b[2J.", "t:key:1")
        library.error("The report has it.")
        library.info("Nothing happened.")
        logging.getLogger("some.other").warning("of no interest")
        assert warnings_shown() == ["t:key:1 is [red]lost\ufffd[2J."]

    assert not run(command, monkeypatch)
    assert capsys.readouterr() == ("", "Warning: t:key:1 is [red]lost\ufffd[2J.\n")
    library.warning("The command has ended.")
    assert capsys.readouterr().err == ""


def test_a_warning_is_printed_above_a_progress_bar(monkeypatch, capsys):
    screen = io.StringIO()

    def command() -> None:
        with Progress(console=Console(file=screen, force_terminal=True)) as progress:
            progress.add_task("reading")
            library.warning("Something was lost.")

    assert not run(command, monkeypatch)
    assert "Warning: Something was lost." in screen.getvalue()
    assert capsys.readouterr().err == ""
