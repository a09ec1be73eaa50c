"""The options of every verb: the cluster and the authentication."""

from __future__ import annotations

from typing import Annotated, Final

import typer

ACCESS: Final = "Access"
"""Their panel in the help."""

ServiceUrl = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_SERVICE_URL",
        help="pulsar://host:6650 or pulsar+ssl://host:6651.",
        rich_help_panel=ACCESS,
    ),
]

AdminUrl = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_ADMIN_URL",
        help="http://host:8080 or https://host:8443 of the admin API, for facts that only it has.",
        rich_help_panel=ACCESS,
    ),
]

TokenFile = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_TOKEN_FILE",
        help="File with the token. (The token itself is read from EOS_TOKEN only.)",
        rich_help_panel=ACCESS,
    ),
]

OAuth2IssuerUrl = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_OAUTH2_ISSUER_URL",
        help="https:// URL of a token server, for OAuth2 client credentials.",
        rich_help_panel=ACCESS,
    ),
]

OAuth2CredentialsFile = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_OAUTH2_CREDENTIALS_FILE",
        help="JSON file with client_id and client_secret.",
        rich_help_panel=ACCESS,
    ),
]

OAuth2Audience = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_OAUTH2_AUDIENCE",
        help="The cluster's name at the token server, if that requires one.",
        rich_help_panel=ACCESS,
    ),
]

OAuth2Scope = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_OAUTH2_SCOPE",
        help="Scope of the tokens, if the token server requires one.",
        rich_help_panel=ACCESS,
    ),
]

OAuth2TrustCertsFile = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_OAUTH2_TRUST_CERTS_FILE",
        help="PEM file of the authorities to trust for the token server.",
        rich_help_panel=ACCESS,
    ),
]

BasicUser = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_BASIC_USER",
        help="User name. (The password is read from EOS_BASIC_PASSWORD only.)",
        rich_help_panel=ACCESS,
    ),
]

TlsTrustCertsFile = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_TLS_TRUST_CERTS_FILE",
        help="PEM file of the authorities to trust; the system's by default.",
        rich_help_panel=ACCESS,
    ),
]

TlsCertificateFile = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_TLS_CERTIFICATE_FILE",
        help="PEM file of the client's certificate.",
        rich_help_panel=ACCESS,
    ),
]

TlsPrivateKeyFile = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_TLS_PRIVATE_KEY_FILE",
        help="PEM file of the certificate's private key.",
        rich_help_panel=ACCESS,
    ),
]

ListenerName = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_LISTENER_NAME",
        help="The brokers' advertised listener to connect to, if they have several.",
        rich_help_panel=ACCESS,
    ),
]

SubscriptionPrefix = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_SUBSCRIPTION_PREFIX",
        help="Prefix of all subscription names: the role's name, if a namespace has "
        "subscriptionAuthMode=Prefix.",
        rich_help_panel=ACCESS,
    ),
]

TimeoutS = Annotated[
    float,
    typer.Option(min=0.1, max=3600, help="Timeout of each request.", rich_help_panel=ACCESS),
]

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]
