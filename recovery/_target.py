"""What a verb works on: the commit logs, the cluster, and how to authenticate.

The options are the same for all verbs; ``verb`` gives them to a command, prints its report and
sets the exit code.
"""

from __future__ import annotations

import contextlib
import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from eos.admin import AdminClient
from eos.cli.cluster import Cluster, cluster_of
from eos.cli.commands import reporting, with_options
from eos.cli.reports import Report
from eos.commit_log import CommitLog, emptied, sinks
from eos.errors import ConfigurationError, EosError
from eos.participant import Access
from eos.pulsar.part import pulsar_part
from eos.recovery import _options as options
from eos.transport.address import Address, parse_service_url


@dataclass(frozen=True, kw_only=True)
class Target(Cluster):
    """Logs and cluster, opened when a verb needs them; nothing is connected before."""

    commit_log: str | None
    storage_options: Mapping[str, str] | None = field(repr=False)

    @property
    def root(self) -> str:
        """The root of the commit logs.

        Raises:
            ConfigurationError: it was not given.
        """
        if not self.commit_log:
            raise ConfigurationError(
                "Where are the commit logs?",
                hint="Pass --commit-log FOLDER_OR_URL, or set EOS_COMMIT_LOG.",
            )
        return self.commit_log

    def sinks(self, only: str | None = None) -> list[str]:
        """The sinks below the root, or the one that was asked for.

        Raises:
            ConfigurationError: there are none, or not that one; names those that are there.
            CommitLogError: what has its name is no log.
        """
        known = sorted(
            sinks(self.root, storage_options=self.storage_options)
            + emptied(self.root, storage_options=self.storage_options)
        )
        if only is not None and only not in known:
            with contextlib.suppress(ConfigurationError):  # nothing there: a wrong name
                self.log(only)  # raises what is wrong with what is there
        if not known:
            raise ConfigurationError(
                f"There is no commit log below {self.root}.",
                hint="Pass the folder or URL that the sinks have as commit_log: the folder that "
                "holds a folder for each sink. Is it mounted?",
            )
        if only is None:
            return known
        if only not in known:
            like = difflib.get_close_matches(only, known, 3)
            meant = f"Did you mean {' or '.join(map(repr, like))}? " if like else ""
            shown = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
            raise ConfigurationError(
                f"There is no sink {only!r} below {self.root}.",
                hint=f"{meant}Sinks there: {shown}.",
            )
        return [only]

    def log(self, sink_id: str) -> CommitLog:
        """The sink's log, to look at."""
        return CommitLog.open_read_only(self.root, sink_id, storage_options=self.storage_options)

    def writable_log(self, sink_id: str) -> CommitLog:
        """The sink's log, to compact in. Claims nothing."""
        return CommitLog.open(self.root, sink_id, storage_options=self.storage_options)

    def addresses(self) -> tuple[Address, ...]:
        """Those of the service URL that was given, else of those that the logs recorded."""
        if self.service_url or not self.commit_log or not self.auth.exposes:
            return super().addresses()  # nothing that a wrong admin URL could show
        found: list[Address] = []
        for name in sinks(self.root, storage_options=self.storage_options):
            with contextlib.suppress(EosError):  # the verb tells what is wrong with a log
                last = self.log(name).history.last
                found += parse_service_url(pulsar_part(last).service_url) if last else ()
        return tuple(found)

    @property
    def access(self) -> Access:
        """How to reach the outputs that a log names."""
        return Access(
            service_url=self.service_url,
            auth=self.auth,
            rules=self.rules,
            admin_url=self.admin_url,
            storage_options=self.storage_options,
            timeout_s=self.timeout_s,
        )

    def maybe_admin(self) -> AdminClient | None:
        """The admin API, None when no admin URL was given."""
        return self.admin() if self.admin_url else None


def target_of(
    cluster: Cluster,
    commit_log: options.LogRoot = None,
    storage_options_file: options.StorageOptionsFile = None,
) -> Target:
    """The options of every verb, as a ``Target``.

    Raises:
        ConfigurationError: a file is no JSON object.
    """
    return Target(
        **vars(cluster),
        commit_log=commit_log,
        storage_options=_read_storage_options(storage_options_file),
    )


def _read_storage_options(path: Path | None) -> dict[str, str] | None:
    if path is None:
        return None
    try:
        options = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        # The text of a JSON error may quote a secret: only its kind is told.
        kind = type(error).__name__
        raise ConfigurationError(f"--storage-options-file {path}: {kind}.") from None
    if not isinstance(options, dict):
        raise ConfigurationError(f"--storage-options-file {path}: it is no JSON object.")
    return {str(name): str(value) for name, value in options.items()}


def verb(command: Callable[..., Report]) -> Callable[..., None]:
    """A typer command out of a function that takes ``target`` and returns a report."""
    make = with_options(target_of, cluster=cluster_of)
    return reporting(with_options(command, target=make))
