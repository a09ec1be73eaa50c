"""The options that every verb has: where the logs are, which cluster, and how to authenticate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

_ACCESS: Final = "Access"

LogRoot = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_COMMIT_LOG",
        metavar="PATH_OR_URL",
        help="Root of the commit logs: what the sinks have as commit_log.",
        rich_help_panel=_ACCESS,
    ),
]

ServiceUrl = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_SERVICE_URL",
        help="pulsar://host:6650 or pulsar+ssl://host:6651. Default: what the log recorded.",
        rich_help_panel=_ACCESS,
    ),
]

AdminUrl = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_ADMIN_URL",
        help="http://host:8080 or https://host:8443: the admin API, for what only it tells.",
        rich_help_panel=_ACCESS,
    ),
]

TokenFile = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_TOKEN_FILE",
        help="File with the token; the token itself only by EOS_TOKEN, never as an option.",
        rich_help_panel=_ACCESS,
    ),
]

OAuth2IssuerUrl = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_OAUTH2_ISSUER_URL",
        help="https:// URL of a token server, for OAuth2 client credentials.",
        rich_help_panel=_ACCESS,
    ),
]

OAuth2CredentialsFile = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_OAUTH2_CREDENTIALS_FILE",
        help="JSON file with client_id and client_secret.",
        rich_help_panel=_ACCESS,
    ),
]

OAuth2Audience = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_OAUTH2_AUDIENCE",
        help="What the token server calls the cluster, where it asks.",
        rich_help_panel=_ACCESS,
    ),
]

OAuth2Scope = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_OAUTH2_SCOPE",
        help="Scope of the tokens, where the token server asks.",
        rich_help_panel=_ACCESS,
    ),
]

OAuth2TrustCertsFile = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_OAUTH2_TRUST_CERTS_FILE",
        help="PEM file of the authorities to trust for the token server.",
        rich_help_panel=_ACCESS,
    ),
]

BasicUser = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_BASIC_USER",
        help="User name; the password only by EOS_BASIC_PASSWORD, never as an option.",
        rich_help_panel=_ACCESS,
    ),
]

TlsTrustCertsFile = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_TLS_TRUST_CERTS_FILE",
        help="PEM file of the authorities to trust; the system's by default.",
        rich_help_panel=_ACCESS,
    ),
]

TlsCertificateFile = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_TLS_CERTIFICATE_FILE",
        help="The client's own certificate.",
        rich_help_panel=_ACCESS,
    ),
]

TlsPrivateKeyFile = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_TLS_PRIVATE_KEY_FILE",
        help="The key to it.",
        rich_help_panel=_ACCESS,
    ),
]

StorageOptionsFile = Annotated[
    Path | None,
    typer.Option(
        envvar="EOS_STORAGE_OPTIONS_FILE",
        help="JSON object with what deltalake needs for an object store; AWS_* variables of "
        "the environment work as well.",
        rich_help_panel=_ACCESS,
    ),
]

TimeoutS = Annotated[
    float,
    typer.Option(min=0.1, max=3600, help="Deadline of each request.", rich_help_panel=_ACCESS),
]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]
