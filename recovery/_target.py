"""The commit logs and the cluster that a verb works on, and the options that name them."""

from __future__ import annotations

import contextlib
import difflib
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from eos.admin import AdminClient
from eos.cli.cluster import ACCESS, Cluster, cluster_of
from eos.cli.commands import reporting, with_options
from eos.cli.reports import Report
from eos.commit_log import CommitLog, list_emptied, list_sinks
from eos.errors import ConfigurationError, EosError, TopicNotFound
from eos.ids import TopicName
from eos.participant import Access
from eos.pulsar.part import pulsar_part
from eos.transport.address import Address, parse_service_url

LogRoot = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_COMMIT_LOG",
        metavar="PATH_OR_URL",
        help="Root of the commit logs: the sinks' option commit_log. Without --service-url, the "
        "logs also name the cluster.",
        rich_help_panel=ACCESS,
    ),
]

StorageOptionsFile = Annotated[
    Path | None,
    typer.Option(
        envvar="EOS_STORAGE_OPTIONS_FILE",
        help="JSON file with deltalake's options for an object store. AWS_* environment variables "
        "work as well.",
        rich_help_panel=ACCESS,
    ),
]


@dataclass(frozen=True, kw_only=True)
class Target(Cluster):
    """Commit logs and cluster; opened when a verb first needs them."""

    commit_log: str | None
    storage_options: Mapping[str, str] | None = field(repr=False)  # may hold secrets

    @property
    def root(self) -> str:
        """The root of the commit logs.

        Raises:
            ConfigurationError: it is not set.
        """
        if not self.commit_log:
            raise ConfigurationError(
                "Where are the commit logs?",
                hint="Pass --commit-log FOLDER_OR_URL, or set EOS_COMMIT_LOG.",
            )
        return self.commit_log

    def sinks(self, only: str | None = None) -> list[str]:
        """Return the sinks below the root, or only the requested one.

        Raises:
            ConfigurationError: there is no such sink, or none at all; lists the existing ones.
            CommitLogError: the folder of that name is not a commit log.
        """
        # A log that lost its files is still a sink: it is reported as damaged, not as a wrong name.
        known = sorted(
            list_sinks(self.root, storage_options=self.storage_options)
            + list_emptied(self.root, storage_options=self.storage_options)
        )
        if only is not None and only not in known:
            with contextlib.suppress(ConfigurationError):  # no such folder: a misspelt name
                self.log(only)  # a damaged log raises its own error
        if not known:
            raise ConfigurationError(
                f"No commit log found below {self.root}.",
                hint="Pass the sinks' commit_log: the folder or URL that holds one folder for each "
                "sink. Check that it is mounted.",
            )
        if only is None:
            return known
        if only not in known:
            like = difflib.get_close_matches(only, known, 3)
            meant = f"Did you mean {' or '.join(map(repr, like))}? " if like else ""
            shown = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
            raise ConfigurationError(
                f"Sink {only!r} does not exist below {self.root}.",
                hint=f"{meant}Existing sinks: {shown}.",
            )
        return [only]

    def log(self, sink_id: str) -> CommitLog:
        """Open the sink's log for reading."""
        return CommitLog.open_read_only(self.root, sink_id, storage_options=self.storage_options)

    def writable_log(self, sink_id: str) -> CommitLog:
        """Open the sink's log for compaction."""
        # Without the claim: a running driver is not disturbed.
        return CommitLog.open(self.root, sink_id, storage_options=self.storage_options)

    def addresses(self) -> tuple[Address, ...]:
        """The addresses in --service-url, or else in the URLs recorded in the logs."""
        if self.service_url or not self.commit_log or not self.auth.exposes:
            return super().addresses()  # a wrong admin URL could not expose anything
        return tuple(one for url in self._recorded_urls for one in parse_service_url(url))

    def recorded_url(self) -> str | None:
        """The service URL in the newest records of all logs; None if it is given, or in none.

        Raises:
            ConfigurationError: they name several.
        """
        if self.service_url:
            return None
        urls = self.service_urls()
        if len(urls) > 1:
            raise ConfigurationError(
                f"The commit logs name several clusters: {', '.join(map(str, urls))}.",
                hint="Pass --service-url, or set EOS_SERVICE_URL.",
            )
        return urls[0]

    def service_urls(self) -> Sequence[str | None]:
        """The service URL that is given, or else all in the newest records of the logs, or None."""
        given = self.service_url or not self.commit_log
        return [self.service_url] if given else self._recorded_urls or [None]

    @functools.cached_property  # by all logs
    def _recorded_urls(self) -> Sequence[str]:
        found = set()
        for name in list_sinks(self.root, storage_options=self.storage_options):
            with contextlib.suppress(EosError):  # the verb itself reports a broken log
                last = self.log(name).history.last
                found.add(pulsar_part(last).service_url if last else "")
        return sorted(found - {""})  # that of a sink without a topic

    @property
    def access(self) -> Access:
        """How to reach the outputs named in a log."""
        return Access(
            service_url=self.service_url,
            auth=self.auth,
            rules=self.rules,
            admin_url=self.admin_url,
            storage_options=self.storage_options,
            timeout_s=self.timeout_s,
        )

    def maybe_admin(self) -> AdminClient | None:
        """Client of the admin API, or None without --admin-url."""
        return self.admin() if self.admin_url else None


def existing_partitions(admin: AdminClient, topic: str) -> list[TopicName]:
    """Return the exact topics of one that a user named.

    Raises:
        ConfigurationError: it does not exist.
    """
    try:
        return admin.partitions(TopicName.parse(topic))
    except TopicNotFound:
        raise ConfigurationError(f"Topic {topic} does not exist.") from None


def target_of(
    cluster: Cluster,
    commit_log: LogRoot = None,
    storage_options_file: StorageOptionsFile = None,
) -> Target:
    """Make a ``Target`` from the options of a verb.

    Raises:
        ConfigurationError: a file does not contain a JSON object.
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
        # The text of a JSON error may quote a secret; show only its type.
        kind = type(error).__name__
        raise ConfigurationError(f"--storage-options-file {path}: {kind}.") from None
    if not isinstance(options, dict):
        raise ConfigurationError(f"--storage-options-file {path} must contain a JSON object.")
    return {str(name): str(value) for name, value in options.items()}


def verb(command: Callable[..., Report]) -> Callable[..., None]:
    """Make a typer command from a function that takes ``target`` and returns a report.

    The command has the options of ``target``, prints the report and sets the exit code.
    """
    make = with_options(target_of, cluster=cluster_of)
    return reporting(with_options(command, target=make))
