"""Arguments of the verbs: topics and namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from eos.errors import ConfigurationError, TopicNotFound
from eos.ids import TopicName

TopicGiven = Annotated[
    str, typer.Argument(help="TENANT/NAMESPACE/TOPIC, or TOPIC of public/default.")
]


def namespace_of(text: str) -> str:
    """Check that ``text`` is ``tenant/namespace``, and return it.

    Raises:
        ConfigurationError: it is something else.
    """
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
    """Convert ``TopicNotFound`` to a wrong option: the user named ``thing``, which does not exist.

    Raises:
        ConfigurationError: instead of ``TopicNotFound``.
    """
    try:
        yield
    except TopicNotFound:
        raise ConfigurationError(
            f"There is no {thing}.", hint="List existing ones with `eos catalog list`."
        ) from None
