"""The flow of all verbs that change something: show a plan, ask, then apply it step by step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Annotated, Final

import typer
from rich.console import Console

from eos.cli.reports import Exit, Report, duration, exit_of
from eos.errors import ConfigurationError, EosError
from eos.protocol import LogRecord
from eos.recovery._plan import Outcome, Plan
from eos.recovery._sink_view import SinkView, query_label
from eos.recovery._takeover import Takeover
from eos.recovery._target import Target

Apply = Annotated[
    bool, typer.Option("--apply", help="Apply the plan. Without it, the plan is only shown.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation; for scripts.")]

Deadline = Annotated[
    float,
    typer.Option(
        min=1, max=3600, help="Seconds to wait for each answer: mark, END_TXN or witness."
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
ABORT: Final = (
    "find the mark, send END_TXN(abort) (if the mark is missing, nothing is sent and the "
    "transaction expires), append ABORTED"
)
"""How a transaction ends whose commit was never decided."""


class ChangeProgress:
    """Collects the results of ``--apply``, and announces each step on standard error."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._done: list[str] = []
        self._failed: list[str] = []
        self._unknown: list[str] = []

    def doing(self, what: str) -> None:
        """Announce the next step."""
        self._console.print(f"... {what}", markup=False, highlight=False)

    def done(self, what: str) -> None:
        """Record a completed step."""
        self._done.append(what)

    def failed(self, what: str, error: EosError) -> None:
        """Record a step that failed; later steps may still run."""
        bucket = self._unknown if exit_of(error) is Exit.UNKNOWN else self._failed
        bucket.append(f"{what}: {error}")

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
        if target.as_json or not sys.stdin.isatty():
            raise ConfigurationError(
                "--apply asks for confirmation, but there is no terminal.",
                hint="Check the plan without --apply, then add --yes.",
            )
        plan.render(Console(stderr=True))
        typer.confirm("Apply this plan?", abort=True, err=True)
    progress = ChangeProgress()
    do(progress)
    return progress.outcome


def fencing_warning(sink: SinkView) -> str:
    """Warn that a running driver loses its claim, and show how recently the sink was used."""
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
        service_url=target.service_url,
        auth=target.auth,
        rules=target.rules,
        admin_url=target.admin_url,
        storage_options=target.storage_options,
        give_up=give_up or (),
        deadline_s=deadline_s,
        timeout_s=target.timeout_s,
    )


def finish_one(takeover: Takeover, record: LogRecord, progress: ChangeProgress) -> None:
    """End one transaction and record the result."""
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
