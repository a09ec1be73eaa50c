"""What a verb would change, and what it changed."""

from __future__ import annotations

from pydantic import Field
from rich.console import Console

from eos.cli.exit_codes import Exit
from eos.cli.reports import Facts, Report, escape


class PlanStep(Facts):
    """One thing that ``--apply`` would do."""

    what: str
    why: str


class Plan(Report):
    """What a verb would change. Nothing was changed yet."""

    steps: list[PlanStep]
    warnings: list[str] = Field(default_factory=list)
    refused: list[str] = Field(default_factory=list)
    """What was asked for and will not be done, with the reason."""

    @property
    def exit(self) -> Exit:
        """Something to do, or refused: action; nothing: clean."""
        return Exit.NEEDS_ACTION if self.steps or self.refused else Exit.CLEAN

    def render(self, console: Console) -> None:
        """The steps by number, then what to know before."""
        if not self.steps and not self.refused:
            console.print("[green]Nothing to do.[/]")
        for number, step in enumerate(self.steps, 1):
            console.print(f"[bold]{number}.[/] {escape(step.what)}")
            console.print(f"   [dim]{escape(step.why)}[/]")
        for text in self.refused:
            console.print(f"[red]Refused:[/] {escape(text)}")
        for text in self.warnings:
            console.print(f"[yellow]Know before:[/] {escape(text)}")


class Outcome(Report):
    """What ``--apply`` did."""

    done: list[str]
    failed: list[str]
    unknown: list[str]

    @property
    def exit(self) -> Exit:
        """Failed steps need action; what can't be proved now is unknown."""
        if self.failed:
            return Exit.NEEDS_ACTION
        return Exit.UNKNOWN if self.unknown else Exit.CLEAN

    def render(self, console: Console) -> None:
        """What was done, and what was not."""
        for text in self.done:
            console.print(f"[green]Done:[/] {escape(text)}")
        for text in self.failed:
            console.print(f"[red]Failed:[/] {escape(text)}")
        for text in self.unknown:
            console.print(f"[yellow]Unknown:[/] {escape(text)}")
        if not (self.done or self.failed or self.unknown):
            console.print("[green]Nothing had to be done.[/]")
