"""Finish what the log of a sink decided: commit, abort, or prove by the witness. No Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from eos.commit_log import CommitLog
from eos.committer import Committer, PulsarHalf
from eos.errors import ConfigurationError
from eos.ids import TopicName
from eos.transaction import LogRecord
from eos.transport.security import Security

_TTL_MS = 600_000


def resolve(
    sink_id: str,
    *,
    commit_log: str | Path,
    service_url: str,
    security: Security | None = None,
    admin_url: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    deadline_s: float = 60.0,
) -> list[LogRecord]:
    """Bring every unfinished transaction of a sink to its end, as a restarted driver would.

    Takes the sink's claim: a driver that is still alive is fenced at its next append.

    Returns:
        The last record of each epoch that was unfinished: COMMITTED, ABORTED or EMPTY. An
        aborted epoch is written by the next run of its query.

    Raises:
        ConfigurationError: there is no such log, or nothing was ever written with it.
        InDoubt: an outcome can't be proved now; the log is as it was.
        Fenced: a driver claimed the sink at the same moment.
    """
    CommitLog.open_read_only(commit_log, sink_id, storage_options=storage_options)
    log = CommitLog.open(commit_log, sink_id, storage_options=storage_options)
    receipt_topic = log.history.receipt_topic
    if receipt_topic is None:
        raise ConfigurationError("No driver has claimed this sink yet.", sink_id=sink_id)
    half = PulsarHalf(
        sink_id,
        service_url,
        security or Security(),
        receipt_namespace=TopicName.parse(receipt_topic).namespace_name,
        admin_url=admin_url,
    )
    try:
        keys = [record.key for record in log.history.unfinished if record.key is not None]
        committer = Committer(
            log, half, service_url=service_url, ttl_ms=_TTL_MS, deadline_s=deadline_s
        )
        if keys:
            committer.claim()
        ended = [log.history.newest(*key) for key in keys]
        return [record for record in ended if record is not None]
    finally:
        half.close()
