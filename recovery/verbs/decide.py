"""``eos-recovery decide``: where nothing proves anything, a person decides."""

from __future__ import annotations

import getpass
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from eos.errors import ConfigurationError, EosError, Fatal, InDoubt
from eos.protocol import LogRecord, Reason, ReasonKind, State
from eos.transport.security import Security
from recovery.change import Apply, Progress, Yes, carry_out, fencing_warning, label, open_takeover
from recovery.evidence import Evidence, gather
from recovery.exits import Exit
from recovery.moments import life_of
from recovery.objections import Objection, Verdict, objections
from recovery.report import Plan, PlanStep, Report
from recovery.sink_view import view
from recovery.target import Target

_STATE: Final = {
    Verdict.COMMITTED: State.COMMITTED,
    Verdict.ABORTED: State.ABORTED,
    Verdict.ABANDONED: State.ABANDONED,
}
_MEANS: Final = {
    Verdict.COMMITTED: "The epoch is never written again. If the broker did not commit it after "
    "all, its rows are lost.",
    Verdict.ABORTED: "The next run of its query writes the epoch again. If the broker did commit "
    "it after all, its rows are there twice.",
    Verdict.ABANDONED: "Its query may go on without the epoch's rows. If it is asked for again, "
    "it is written.",
}


class Refused(Fatal):
    """What can be seen speaks against the decision, or makes it needless."""


class Decision(Plan):
    """A plan, and all that can be seen of the epoch."""

    evidence: Evidence
    is_unknown: bool
    """It is refused only because something gave no answer."""

    @property
    def exit(self) -> Exit:
        """As a plan; unknown, when an answer is missing."""
        return Exit.UNKNOWN if self.is_unknown else super().exit

    def render(self, console: Console) -> None:
        """The evidence first."""
        self.evidence.render(console)
        console.print()
        super().render(console)


@dataclass(frozen=True)
class _Case:
    """One epoch, and what somebody says that became of it."""

    target: Target
    sink_id: str
    epoch: str
    query: str | None
    verdict: Verdict
    reason: Reason
    deadline_s: float

    def look(self) -> tuple[LogRecord, Evidence, list[Objection]]:
        """The epoch's newest record, what can be seen, and what speaks against the verdict."""
        records = self.target.log(self.sink_id).records()
        life = life_of(self.sink_id, records, self.epoch, self.query)
        with self.target.client(life[-1].service_url) as client:
            admin = self.target.maybe_admin()
            evidence = gather(client, admin, life, timeout_s=self.deadline_s)
        return life[-1], evidence, objections(life[-1], self.verdict, evidence)

    def carry_out(self) -> LogRecord:
        """Take the claim, look again, and append the verdict."""
        seen, _, against = self.look()
        _check(seen, against)
        with open_takeover(self.target, self.sink_id, self.deadline_s) as takeover:
            takeover.claim()
            record, _, against = self.look()
            _check(record, against)
            if record.seq != seen.seq:
                raise Refused(f"The epoch has gone on meanwhile: it is {record.state.value}.")
            return takeover.decide(record, _STATE[self.verdict], self.reason)


def _check(record: LogRecord, against: list[Objection]) -> None:
    if not against:
        return
    cls = InDoubt if all(one.is_unknown for one in against) else Refused
    raise cls(
        " ".join(one.text for one in against),
        hint="",
        sink_id=record.sink_id,
        query_id=record.query_id,
        epoch=record.epoch,
        txn_id=record.txn,
    )


def decide(
    sink_id: str,
    *,
    epoch: str,
    verdict: Verdict | str,
    because: str,
    by: str | None = None,
    query_id: str | None = None,
    commit_log: str | Path,
    service_url: str | None = None,
    security: Security | None = None,
    admin_url: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    deadline_s: float = 20.0,
    timeout_s: float = 30.0,
) -> LogRecord:
    """Record what a person knows of an epoch whose outcome nothing proves.

    Takes the sink's claim: a driver that is still alive is fenced at its next append. Sends no
    END_TXN. The log keeps the name and the reason.

    Args:
        verdict: ``committed`` or ``aborted`` for an epoch that is PREPARED; ``abandoned`` for one
            that was attempted and is not in the topics.
        by: who decides; the login name by default.
        deadline_s: of each thing that is looked at before.

    Returns:
        The record that was appended.

    Raises:
        ConfigurationError: there is no such log or epoch, or no reason is given.
        Refused: what can be seen contradicts it, or `resolve` can prove what happened.
        InDoubt: something that may prove it gives no answer now.
        Fenced: a driver claimed the sink at the same moment.
    """
    target = Target(
        commit_log=str(commit_log),
        service_url=service_url,
        admin_url=admin_url,
        timeout_s=timeout_s,
        security=security or Security(),
        storage_options=storage_options,
    )
    target.sinks(sink_id)
    reason = _reason(by, because)
    case = _Case(target, sink_id, epoch, query_id, Verdict(verdict), reason, deadline_s)
    return case.carry_out()


def _reason(by: str | None, because: str) -> Reason:
    if by is None:
        try:
            by = getpass.getuser()
        except (OSError, KeyError):
            raise ConfigurationError("Nobody knows who you are.", hint="Say it: --by.") from None
    if not by.strip() or not because.strip():
        raise ConfigurationError("A decision needs a name and a reason.")
    return Reason(ReasonKind.DECIDED, f"{by}: {because}")


def decide_verb(
    target: Target,
    sink: Annotated[str, typer.Argument(help="The sink.")],
    epoch: Annotated[str, typer.Option(help="Spark's batch id, or a batch job's key.")],
    verdict: Annotated[Verdict, typer.Option("--as", help="What became of the epoch.")],
    because: Annotated[str, typer.Option(help="How you know. The log keeps it: no secrets.")],
    query: Annotated[
        str | None, typer.Option(help="Its query id, or the head of it; `batch` for batch jobs.")
    ] = None,
    by: Annotated[str | None, typer.Option(help="Who decides; your login name by default.")] = None,
    apply: Apply = False,
    yes: Yes = False,
    deadline_s: Annotated[
        float, typer.Option(min=1, max=3600, help="Of each thing that is looked at before.")
    ] = 20.0,
) -> Report:
    """Decide what became of an epoch, where neither log nor cluster can prove it.

    The last way out; `resolve` comes first. Shows all evidence: the epoch's records, mark and
    receipt, whether its messages are readable, what the coordinator says (with --admin-url), its
    age. What the evidence contradicts is refused. --apply takes the sink's claim, looks again and
    appends the decision, with your name and reason; nothing is ended at the broker.

    --as committed or aborted: for an epoch that is PREPARED and stays in doubt, its receipt topic
    gone for example. Look for its rows first: committed, if readers have them; else aborted, and
    the next run writes them again.

        eos-recovery decide orders --epoch 17 --as aborted \\
            --because "topic restored from the copy of Monday, nothing of epoch 17 in it"

    --as abandoned: for an epoch that was attempted and is not in the topics, when its query shall
    go on without its rows.

        eos-recovery decide orders --epoch 17 --as abandoned --because "test data" --apply

    Exit codes: 0 decided; 1 a plan, or refused; 2 something that may prove it gives no answer now;
    64 wrong options, or no such epoch.
    """
    target.sinks(sink)
    reason = _reason(by, because)
    case = _Case(target, sink, epoch, query, verdict, reason, deadline_s)
    plan = _plan(case)

    def do(progress: Progress) -> None:
        progress.doing(f"{sink}, epoch {epoch}: {verdict.value}, by decision")
        try:
            last = case.carry_out()
        except EosError as error:
            progress.went_wrong(f"{sink}, epoch {epoch}", error)
        else:
            name = label(sink, last.query_id, last.epoch)
            progress.done(f"{name}: {last.state.value} ({last.reason})")

    return carry_out(target, plan, do, apply=apply, yes=yes)


def _plan(case: _Case) -> Decision:
    record, evidence, against = case.look()
    name = label(case.sink_id, record.query_id, record.epoch)
    step = PlanStep(
        what=f"{name}, {record.state.value}: append {_STATE[case.verdict].value} ({case.reason}).",
        why=_MEANS[case.verdict],
    )
    history = case.target.log(case.sink_id).history
    return Decision(
        steps=[] if against else [step],
        warnings=[] if against else [fencing_warning(view(history, ()))],
        refused=[one.text for one in against],
        evidence=evidence,
        is_unknown=bool(against) and all(one.is_unknown for one in against),
    )
