"""``eos catalog``: the topics of a cluster from the command line, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import typer

from eos.catalog.verbs.archiving import archive
from eos.catalog.verbs.changes import create, drop
from eos.catalog.verbs.peek import peek
from eos.catalog.verbs.topics import describe_verb, list_verb
from eos.cli.cluster import cluster_of
from eos.cli.commands import reporting, run_program, with_options
from eos.cli.reports import Report

_HELP: Final = """List, describe, read, archive, create and drop the topics of a cluster.

Needs no Spark and no JVM.

        eos catalog list public/default

        eos catalog describe orders

        eos catalog peek orders -n 5

A topic is TENANT/NAMESPACE/TOPIC, or TOPIC of public/default.

Options may come from the environment: EOS_SERVICE_URL, EOS_ADMIN_URL, EOS_TOKEN_FILE (or
EOS_TOKEN), EOS_OAUTH2_ISSUER_URL and EOS_OAUTH2_CREDENTIALS_FILE, EOS_BASIC_USER and
EOS_BASIC_PASSWORD (passwords are read from the environment only), EOS_TLS_TRUST_CERTS_FILE.

Exit codes: 0 done, or shown; 1 refused; 2 unknown, something could not be reached or read; 64 wrong
options, or no such topic.
"""


def verb(command: Callable[..., Report]) -> Callable[..., None]:
    """Make a typer command of a function that takes ``cluster`` and returns a report."""
    return reporting(with_options(command, cluster=cluster_of))


app = typer.Typer(
    name="eos catalog",
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)
app.command("list")(verb(list_verb))
app.command("describe")(verb(describe_verb))
app.command("peek")(verb(peek))
app.command("archive")(verb(archive))
app.command("create")(verb(create))
app.command("drop")(verb(drop))


def main() -> None:
    """Run the command line; the exit codes are those of its help."""
    run_program(app)
