"""What all verbs that change something share: show a plan, ask, then apply it step by step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Annotated, Final

import typer
from pydantic import Field
from rich.console import Console

from eos.cli.reports import Exit, Facts, Report, duration, escape, exit_of, new_console
from eos.errors import ConfigurationError, EosError, Fenced
from eos.protocol import LogRecord
from eos.recovery._sink_view import SinkView, query_label
from eos.recovery._takeover import Takeover
from eos.recovery._target import Target


def _print(console: Console, kind: str, text: str) -> None:
    for line in f"{kind} {escape(text)}".splitlines():
        # Commands and names of outputs are copied: the terminal breaks such lines, with no newline.
        console.print(line, soft_wrap="eos recovery " in line or "--give-up" in line)


class PlanStep(Facts):
    """One step of ``--apply``."""

    what: str
    why: str


class Plan(Report):
    """The steps that ``--apply`` would run. Nothing has been changed yet."""

    steps: list[PlanStep]
    warnings: list[str] = Field(default_factory=list)
    refused: list[str] = Field(default_factory=list)  # requests, each with the reason
    unknown: list[str] = Field(default_factory=list)  # questions without an answer

    @property
    def exit(self) -> Exit:
        """Steps or refusals need action; without any, and with nothing unknown, it is clean."""
        if self.steps or self.refused:
            return Exit.NEEDS_ACTION
        return Exit.UNKNOWN if self.unknown else Exit.CLEAN

    def render(self, console: Console) -> None:
        """The numbered steps, then refusals, warnings, and unknown states."""
        if not self.steps and not self.refused and not self.unknown:
            console.print("[green]Nothing to do.[/]")
        for number, step in enumerate(self.steps, 1):
            console.print(f"[bold]{number}.[/] {escape(step.what)}")
            console.print(f"   [dim]{escape(step.why)}[/]")
        for text in self.refused:
            _print(console, "[red]Refused:[/]", text)
        for text in self.warnings:
            _print(console, "[yellow]Warning:[/]", text)
        for text in self.unknown:
            _print(console, "[yellow]Unknown:[/]", text)


class Outcome(Report):
    """The results of ``--apply``."""

    done: list[str]
    failed: list[str]
    unknown: list[str]

    @property
    def exit(self) -> Exit:
        """Failed steps need action, before anything that is unknown."""
        if self.failed:
            return Exit.NEEDS_ACTION
        # Unknown is no failure: the same command may prove it later.
        return Exit.UNKNOWN if self.unknown else Exit.CLEAN

    def render(self, console: Console) -> None:
        """One line for each result."""
        for text in self.done:
            console.print(f"[green]Done:[/] {escape(text)}")
        for text in self.failed:
            _print(console, "[red]Failed:[/]", text)
        for text in self.unknown:
            _print(console, "[yellow]Unknown:[/]", text)
        if not (self.done or self.failed or self.unknown):
            console.print("[green]Nothing to do.[/]")


Apply = Annotated[
    bool, typer.Option("--apply", help="Apply the plan. Without it, the plan is only shown.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; for scripts.")]

Deadline = Annotated[
    float,
    typer.Option(
        min=1, max=3600, help="Seconds to wait for each answer of a broker, table or database."
    ),
]
GiveUp = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OUTPUT",
        help="An output other than the topic, named as in `show`, that will never answer again: "
        "finish without it. Repeatable.",
    ),
]
_RUNNING: Final = (
    "The sink's driver is alive, and ends its epochs itself: nothing has to be restarted. Look at "
    "`status`."
)
# How a transaction ends whose commit was never decided.
ABORT: Final = (
    "find the mark, send END_TXN(abort) (if the mark is missing, nothing is sent and the "
    "transaction expires), append ABORTED"
)


class ChangeProgress:
    """Collects the results of ``--apply``, and announces each step on standard error."""

    def __init__(self) -> None:
        # Standard output is for the report alone: with --json, a program reads it.
        self._console = new_console(stderr=True)
        self._done: list[str] = []
        self._failed: list[str] = []
        self._unknown: list[str] = []

    def doing(self, what: str) -> None:
        """Announce the next step."""
        self._console.print(f"... {escape(what)}", highlight=False)

    def done(self, what: str) -> None:
        """Record a completed step."""
        self._done.append(what)

    def failed(self, what: str, error: EosError) -> None:
        """Record a step that failed; later steps may still run."""
        # In doubt is not wrong: the log is unchanged, and the same command may prove it later.
        if isinstance(error, Fenced):  # its hint is for drivers
            error = Fenced(error.message, hint=_RUNNING, **error.context)
        is_unknown = isinstance(error, Fenced) or exit_of(error) is Exit.UNKNOWN
        bucket = self._unknown if is_unknown else self._failed
        bucket.append(f"{what}: {error}")

    def unknown(self, what: str) -> None:
        """Record a question without an answer."""
        if what not in self._unknown:
            self._unknown.append(what)

    def refused(self, why: str) -> None:
        """Record a request that is not applied; it needs action like a failed step."""
        if why not in self._failed + self._unknown:  # `resolve` has tried to open a log again
            self._failed.append(why)

    @property
    def outcome(self) -> Outcome:
        """The results so far."""
        return Outcome(done=self._done, failed=self._failed, unknown=self._unknown)


def carry_out(
    target: Target, plan: Plan, do: Callable[[ChangeProgress], None], *, apply: bool, yes: bool
) -> Report:
    """Return the plan; with ``apply``, ask for confirmation, run ``do`` and return its outcome.

    Raises:
        ConfigurationError: there is no terminal to ask on, and ``--yes`` is missing.
        Abort: the user declined.
    """
    if not apply or not plan.steps:
        return plan
    if not yes:
        # A missing answer is not a yes: a script must pass --yes.
        if target.as_json or not sys.stdin.isatty():
            raise ConfigurationError(
                "--apply asks for confirmation, but there is no terminal.",
                hint="Check the plan without --apply, then add --yes.",
            )
        plan.render(new_console(stderr=True))  # standard output gets the outcome
        typer.confirm("Apply this plan?", abort=True, err=True)
    progress = ChangeProgress()
    do(progress)
    for why in plan.refused:
        progress.refused(why)
    for what in plan.unknown:
        progress.unknown(what)
    return progress.outcome


def fencing_warning(sink: SinkView) -> str:
    """Warn that a running driver loses its claim, and show how recently the sink was used."""
    # A record of a few seconds ago is a driver that is alive: it had better finish by itself.
    text = f"This takes the claim of sink {sink.sink_id}."
    if sink.claim is None:
        return text
    return (
        f"{text} Its last record is {duration(sink.last_record_age_s)} old (run "
        f"{sink.claim.run_id[:8]}). If its driver is still running, it stops with Fenced at its "
        "next append and must be restarted."
    )


def open_takeover(
    target: Target, sink_id: str, deadline_s: float, give_up: Collection[str] | None
) -> Takeover:
    """Open a takeover of one of the target's sinks."""
    return Takeover(
        sink_id,
        commit_log=target.root,
        access=target.access,
        give_up=give_up or (),
        deadline_s=deadline_s,
    )


def finish_one(takeover: Takeover, record: LogRecord, progress: ChangeProgress) -> None:
    """End one transaction and record the result."""
    # Errors are collected: one transaction that stays in doubt must not keep the others open.
    name = label(record.sink_id, record.query_id, record.epoch)
    progress.doing(f"{name}: {record.state.value}, {record.label}")
    try:
        last = takeover.finish(record)
    except EosError as error:
        progress.failed(name, error)
        return
    reason = f" ({last.reason})" if last.reason else ""
    progress.done(f"{name}: {last.state.value}, {last.label}{reason}")


def label(sink_id: str, query_id: str | None, epoch: str | None) -> str:
    """The name of an epoch in reports."""
    return f"{sink_id}, epoch {epoch} of {query_label(query_id or '-')}"
