"""What a verb works on: the commit logs, the cluster, and how to authenticate.

The options are the same for all verbs; ``verb`` gives them to a command, prints its report and
sets the exit code.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from eos.admin import AdminClient
from eos.client import PulsarClient
from eos.commit_log import CommitLog, sinks
from eos.errors import ConfigurationError, EosError
from eos.participant import Access
from eos.pulsar.part import pulsar_part
from eos.transport.address import Address, parse_service_url
from eos.transport.security import Security
from recovery import _options as options
from recovery._report import Report


@dataclass(frozen=True)
class Target:
    """Logs and cluster, opened when a verb needs them; nothing is connected before."""

    commit_log: str | None
    service_url: str | None
    admin_url: str | None
    timeout_s: float
    security: Security = field(repr=False)
    storage_options: Mapping[str, str] | None = field(repr=False)
    as_json: bool = False

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
        """
        known = sinks(self.root, storage_options=self.storage_options)
        if not known:
            raise ConfigurationError(
                f"There is no commit log below {self.root}.",
                hint="Pass the folder or URL that the sinks have as commit_log.",
            )
        if only is None:
            return known
        if only not in known:
            shown = ", ".join(known[:10]) + (", ..." if len(known) > 10 else "")
            raise ConfigurationError(
                f"There is no sink {only!r} below {self.root}.", hint=f"Sinks there: {shown}."
            )
        return [only]

    def log(self, sink_id: str) -> CommitLog:
        """The sink's log, to look at."""
        return CommitLog.open_read_only(self.root, sink_id, storage_options=self.storage_options)

    def writable_log(self, sink_id: str) -> CommitLog:
        """The sink's log, to compact in. Claims nothing."""
        return CommitLog.open(self.root, sink_id, storage_options=self.storage_options)

    def service_url_of(self, recorded: str | None) -> str:
        """The service URL to use: the one given, else the one that a log has recorded.

        Raises:
            ConfigurationError: neither is there.
        """
        url = self.service_url or recorded
        if not url:
            raise ConfigurationError(
                "Which cluster?",
                hint="Pass --service-url pulsar://host:6650, or set EOS_SERVICE_URL.",
            )
        return url

    def client(self, recorded: str | None = None) -> PulsarClient:
        """A client of the cluster; the caller closes it."""
        return PulsarClient(
            self.service_url_of(recorded), security=self.security, timeout_s=self.timeout_s
        )

    def admin(self) -> AdminClient:
        """The admin API.

        Raises:
            ConfigurationError: no admin URL was given, or it would show the token or password.
        """
        if not self.admin_url:
            raise ConfigurationError(
                "This needs the admin API.",
                hint="Pass --admin-url http://host:8080, or set EOS_ADMIN_URL.",
            )
        return AdminClient(
            self.admin_url, self.security, timeout_s=self.timeout_s, service=self._service()
        )

    def _service(self) -> tuple[Address, ...]:
        """The addresses of the service URL that was given, else of those that the logs recorded."""
        if self.service_url:
            return parse_service_url(self.service_url)
        if not self.commit_log or not self.security.exposes:
            return ()  # nothing that a wrong admin URL could show
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
            security=self.security,
            admin_url=self.admin_url,
            storage_options=self.storage_options,
            timeout_s=self.timeout_s,
        )

    def maybe_admin(self) -> AdminClient | None:
        """The admin API, None when no admin URL was given."""
        return self.admin() if self.admin_url else None


def target_of(
    commit_log: options.LogRoot = None,
    service_url: options.ServiceUrl = None,
    admin_url: options.AdminUrl = None,
    token_file: options.TokenFile = None,
    oauth2_issuer_url: options.OAuth2IssuerUrl = None,
    oauth2_credentials_file: options.OAuth2CredentialsFile = None,
    oauth2_audience: options.OAuth2Audience = None,
    oauth2_scope: options.OAuth2Scope = None,
    oauth2_trust_certs_file: options.OAuth2TrustCertsFile = None,
    basic_user: options.BasicUser = None,
    tls_trust_certs_file: options.TlsTrustCertsFile = None,
    tls_certificate_file: options.TlsCertificateFile = None,
    tls_private_key_file: options.TlsPrivateKeyFile = None,
    storage_options_file: options.StorageOptionsFile = None,
    timeout_s: options.TimeoutS = 30.0,
    json_: options.Json = False,
) -> Target:
    """The options of every verb, as a ``Target``.

    Raises:
        ConfigurationError: options that exclude each other, or a file that is no JSON object.
    """
    token, password = os.environ.get("EOS_TOKEN"), os.environ.get("EOS_BASIC_PASSWORD")
    if token and token_file:
        raise ConfigurationError(
            "EOS_TOKEN and --token-file (EOS_TOKEN_FILE) are both set.", hint="Set one of them."
        )
    if password and not basic_user:
        raise ConfigurationError(
            "EOS_BASIC_PASSWORD is set without a user.",
            hint="Pass --basic-user USER, or set EOS_BASIC_USER.",
        )
    if service_url:
        parse_service_url(service_url)
    return Target(
        commit_log=commit_log,
        service_url=service_url,
        admin_url=admin_url,
        timeout_s=timeout_s,
        security=Security(
            token=token,
            token_file=token_file,
            oauth2_issuer_url=oauth2_issuer_url,
            oauth2_credentials_file=oauth2_credentials_file,
            oauth2_audience=oauth2_audience,
            oauth2_scope=oauth2_scope,
            oauth2_trust_certs_file=oauth2_trust_certs_file,
            basic_user=basic_user,
            basic_password=password,
            tls_trust_certs_file=tls_trust_certs_file,
            tls_certificate_file=tls_certificate_file,
            tls_private_key_file=tls_private_key_file,
        ),
        storage_options=_read_storage_options(storage_options_file),
        as_json=json_,
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


class VerbExit(SystemExit):
    """A verb's own ending, told apart from typer's."""


def verb(command: Callable[..., Report]) -> Callable[..., None]:
    """A typer command out of a function that takes ``target`` and returns a report."""
    own = inspect.signature(command, eval_str=True)
    shared = inspect.signature(target_of, eval_str=True)

    @functools.wraps(command)
    def run(**values: Any) -> None:
        target = target_of(**{name: values.pop(name) for name in shared.parameters})
        report = command(target=target, **values)
        if target.as_json:
            print(report.to_json())
        else:
            report.render(Console())
        sys.stdout.flush()
        raise VerbExit(int(report.exit))

    parameters = [
        *(p.replace(kind=p.KEYWORD_ONLY) for n, p in own.parameters.items() if n != "target"),
        *(p.replace(kind=p.KEYWORD_ONLY) for p in shared.parameters.values()),
    ]
    del run.__wrapped__  # typer would look through it, and see options that it can't know
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
