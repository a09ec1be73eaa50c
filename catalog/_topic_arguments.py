"""Arguments of the verbs: topics and namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from eos.errors import ConfigurationError, TopicNotFound
from eos.ids import TopicName

TopicGiven = Annotated[
    str, typer.Argument(help="TENANT/NAMESPACE/TOPIC, or TOPIC of public/default.")
]

DefinitionGiven = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        readable=True,
        metavar="FILE.avsc",
        help="A record in Avro's JSON, for avro and json.",
    ),
]


def read_definition(file: Path) -> str:
    """Return the text of a ``DefinitionGiven``; ConfigurationError if it can't be read."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--definition {file}: {type(error).__name__}.") from None


def folder_of(text: str) -> str:
    """Return a table's URL, or its absolute path; ConfigurationError if it can't be looked up."""
    if "://" in text:
        return text
    try:
        folder = Path(text).expanduser().resolve()
        with suppress(FileNotFoundError):
            folder.stat()
    except (OSError, RuntimeError) as error:  # no such user, no permission, a loop of links
        raise ConfigurationError(f"TABLE {text[:200]!r}: {str(error).rstrip('.')}.") from None
    return str(folder)


def namespace_of(text: str) -> str:
    """Return ``text`` if it is ``tenant/namespace``, else raise ConfigurationError."""
    try:
        found = TopicName.parse(f"{text}/topic").namespace_name
    except ConfigurationError:
        found = ""
    if found != text:
        raise ConfigurationError(
            f"{text[:200]!r} is not a namespace.",
            hint="Write TENANT/NAMESPACE, for example public/default.",
        )
    return found


@contextmanager
def must_exist(thing: str) -> Iterator[None]:
    """Raise ConfigurationError instead of TopicNotFound: the user named ``thing``."""
    try:
        yield
    except TopicNotFound:
        raise ConfigurationError(
            f"There is no {thing}.", hint="List existing ones with `eos catalog list`."
        ) from None
