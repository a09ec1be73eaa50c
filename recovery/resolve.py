"""Finish unfinished epochs, as ``eos recovery resolve --apply`` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from eos.errors import EosError
from eos.participant import Access
from eos.protocol import LogRecord
from eos.recovery._takeover import Takeover
from eos.transport.address import ClusterRules
from eos.transport.auth import Auth


def resolve(
    sink_id: str,
    *,
    commit_log: str | Path,
    service_url: str | None = None,
    auth: Auth | None = None,
    listener_name: str | None = None,
    subscription_prefix: str | None = None,
    admin_url: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    give_up: Sequence[str] = (),
    deadline_s: float = 60.0,
) -> list[LogRecord]:
    """End every unfinished transaction of a sink, as a restarted driver does.

    Takes the sink's claim if there is anything to do: a running driver is fenced at its next
    append. Running it again changes nothing more.

    Args:
        give_up: outputs other than the topic, named as in the log, that will never answer again.
            An epoch to be committed there stays in doubt until a person decides.

    Returns:
        The last record of each epoch that was unfinished: COMMITTED, ABORTED or EMPTY. The next run
        of its query writes an aborted epoch again.

    Raises:
        ConfigurationError: the log or output does not exist, or no driver ever used the log.
        InDoubt: an outcome can't be proved now; the other transactions were ended.
        Fenced: a driver claimed the sink at the same moment.
    """
    ended: list[LogRecord] = []
    failure: EosError | None = None
    access = Access(
        service_url=service_url,
        auth=auth or Auth(),
        rules=ClusterRules(listener_name, subscription_prefix),
        admin_url=admin_url,
        storage_options=storage_options,
    )
    with Takeover(
        sink_id, commit_log=commit_log, access=access, give_up=give_up, deadline_s=deadline_s
    ) as takeover:
        # The first one takes the claim: where nothing is unfinished, no driver is fenced.
        for record in takeover.unfinished:
            # One epoch in doubt does not keep the others from ending.
            try:
                ended.append(takeover.finish(record))
            except EosError as error:
                failure = failure or error
    if failure is not None:
        raise failure
    return ended
