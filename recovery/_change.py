"""The way of every verb that changes something: a plan, a question, then step by step."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Annotated, Final

import typer
from rich.console import Console

from eos.cli.exit_codes import Exit, exit_of
from eos.cli.reports import Report, duration
from eos.errors import ConfigurationError, EosError
from eos.protocol import LogRecord
from eos.recovery._report import Outcome, Plan
from eos.recovery._sink_view import SinkView, query_label
from eos.recovery._takeover import Takeover
from eos.recovery._target import Target

Apply = Annotated[
    bool, typer.Option("--apply", help="Do it. Without this the plan is shown and nothing is done.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before --apply; for scripts.")]

Deadline = Annotated[
    float,
    typer.Option(min=1, max=3600, help="Of each wait for a mark, an END_TXN or the witness."),
]
GiveUp = Annotated[
    list[str] | None,
    typer.Option(
        metavar="OUTPUT",
        help="An output beside the topic, as `show` names it, that gives no answer and never will: "
        "do without it.",
    ),
]
ABORT: Final = (
    "find the mark, END_TXN(abort) (without its mark nothing is sent: the transaction expires by "
    "itself), append ABORTED"
)
"""How a transaction ends that nobody decided to commit."""


class ChangeProgress:
    """Collects what ``--apply`` did; each line also goes to the terminal at once."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._done: list[str] = []
        self._failed: list[str] = []
        self._unknown: list[str] = []

    def doing(self, what: str) -> None:
        """Say what begins now."""
        self._console.print(f"... {what}", markup=False, highlight=False)

    def done(self, what: str) -> None:
        """One thing is done."""
        self._done.append(what)

    def went_wrong(self, what: str, error: EosError) -> None:
        """One thing is not done; others may still be tried."""
        bucket = self._unknown if exit_of(error) is Exit.UNKNOWN else self._failed
        bucket.append(f"{what}: {error}")

    @property
    def outcome(self) -> Outcome:
        """All of it."""
        return Outcome(done=self._done, failed=self._failed, unknown=self._unknown)


def carry_out(
    target: Target, plan: Plan, do: Callable[[ChangeProgress], None], *, apply: bool, yes: bool
) -> Report:
    """The plan; or, with ``apply`` and after a yes, the outcome of ``do``.

    Raises:
        ConfigurationError: nobody is there to be asked, and ``--yes`` was not given.
        Abort: the answer was no.
    """
    if not apply or not plan.steps:
        return plan
    if not yes:
        if target.as_json or not sys.stdin.isatty():
            raise ConfigurationError(
                "--apply asks before it changes anything, and there is no terminal.",
                hint="Look at the plan (without --apply), then add --yes.",
            )
        plan.render(Console(stderr=True))
        typer.confirm("Do it?", abort=True, err=True)
    progress = ChangeProgress()
    do(progress)
    return progress.outcome


def fencing_warning(sink: SinkView) -> str:
    """What taking the claim does to a driver that is still alive, and how likely one is."""
    text = f"This takes the claim of sink {sink.sink_id}."
    if sink.claim is None:
        return text
    return (
        f"{text} Its last record is {duration(sink.last_record_age_s)} old (run "
        f"{sink.claim.run_id[:8]}): a driver that is still alive stops with Fenced at its next "
        "append, and has to be started again."
    )


def open_takeover(
    target: Target, sink_id: str, deadline_s: float, give_up: Collection[str] | None
) -> Takeover:
    """The claim of one of the target's sinks."""
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
    """End one transaction, and write down what became of it."""
    name = label(record.sink_id, record.query_id, record.epoch)
    progress.doing(f"{name}: {record.state.value}, {record.label}")
    try:
        last = takeover.finish(record)
    except EosError as error:
        progress.went_wrong(name, error)
        return
    reason = f" ({last.reason})" if last.reason else ""
    progress.done(f"{name}: {last.state.value}, {last.label}{reason}")


def label(sink_id: str, query_id: str | None, epoch: str | None) -> str:
    """How a line of output names an epoch."""
    return f"{sink_id}, epoch {epoch} of {query_label(query_id or '-')}"
