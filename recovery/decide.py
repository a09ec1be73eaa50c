"""Record a person's decision about an epoch, as ``eos recovery decide --apply`` does."""

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
from eos.recovery._takeover import check_given_up
from eos.recovery._target import Target
from eos.recovery._timeline import epoch_records
from eos.transport.address import ClusterRules
from eos.transport.auth import Auth

STATE: Final = {
    Verdict.COMMITTED: State.COMMITTED,
    Verdict.ABORTED: State.ABORTED,
    Verdict.ABANDONED: State.ABANDONED,
}
"""The state that records each verdict."""


class Refused(Fatal):
    """Raised when the evidence contradicts a decision, or makes it unnecessary."""


@dataclass(frozen=True)
class ManualDecision:
    """A person's decision about one epoch."""

    target: Target
    sink_id: str
    epoch: str
    query: str | None
    verdict: Verdict
    reason: Reason
    deadline_s: float
    give_up: tuple[str, ...] = ()  # according to the person, they will never answer again

    def check(self) -> tuple[LogRecord, Evidence, list[Objection]]:
        """Return the epoch's newest record, the evidence, and the objections to the verdict."""
        log, timeout_s = self.target.log(self.sink_id), self.deadline_s
        life = epoch_records(self.sink_id, log.records(), self.epoch, self.query)
        check_given_up(self.give_up, life[-1].participants, self.sink_id)
        outputs = ask_outputs(life[-1], log.history, self.target.access, timeout_s=timeout_s)
        with contextlib.ExitStack() as stack:
            client = admin = None
            # An epoch without a topic needs no cluster.
            if url := pulsar_part(life[-1]).service_url:
                client = stack.enter_context(self.target.client(url))
                admin = self.target.maybe_admin()
            evidence = gather(client, admin, life, outputs, timeout_s=timeout_s)
        against = objections(life[-1], self.verdict, evidence, self.give_up)
        return life[-1], evidence, against

    def apply(self) -> LogRecord:
        """Take the claim, check again, and append the verdict."""
        seen, _, against = self.check()
        _check(seen, against)
        with open_takeover(self.target, self.sink_id, self.deadline_s, self.give_up) as takeover:
            takeover.claim()
            # Only now no driver can commit any more; what was seen before may be outdated.
            record, _, against = self.check()
            _check(record, against)
            if record.seq != seen.seq:
                raise Refused(f"The epoch has changed meanwhile: it is now {record.state.value}.")
            return takeover.decide(record, STATE[self.verdict], self.reason)


def _check(record: LogRecord, against: list[Objection]) -> None:
    if not against:
        return
    # A missing answer may come later; a contradiction stays one.
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
    """Record a person's decision about an epoch whose outcome nothing proves.

    Takes the sink's claim: a running driver is fenced at its next append. Sends no END_TXN. The log
    keeps the name and the reason.

    Args:
        verdict: ``committed`` or ``aborted`` for an epoch that is PREPARED; ``abandoned`` for one
            that was attempted and is not in the outputs.
        by: who decides; the login name by default.
        give_up: outputs, named as in the log, that will never answer again. Any other output must
            answer before a decision is accepted, because it may have the epoch.
        deadline_s: of each piece of evidence.

    Returns:
        The appended record.

    Raises:
        ConfigurationError: the log, epoch or output does not exist, or the reason is missing.
        Refused: the evidence contradicts the decision, or ``resolve`` can prove the outcome.
        InDoubt: an answer that may prove the outcome is missing.
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
    target.sinks(sink_id)  # refuses a name without a log
    reason = reason_of(by, because)
    decision = ManualDecision(
        target, sink_id, epoch, query_id, Verdict(verdict), reason, deadline_s, tuple(give_up)
    )
    return decision.apply()


def reason_of(by: str | None, because: str) -> Reason:
    """Return who decides and why, as stored in the log.

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
                "The login name is unknown.", hint="Pass your name with --by."
            ) from None
    if not by.strip() or not because.strip():
        raise ConfigurationError("A decision must have a name and a reason.")
    return Reason(ReasonKind.DECIDED, f"{by}: {because}")
