"""Names as users type them."""

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
    """``tenant/namespace``, when that is what it is.

    Raises:
        ConfigurationError: it is something else.
    """
    try:
        found = TopicName.parse(f"{text}/topic").namespace_name
    except ConfigurationError:
        found = ""
    if found != text:
        raise ConfigurationError(
            f"{text[:200]!r} is no namespace.", hint="Write TENANT/NAMESPACE: public/default."
        )
    return found


@contextmanager
def must_exist(what: str) -> Iterator[None]:
    """What a user names and is not there is a wrong option.

    Raises:
        ConfigurationError: instead of ``TopicNotFound``.
    """
    try:
        yield
    except TopicNotFound:
        raise ConfigurationError(
            f"There is no {what}.", hint="`eos catalog list` shows what there is."
        ) from None
