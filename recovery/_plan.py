"""Reports of the verbs that change something: the plan, and the outcome of ``--apply``."""

from __future__ import annotations

from pydantic import Field
from rich.console import Console

from eos.cli.reports import Exit, Facts, Report, escape


class PlanStep(Facts):
    """One step of ``--apply``."""

    what: str
    why: str


class Plan(Report):
    """The steps that ``--apply`` would run. Nothing has been changed yet."""

    steps: list[PlanStep]
    warnings: list[str] = Field(default_factory=list)
    refused: list[str] = Field(default_factory=list)
    """Requests that will not be carried out, each with the reason."""

    @property
    def exit(self) -> Exit:
        """Steps or refusals need action; without any, the exit is clean."""
        return Exit.NEEDS_ACTION if self.steps or self.refused else Exit.CLEAN

    def render(self, console: Console) -> None:
        """The numbered steps, then refusals and warnings."""
        if not self.steps and not self.refused:
            console.print("[green]Nothing to do.[/]")
        for number, step in enumerate(self.steps, 1):
            console.print(f"[bold]{number}.[/] {escape(step.what)}")
            console.print(f"   [dim]{escape(step.why)}[/]")
        for text in self.refused:
            console.print(f"[red]Refused:[/] {escape(text)}")
        for text in self.warnings:
            console.print(f"[yellow]Warning:[/] {escape(text)}")


class Outcome(Report):
    """The results of ``--apply``."""

    done: list[str]
    failed: list[str]
    unknown: list[str]

    @property
    def exit(self) -> Exit:
        """Failed steps need action; an outcome that can't be proved now is unknown."""
        if self.failed:
            return Exit.NEEDS_ACTION
        return Exit.UNKNOWN if self.unknown else Exit.CLEAN

    def render(self, console: Console) -> None:
        """One line for each result."""
        for text in self.done:
            console.print(f"[green]Done:[/] {escape(text)}")
        for text in self.failed:
            console.print(f"[red]Failed:[/] {escape(text)}")
        for text in self.unknown:
            console.print(f"[yellow]Unknown:[/] {escape(text)}")
        if not (self.done or self.failed or self.unknown):
            console.print("[green]Nothing to do.[/]")
