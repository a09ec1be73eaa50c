"""The options that every verb has beside those of ``eos.cli``: where the logs are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from eos.cli.access_options import ACCESS

LogRoot = Annotated[
    str | None,
    typer.Option(
        envvar="EOS_COMMIT_LOG",
        metavar="PATH_OR_URL",
        help="Root of the commit logs: what the sinks have as commit_log. Without --service-url "
        "they say which cluster.",
        rich_help_panel=ACCESS,
    ),
]

StorageOptionsFile = Annotated[
    Path | None,
    typer.Option(
        envvar="EOS_STORAGE_OPTIONS_FILE",
        help="JSON object with what deltalake needs for an object store; AWS_* variables of "
        "the environment work as well.",
        rich_help_panel=ACCESS,
    ),
]
