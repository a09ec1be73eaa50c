"""Finishing what drivers have left, from Python: what ``eos recovery resolve --apply`` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from eos.errors import EosError
from eos.protocol import LogRecord
from eos.recovery._takeover import Takeover
from eos.transport.auth import Auth
from eos.transport.rules import ClusterRules


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
    """Bring every unfinished transaction of a sink to its end, as a restarted driver would.

    Takes the sink's claim, if there is anything to do: a driver that is still alive is fenced at
    its next append. Running it again changes nothing more.

    Args:
        give_up: outputs beside the topic, as the log names them, that give no answer and never
            will. An epoch that is to be committed stays in doubt then, until somebody decides.

    Returns:
        The last record of each epoch that was unfinished: COMMITTED, ABORTED or EMPTY. An
        aborted epoch is written by the next run of its query.

    Raises:
        ConfigurationError: there is no such log or output, or nothing was ever written with it.
        InDoubt: an outcome can't be proved now; the others were ended all the same.
        Fenced: a driver claimed the sink at the same moment.
    """
    ended: list[LogRecord] = []
    failure: EosError | None = None
    with Takeover(
        sink_id,
        commit_log=commit_log,
        service_url=service_url,
        auth=auth,
        rules=ClusterRules(listener_name, subscription_prefix),
        admin_url=admin_url,
        storage_options=storage_options,
        give_up=give_up,
        deadline_s=deadline_s,
    ) as takeover:
        for record in takeover.unfinished:
            try:
                ended.append(takeover.finish(record))
            except EosError as error:
                failure = failure or error
    if failure is not None:
        raise failure
    return ended
