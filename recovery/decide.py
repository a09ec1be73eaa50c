"""A person's decision about an epoch, from Python: what ``eos recovery decide --apply`` does."""

from __future__ import annotations

import contextlib
import getpass
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eos.errors import ConfigurationError, Fatal, InDoubt
from eos.protocol import LogRecord, Reason, ReasonKind, State
from eos.pulsar.part import pulsar_part
from eos.recovery._change import open_takeover
from eos.recovery._decision_checks import Objection, Verdict, objections
from eos.recovery._evidence import Evidence, ask_outputs, gather
from eos.recovery._target import Target
from eos.recovery._timeline import life_of
from eos.recovery._unreachable_output import check_given_up
from eos.transport.auth import Auth
from eos.transport.rules import ClusterRules

STATE: Final = {
    Verdict.COMMITTED: State.COMMITTED,
    Verdict.ABORTED: State.ABORTED,
    Verdict.ABANDONED: State.ABANDONED,
}
"""What a verdict makes of an epoch."""


class Refused(Fatal):
    """What can be seen speaks against the decision, or makes it needless."""


@dataclass(frozen=True)
class Case:
    """One epoch, and what somebody says has become of it."""

    target: Target
    sink_id: str
    epoch: str
    query: str | None
    verdict: Verdict
    reason: Reason
    deadline_s: float
    give_up: tuple[str, ...] = ()
    """Outputs that will never answer again, as somebody says."""

    def look(self) -> tuple[LogRecord, Evidence, list[Objection]]:
        """The epoch's newest record, what can be seen, and what speaks against the verdict."""
        log, timeout_s = self.target.log(self.sink_id), self.deadline_s
        life = life_of(self.sink_id, log.records(), self.epoch, self.query)
        check_given_up(self.give_up, life[-1].participants, self.sink_id)
        outputs = ask_outputs(life[-1], log.history, self.target.access, timeout_s=timeout_s)
        with contextlib.ExitStack() as stack:
            client = admin = None
            if url := pulsar_part(life[-1]).service_url:
                client = stack.enter_context(self.target.client(url))
                admin = self.target.maybe_admin()
            evidence = gather(client, admin, life, outputs, timeout_s=timeout_s)
        against = objections(life[-1], self.verdict, evidence, self.give_up)
        return life[-1], evidence, against

    def carry_out(self) -> LogRecord:
        """Take the claim, look again, and append the verdict."""
        seen, _, against = self.look()
        _check(seen, against)
        with open_takeover(self.target, self.sink_id, self.deadline_s, self.give_up) as takeover:
            takeover.claim()
            record, _, against = self.look()
            _check(record, against)
            if record.seq != seen.seq:
                raise Refused(
                    f"The epoch has changed in the meantime: it is now {record.state.value}."
                )
            return takeover.decide(record, STATE[self.verdict], self.reason)


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
        txn_id=record.txn_id,
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
    auth: Auth | None = None,
    listener_name: str | None = None,
    subscription_prefix: str | None = None,
    admin_url: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    give_up: Sequence[str] = (),
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
        give_up: outputs, as the log names them, that give no answer and never will. Without this
            a decision waits for them: they may have the epoch.
        deadline_s: of each thing that is looked at before.

    Returns:
        The record that was appended.

    Raises:
        ConfigurationError: there is no such log, epoch or output, or no reason is given.
        Refused: what can be seen contradicts it, or `resolve` can prove what happened.
        InDoubt: something that may prove it gives no answer now.
        Fenced: a driver claimed the sink at the same moment.
    """
    target = Target(
        commit_log=str(commit_log),
        service_url=service_url,
        admin_url=admin_url,
        timeout_s=timeout_s,
        auth=auth or Auth(),
        rules=ClusterRules(listener_name, subscription_prefix),
        storage_options=storage_options,
    )
    target.sinks(sink_id)
    reason = reason_of(by, because)
    case = Case(
        target, sink_id, epoch, query_id, Verdict(verdict), reason, deadline_s, tuple(give_up)
    )
    return case.carry_out()


def reason_of(by: str | None, because: str) -> Reason:
    """Who decides and why, as the log keeps it.

    Args:
        by: the login name when None.

    Raises:
        ConfigurationError: a name or a reason is missing.
    """
    if by is None:
        try:
            by = getpass.getuser()
        except (OSError, KeyError):
            raise ConfigurationError(
                "Your user name is unknown.", hint="Name yourself with --by."
            ) from None
    if not by.strip() or not because.strip():
        raise ConfigurationError("A decision needs a name and a reason.")
    return Reason(ReasonKind.DECIDED, f"{by}: {because}")
